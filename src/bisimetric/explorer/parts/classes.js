// Aggregated states: a slider for the threshold, and the regret of the aggregated MDP.
import * as Plot from "./charts.js";
import { describeChart, formatCode, createElement } from "./elements.js";
import { SINGLETON_COLOUR, assignClassColours } from "./class_colours.js";
import { StateMap } from "./map.js";
import { pluralise, formatNumber, decodeUint16, formatCount } from "./numbers.js";
import { PALETTE, createMarkEntries, createSwatch } from "./scales.js";
import { createTerm } from "./tooltips.js";

const UNKNOWN_CLASS = 65_535;
const REGRETS = { bound: ["#b87700", "circle"], realised: ["#2a8fd8", "square"] };

export class ClassesView {
  // `initialStep`: of the slider; null is in the middle.
  constructor(host, page, initialStep) {
    this.page = page;
    this.initialStep = initialStep;
    const holder = createElement("div", { class: "map-holder" });
    this.range = createElement("input", {
      type: "range",
      id: "threshold",
      min: 0,
      value: 0,
      "aria-label": "threshold",
      oninput: () => {
        this.paint();
        page.save();
      },
    });
    this.facts = createElement("dl", { class: "facts" });
    this.chart = createElement("div", { class: "sum" });
    this.note = createElement("p", { class: "quiet" });
    host.append(
      createElement(
        "div",
        { class: "two" },
        createElement(
          "section",
          { class: "card", "aria-label": "classes" },
          createElement("h2", {}, "Aggregated states"),
          holder,
          createElement(
            "p",
            { class: "legend" },
            createSwatch(SINGLETON_COLOUR, "singleton class"),
            ...createMarkEntries(page.data),
            createElement(
              "span",
              {},
              ...formatCode(
                "Numbers are those of `bisimetric uses aggregate`. Colours repeat, but not between neighbours. Hover over a state to highlight its class.",
              ),
            ),
          ),
        ),
        createElement(
          "section",
          { class: "card", "aria-label": "threshold" },
          createElement("label", { for: "threshold" }, createTerm("threshold")),
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
      page.createHandlers(
        () => [this.d],
        (s) => this.hoverState(s),
      ),
      "Classes",
    );
    this.labels = new Map();
  }

  get d() {
    return this.page.distances[this.page.selection.distance];
  }

  // The map to save.
  listDrawings() {
    const { numClasses } = this.d.aggregation.thresholds[Number(this.range.value)];
    const title = `Aggregated states: ${pluralise(numClasses, "class", "classes")}`;
    return [{ map: this.map, title, scale: null }];
  }

  // The class of each state at a step of the slider.
  classes(step) {
    const { aggregation } = this.d;
    if (!this.labels.has(this.d)) this.labels.set(this.d, decodeUint16(aggregation.labels));
    const n = this.page.data.names.length;
    return this.labels.get(this.d).subarray(step * n, (step + 1) * n);
  }

  // The states in the class of a state.
  findClassMembers(state) {
    const labels = this.classes(Number(this.range.value));
    if (labels[state] === UNKNOWN_CLASS) return null;
    return new Set([...labels.keys()].filter((t) => labels[t] === labels[state]));
  }

  // Describe the class of a state.
  describeState(state) {
    const members = this.findClassMembers(state);
    if (!members) return ["unknown"];
    return [
      members.size === 1 ? "singleton class" : `in a class of ${pluralise(members.size, "state")}`,
    ];
  }

  hoverState(state) {
    if (state !== this.hovered) {
      this.hovered = state;
      this.map.paint(...this.lastPaint, state === null ? null : this.findClassMembers(state));
    }
    return state === null ? [] : this.describeState(state);
  }

  paint(changes) {
    const { aggregation } = this.d;
    const { first, second } = this.page.selection;
    this.range.max = String(aggregation.thresholds.length - 1);
    if (!this.lastPaint || (changes && "distance" in changes)) {
      this.range.value = String(
        this.initialStep ?? Math.floor((aggregation.thresholds.length - 1) / 2),
      );
      this.initialStep = null;
    }
    const index = Number(this.range.value);
    const labels = this.classes(index);
    const sizes = new Map();
    labels.forEach((label) => sizes.set(label, (sizes.get(label) ?? 0) + 1));
    const isKnown = (label) => label !== UNKNOWN_CLASS;
    const chosen = assignClassColours(this.map.layout, labels, sizes, isKnown);
    const colour = (label) => (chosen.has(label) ? PALETTE[chosen.get(label)] : SINGLETON_COLOUR);
    this.lastPaint = [
      Array.from(labels, colour),
      Array.from(labels, (label) => String(label)),
      this.d.unknown,
    ];
    // Keyboard users see the class of the current state highlighted.
    const usesKeys = changes && this.map.svg.matches(":focus-visible");
    this.map.paint(...this.lastPaint, usesKeys ? this.findClassMembers(second ?? first) : null);
    this.map.select(first, second);
    if (changes && !("distance" in changes)) return;
    this.showFacts(aggregation.thresholds[index], labels.length - this.d.unknown.size);
    this.draw(index);
  }

  // The numbers of a step of the slider.
  showFacts(step, states) {
    const { aggregation } = this.d;
    const classes = pluralise(step.numClasses, "class", "classes");
    this.range.setAttribute("aria-valuetext", `${formatNumber(step.radius, 4)}, ${classes}`);
    const rows = [
      ["threshold", "threshold", formatNumber(step.radius, 5), "radius"],
      [
        "classes",
        "class",
        `${formatCount(step.numClasses)} of ${pluralise(states, "state")}`,
        "classes",
      ],
      [
        "regret bound",
        "bound",
        step.regretBound === null ? "no bound" : `at most ${formatNumber(step.regretBound, 4)}`,
        "bound",
      ],
      [
        "realised regret",
        "realised",
        step.regret === null ? "unknown" : formatNumber(step.regret, 4),
        "regret",
      ],
    ];
    this.facts.replaceChildren(
      ...rows.flatMap(([words, key, text, id]) => [
        createElement("dt", {}, createTerm(words, key)),
        createElement("dd", { id }, text),
      ]),
    );
    const vacuousNote =
      step.regretBound !== null &&
      aggregation.diameterBound &&
      step.regretBound >= aggregation.diameterBound * (1 - 1e-9)
        ? `The bound is vacuous here: no policy has more regret than ${formatNumber(aggregation.diameterBound, 4)}.`
        : null;
    this.note.replaceChildren(
      ...formatCode([aggregation.regretNote, vacuousNote].filter(Boolean).join(" ")),
    );
  }

  // Regret over the number of classes.
  draw(index) {
    const { aggregation } = this.d;
    const rows = Object.entries({ bound: "regretBound", realised: "regret" }).flatMap(
      ([kind, key]) =>
        aggregation.thresholds
          .filter((step) => step[key] !== null)
          .map((step) => ({ classes: step.numClasses, regret: step[key], kind })),
    );
    if (aggregation.thresholds.length < 2 || !rows.length) return this.chart.replaceChildren();
    const kinds = [...new Set(rows.map((row) => row.kind))];
    const maxClasses = aggregation.thresholds[0].numClasses;
    const here = aggregation.thresholds[index].numClasses;
    const chart = Plot.plot({
      width: Math.max(280, this.chart.clientWidth),
      height: 230,
      marginLeft: 48,
      marginBottom: 38,
      style: { background: "none", fontSize: "12px" },
      x: {
        label: "classes",
        type: maxClasses > 60 ? "log" : "linear",
        ticks: Math.min(6, maxClasses - 1),
        tickFormat: "d",
      },
      y: {
        label: `regret of ${aggregation.valueName}`,
        grid: true,
        nice: true,
        domain: [0, Math.max(...rows.map((row) => row.regret)) || 1],
      },
      color: { domain: kinds, range: kinds.map((kind) => REGRETS[kind][0]), legend: true },
      symbol: { domain: kinds, range: kinds.map((kind) => REGRETS[kind][1]) },
      marks: [
        Plot.ruleX([here], { stroke: "currentColor", strokeDasharray: "3 3", strokeOpacity: 0.7 }),
        Plot.line(rows, { x: "classes", y: "regret", z: "kind", stroke: "kind", strokeWidth: 1.6 }),
        Plot.dot(rows, {
          x: "classes",
          y: "regret",
          fill: "kind",
          symbol: "kind",
          r: (row) => (row.classes === here ? 5 : 2.4),
          tip: true,
          channels: { classes: "classes" },
        }),
        Plot.ruleY([0]),
      ],
    });
    const { numClasses, regret, regretBound } = aggregation.thresholds[index];
    const say = (words, number) => (number === null ? "" : `, ${words} ${formatNumber(number, 4)}`);
    const summary = `Regret over the number of classes, from 1 to ${maxClasses}; at ${pluralise(numClasses, "class", "classes")}${say("regret bound", regretBound)}${say("realised regret", regret)}.`;
    this.chart.replaceChildren(describeChart(chart, summary));
  }
}
