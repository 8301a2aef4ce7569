// Distances from the selected state, and the explanation of one of them.
import { createChip, createElement } from "./elements.js";
import { StateMap } from "./map.js";
import { createNumberFormat } from "./numbers.js";
import { NORMS, createDistanceScale, createMarkEntries, createScaleBar } from "./scales.js";
import { createTerm } from "./tooltips.js";
import { listPathStates, ExplanationPanel } from "./explanation_panel.js";

const REVEALED_PIXELS = 150; // of an explanation: the distance and its steps

export class DistancesView {
  // `chart(host, panel, step)` draws the sum of a step, or is null.
  constructor(host, page, chart) {
    this.page = page;
    const { data, selection } = page;
    this.title = createElement("h2", { class: "map-title" });
    const holder = createElement("div", { class: "map-holder" });
    this.scale = createElement("div", {});
    const createOption = (id, words) => {
      const box = createElement("input", { type: "checkbox", id, onchange: () => this.paint() });
      const hidden = id === "per-step" && data.discount === null;
      return {
        box,
        label: createElement("label", { class: "option", for: id, hidden }, box, words),
      };
    };
    const sharedScale = createOption("shared-scale", "same for all sources");
    const perStep = createOption(
      "per-step",
      "in units of reward per step: (1 − discount) · distance",
    );
    this.sharedScale = sharedScale.box;
    this.perStep = perStep.box;
    this.norm = createElement(
      "select",
      {
        id: "norm",
        onchange: () => {
          page.norm = this.norm.value;
          this.paint();
          page.save();
        },
      },
      ...Object.entries(NORMS).map(([value, words]) => createElement("option", { value }, words)),
    );
    const panel = createElement("section", {
      class: "card explanation",
      "aria-label": "explanation",
    });
    const left = createElement(
      "section",
      { class: "card", "aria-label": "map" },
      this.title,
      holder,
      this.scale,
      createElement(
        "div",
        { class: "options" },
        createElement("label", { class: "option", for: "norm" }, "colour scale", this.norm),
        sharedScale.label,
      ),
      perStep.label,
      page.createEmbeddingNote(),
    );
    host.append(createElement("div", { class: "two" }, left, panel));
    this.map = new StateMap(
      holder,
      data,
      page.createHandlers(() => [this.d]),
      "Distances",
    );
    this.explanationPanel = new ExplanationPanel(panel, data, selection, {
      chart,
      announce: page.announce,
      show: (explanation, step) => {
        this.map.drawPaths(...listPathStates(explanation, step));
        page.save();
      },
    });
  }

  get d() {
    return this.page.distances[this.page.selection.distance];
  }

  paint(changes) {
    const { d, page } = this;
    const { data, selection } = page;
    // (1 - discount) * d is in units of reward per step, at most the reward range.
    const unit = this.perStep.checked ? 1 - data.discount : 1;
    const row = d.matrix.row(selection.first).map((x) => x * unit);
    const scale = this.sharedScale.checked
      ? this.createSharedScale(d, unit)
      : createDistanceScale(row, data.colours, d.error * unit, page.norm);
    this.norm.value = page.norm;
    this.colourScale = scale;
    const formatDistance = createNumberFormat(d.matrix.largest * unit);
    this.map.paint(
      Array.from(row, scale.colour),
      Array.from(row, formatDistance),
      this.selectUnknown(d),
    );
    this.map.select(selection.first, selection.second);
    this.title.replaceChildren(
      createTerm(d.kindName, d.kindName),
      " from ",
      createChip(data.names[selection.first], "first"),
    );
    const entries = createMarkEntries(data, d.unknown.size > 0);
    this.scale.replaceChildren(createScaleBar(scale, entries));
    this.explanationPanel.paint(d);
    if (changes?.hasSecond) this.revealExplanation();
  }

  // The scale of all distances, created once: the matrix may have millions.
  createSharedScale(d, unit) {
    const { data, norm } = this.page;
    if ([d, unit, norm].some((part, i) => part !== this.shared?.key[i])) {
      const all = unit === 1 ? d.matrix.values : d.matrix.values.map((x) => x * unit);
      const scale = createDistanceScale(all, data.colours, d.error * unit, norm);
      this.shared = { key: [d, unit, norm], scale };
    }
    return this.shared.scale;
  }

  // The maps to save.
  listDrawings() {
    const title = `${this.d.kindName} from ${this.page.data.names[this.page.selection.first]}`;
    return [{ map: this.map, title, scale: this.colourScale }];
  }

  // Where the panels are stacked, as on a phone, scroll to the start of the explanation.
  revealExplanation() {
    const { left, top, bottom } = this.explanationPanel.host.getBoundingClientRect();
    const missing = Math.min(bottom, top + REVEALED_PIXELS) - window.innerHeight;
    if (missing <= 0 || left > this.map.frame.getBoundingClientRect().left) return;
    const isStill = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
    window.scrollBy({ top: missing, behavior: isStill ? "auto" : "smooth" });
  }

  // Redraw the chart at its step.
  resize() {
    if (this.explanationPanel.explanation) this.explanationPanel.goTo(this.explanationPanel.step);
  }

  // Unknown distances: those of unknown states, or all if the source is unknown.
  selectUnknown(d) {
    return d.unknown.has(this.page.selection.first)
      ? new Set(this.page.data.names.keys())
      : d.unknown;
  }
}
