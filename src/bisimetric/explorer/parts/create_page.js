// What the page and the notebook version share: distances, a selection, and the handlers of a map.
import { createElement, readData } from "./elements.js";
import { formatNumber } from "./numbers.js";
import { PageDistance } from "./explanation.js";
import { Selection } from "./selection.js";
import { createTerm, Tooltip } from "./tooltips.js";

const MAX_RELIABLE_STRESS = 0.3; // above it, the points are called unreliable

export function createPage() {
  const data = readData();
  const distances = data.distances.map((encoded) => new PageDistance(data.names.length, encoded));
  const firstKnown = data.names.findIndex((_, s) => !distances[0].unknown.has(s));
  const selection = new Selection(Math.max(0, firstKnown));
  const tooltip = new Tooltip(document.body);
  const views = new Map();
  // Read aloud by screen readers.
  const announcement = createElement("div", {
    class: "visually-hidden",
    role: "status",
    id: "announcement",
  });
  const announce = (text) => (announcement.textContent = text);
  document.body.append(announcement);
  const page = {
    data,
    distances,
    selection,
    tooltip,
    views,
    announce,
    norm: "auto", // of the colour scale
    save() {}, // what is shown, in the address; the notebook version has none
    describeState,
    createHandlers,
    createEmbeddingNote,
  };

  // Describe a state: its distance from the selected one, in each of some distances, and its value.
  function describeState(shown, state) {
    const { first } = selection;
    const lines = shown.map((d) => {
      const sign = d.isLowerBound(first, state) ? "≥" : "=";
      const number = d.has(first, state)
        ? `${sign} ${formatNumber(d.at(first, state), 6)}`
        : "unknown";
      return `${shown.length > 1 ? d.label : d.symbol} ${number}${first === state ? ", the selected state" : ""}`;
    });
    const { V } = shown[0];
    return V ? [...lines, `${V.name} = ${formatNumber(V.values[state], 5)}`] : lines;
  }

  // Handlers of the events of a map. `listDistances()` returns the distances that the tooltip of a
  // state shows, `describeMore(state)` further lines.
  function createHandlers(listDistances, describeMore = (_state) => []) {
    return {
      select: (state) => selection.select(state),
      move: (state) => selection.move(state),
      clear: () => selection.clear(),
      hover(state, x, y) {
        const lines = describeMore(state);
        if (state === null) return tooltip.hide();
        const name = createElement("strong", {}, data.names[state]);
        tooltip.show([name, ...describeState(listDistances(), state), ...lines], x + 14, y + 16);
      },
    };
  }

  // A note on the embedding where there is no map.
  function createEmbeddingNote() {
    if (data.map) return null;
    const warning =
      data.stress > MAX_RELIABLE_STRESS ? ": the points are unreliable, unlike the numbers" : "";
    return createElement(
      "p",
      { class: "quiet" },
      "The MDP has no map: similar states are drawn as nearby points. ",
      createTerm("Stress", "stress"),
      ` ${data.stress.toFixed(2)}${warning}.`,
    );
  }

  return page;
}
