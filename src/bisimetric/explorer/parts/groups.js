// States merged into classes: a slider for the threshold, and what the merged world loses.
import { element, term } from "./elements.js";
import { StateMap } from "./map.js";
import { counted, digits, uint16s } from "./numbers.js";
import { PALETTE } from "./scales.js";

const NONE = 65_535;
const ALONE = "#f0f2f5";

export class GroupsView {
  constructor(host, page) {
    this.page = page;
    const holder = element("div", { class: "map-holder" });
    this.range = element("input", {
      type: "range",
      id: "threshold",
      min: 0,
      value: 0,
      "aria-label": "threshold",
      oninput: () => this.paint(),
    });
    this.facts = element("dl", { class: "facts" });
    this.chart = element("div", { class: "sum" });
    this.note = element("p", { class: "quiet" });
    host.append(
      element(
        "div",
        { class: "two" },
        element(
          "section",
          { class: "card", "aria-label": "classes" },
          element("h2", {}, "States that are near, merged"),
          holder,
          element(
            "p",
            { class: "legend" },
            "One colour a class; ",
            element(
              "span",
              { class: "swatch" },
              element("i", { style: `background: ${ALONE}` }),
              "alone in its class",
            ),
          ),
        ),
        element(
          "section",
          { class: "card", "aria-label": "threshold" },
          element("label", { for: "threshold" }, term("threshold")),
          this.range,
          this.facts,
          this.chart,
          this.note,
        ),
      ),
    );
    this.map = new StateMap(
      holder,
      page.data,
      page.hovering(
        () => this.d,
        (s) => this.said(s),
      ),
      "Classes",
    );
    this.labels = new Map();
  }

  get d() {
    return this.page.tables[this.page.selection.table];
  }

  // The class of each state at a step of the slider.
  classes(step) {
    const { groups } = this.d;
    if (!this.labels.has(this.d)) this.labels.set(this.d, uint16s(groups.labels));
    const n = this.page.data.names.length;
    return this.labels.get(this.d).subarray(step * n, (step + 1) * n);
  }

  said(state) {
    const labels = this.classes(Number(this.range.value));
    if (labels[state] === NONE) return ["not known"];
    const size = labels.reduce((sum, label) => sum + (label === labels[state]), 0);
    return [size === 1 ? "alone in its class" : `in a class of ${counted(size, "state")}`];
  }

  paint(changes) {
    const { groups } = this.d;
    this.range.max = groups.steps.length - 1;
    if (!this.ready || (changes && "table" in changes))
      this.range.value = Math.floor((groups.steps.length - 1) / 2);
    this.ready = true;
    const at = Number(this.range.value);
    const step = groups.steps[at];
    const labels = this.classes(at);
    const sizes = new Map();
    labels.forEach((label) => sizes.set(label, (sizes.get(label) ?? 0) + 1));
    const chosen = this.coloured(labels, sizes);
    const colour = (label) => (sizes.get(label) === 1 ? ALONE : PALETTE[chosen.get(label)]);
    this.map.paint(
      Array.from(labels, colour),
      Array.from(labels, (label) => (sizes.get(label) === 1 ? "" : String(label + 1))),
      this.d.veiled,
    );
    this.map.select(this.page.selection.first, this.page.selection.second);
    this.range.setAttribute(
      "aria-valuetext",
      `${digits(step.radius, 4)}, ${counted(step.classes, "class", "classes")}`,
    );
    const fact = (word, key, text, id) => [
      element("dt", {}, term(word, key)),
      element("dd", { id }, text),
    ];
    const money = (loss, none) => (loss === null ? none : digits(loss, 4));
    this.facts.replaceChildren(
      ...fact("threshold", "threshold", digits(step.radius, 5), "radius"),
      ...fact(
        "classes",
        "class",
        `${step.classes.toLocaleString("en-GB")} of ${counted(labels.length - this.d.veiled.size, "state")}`,
        "classes",
      ),
      ...fact(
        "promised loss",
        "promised",
        step.promised === null ? "no promise" : `at most ${money(step.promised)}`,
        "promised",
      ),
      ...fact("measured loss", "measured", money(step.loss, "not measured"), "loss"),
    );
    const said = [groups.unsaid];
    if (step.promised !== null && groups.most && step.promised >= groups.most * (1 - 1e-9))
      said.push(
        `The promise says nothing here: no policy loses more than ${digits(groups.most, 4)}.`,
      );
    this.note.replaceChildren(said.filter(Boolean).join(" "));
    this.draw(at);
  }

  // A colour for each class of several states: none that a class beside it has, and of those left
  // the one that its first state asks for, so that classes keep theirs when they grow.
  coloured(labels, sizes) {
    const beside = new Map();
    for (const [s, t] of this.map.borders()) {
      const [one, two] = [labels[s], labels[t]];
      if (one === two || sizes.get(one) === 1 || sizes.get(two) === 1) continue;
      for (const [here, there] of [
        [one, two],
        [two, one],
      ])
        beside.set(here, (beside.get(here) ?? new Set()).add(there));
    }
    const chosen = new Map();
    labels.forEach((label, s) => {
      if (chosen.has(label)) return;
      const taken = new Set([...(beside.get(label) ?? [])].map((other) => chosen.get(other)));
      const wish = (place) => (place + s) % PALETTE.length;
      chosen.set(
        label,
        [...PALETTE.keys()].map(wish).find((place) => !taken.has(place)) ?? wish(0),
      );
    });
    return chosen;
  }

  // Losses over the number of classes.
  draw(at) {
    const { groups } = this.d;
    const rows = ["promised", "loss"].flatMap((kind) =>
      groups.steps
        .filter((step) => step[kind] !== null)
        .map((step) => ({
          classes: step.classes,
          loss: step[kind],
          kind: kind === "loss" ? "measured" : "promised",
        })),
    );
    if (!rows.length) return this.chart.replaceChildren();
    const here = groups.steps[at].classes;
    const chart = Plot.plot({
      width: Math.max(280, this.chart.clientWidth),
      height: 230,
      marginLeft: 48,
      marginBottom: 38,
      style: { background: "none", fontSize: "12px" },
      x: {
        label: "classes",
        type: groups.steps[0].classes > 60 ? "log" : "linear",
        ticks: 6,
        tickFormat: "d",
      },
      y: { label: `loss of ${groups.of}`, grid: true, nice: true },
      color: { domain: ["promised", "measured"], range: ["#e69f00", "#2a8fd8"], legend: true },
      symbol: { domain: ["promised", "measured"], range: ["circle", "square"] },
      ariaLabel: "Promised and measured loss over the number of classes",
      marks: [
        Plot.ruleX([here], { stroke: "currentColor", strokeDasharray: "3 3", strokeOpacity: 0.7 }),
        Plot.line(rows, { x: "classes", y: "loss", z: "kind", stroke: "kind", strokeWidth: 1.6 }),
        Plot.dot(rows, {
          x: "classes",
          y: "loss",
          fill: "kind",
          symbol: "kind",
          r: (row) => (row.classes === here ? 5 : 2.4),
          tip: true,
          channels: { classes: "classes" },
        }),
        Plot.ruleY([0]),
      ],
    });
    this.chart.replaceChildren(chart);
  }
}
