// What the whole page and the small one open with: tables, a selection, and what a map tells.
import { element, read } from "./elements.js";
import { digits } from "./numbers.js";
import { Distances } from "./reasons.js";
import { Selection } from "./selection.js";
import { term, Tip } from "./tips.js";

const POOR = 0.3; // stress from which on a picture is not to be trusted

export function opened() {
  const data = read();
  const tables = data.tables.map((about) => new Distances(data.names.length, about));
  const known = data.names.findIndex((_, s) => !tables[0].veiled.has(s));
  const selection = new Selection(Math.max(0, known));
  const tip = new Tip(document.body);
  const views = new Map();
  const page = { data, tables, selection, tip, views, told, hovering, picture };

  // The distance of a state from the picked one, in each table.
  function told(of, state) {
    const { first } = selection;
    const lines = of.map((d) => {
      const is = d.isBelow(first, state) ? "≥" : "=";
      const number = d.has(first, state) ? `${is} ${digits(d.at(first, state), 6)}` : "not known";
      return `${of.length > 1 ? d.label : d.symbol} ${number}${first === state ? ", the picked state" : ""}`;
    });
    const { V } = of[0];
    return V ? [...lines, `${V.name} = ${digits(V.values[state], 5)}`] : lines;
  }

  // What happens on a map; `of` are the tables to be asked for a state's distance, `more` what
  // else there is to say of it.
  function hovering(of, more = () => []) {
    return {
      pick: (state) => selection.pick(state),
      move: (state) => selection.move(state),
      clear: () => selection.clear(),
      hover(state, x, y) {
        const lines = more(state);
        if (state === null) return tip.hide();
        const who = element("strong", {}, data.names[state]);
        tip.show([who, ...told(of(), state), ...lines], x + 14, y + 16);
      },
    };
  }

  // What is to be known of a picture without a map.
  function picture() {
    if (data.map) return null;
    const trust = data.stress > POOR ? ": the points are unreliable, trust the numbers" : "";
    return element(
      "p",
      { class: "quiet" },
      "The MDP has no map: similar states are drawn as nearby points. ",
      term("Stress", "stress"),
      ` ${data.stress.toFixed(2)}${trust}.`,
    );
  }

  return page;
}
