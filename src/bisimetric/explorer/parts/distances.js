// The first view: the world from one state, and why another one is as far as it is.
import { chip, element } from "./elements.js";
import { StateMap } from "./map.js";
import { format } from "./numbers.js";
import { distanceScale, scaleBar } from "./scales.js";
import { term } from "./tips.js";
import { walked, Why } from "./why.js";

export class DistancesView {
  // `chart(host, why, step)` draws the sum of a step, or is null.
  constructor(host, page, chart) {
    this.page = page;
    const { data, selection } = page;
    this.title = element("h2", { class: "map-title" });
    const holder = element("div", { class: "map-holder" });
    this.below = element("div", {});
    const panel = element("section", { class: "card why", "aria-label": "why" });
    const left = element(
      "section",
      { class: "card", "aria-label": "map" },
      this.title,
      holder,
      this.below,
    );
    host.append(element("div", { class: "two" }, left, panel));
    this.map = new StateMap(
      holder,
      data,
      page.hovering(() => [this.d]),
      "Distances",
    );
    this.why = new Why(panel, data, selection, {
      chart,
      show: (reasons, step) => this.map.paths(...walked(reasons, step)),
    });
    this.shared = element("input", {
      type: "checkbox",
      id: "shared",
      onchange: () => this.paint(),
    });
    this.perStep = element("input", {
      type: "checkbox",
      id: "per-step",
      onchange: () => this.paint(),
    });
  }

  get d() {
    return this.page.tables[this.page.selection.table];
  }

  paint() {
    const { d, page } = this;
    const { data, selection } = page;
    // (1 - discount) * d is in units of reward per step, at most the reward range.
    const unit = this.perStep.checked ? 1 - data.discount : 1;
    const row = d.table.row(selection.first).map((x) => x * unit);
    const shown = this.shared.checked ? d.table.values.map((x) => x * unit) : row;
    const scale = distanceScale(shown, data.colours, d.error * unit);
    const written = format(d.table.largest * unit);
    this.map.paint(Array.from(row, scale.colour), Array.from(row, written), this.veiled(d));
    this.map.select(selection.first, selection.second);
    this.title.replaceChildren(
      term(d.words, d.words),
      " from ",
      chip(data.names[selection.first], "first"),
    );
    const option = element(
      "label",
      { class: "option", for: "shared" },
      this.shared,
      "the same colours for all states",
    );
    const units = element(
      "label",
      { class: "option", for: "per-step", hidden: data.discount === null },
      this.perStep,
      "in units of reward per step: (1 − discount) · distance",
    );
    const marks = {
      unknown: d.veiled.size > 0,
      goals: data.goals.length > 0,
      others: Boolean(data.map?.others.length),
    };
    this.below.replaceChildren(...[scaleBar(scale, marks), option, units, page.picture()].filter(Boolean));
    this.why.paint(d);
  }

  // The window is wider or narrower: the chart is drawn again, at the step that it shows.
  resize() {
    if (this.why.reasons) this.why.go(this.why.step);
  }

  // All, from a state of which nothing is known.
  veiled(d) {
    return d.veiled.has(this.page.selection.first)
      ? new Set(this.page.data.names.keys())
      : d.veiled;
  }
}
