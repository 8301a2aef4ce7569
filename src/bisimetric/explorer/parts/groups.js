// States merged into classes: a slider for the threshold, and what the merged world loses.
import { coded, element } from "./elements.js";
import { StateMap } from "./map.js";
import { counted, digits, uint16s, whole } from "./numbers.js";
import { PALETTE, swatch } from "./scales.js";
import { term } from "./tips.js";

const NONE = 65_535;
const ALONE = "#f0f2f5";
const REGRETS = { bound: ["#e69f00", "circle"], realised: ["#2a8fd8", "square"] };

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
            swatch(ALONE, "alone in its class"),
            element(
              "span",
              {},
              ...coded(
                "Numbers are those of `bisimetric uses aggregate`. Twelve colours repeat, but not between neighbours. Point at a state to see its class by itself.",
              ),
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
        () => [this.d],
        (s) => this.hovered(s),
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

  // The states of a state's class, to be shown by themselves.
  kin(state) {
    const labels = this.classes(Number(this.range.value));
    if (labels[state] === NONE) return null;
    return new Set([...labels.keys()].filter((t) => labels[t] === labels[state]));
  }

  // What is to be said of a state.
  said(state) {
    const kin = this.kin(state);
    if (!kin) return ["not known"];
    return [kin.size === 1 ? "alone in its class" : `in a class of ${counted(kin.size, "state")}`];
  }

  hovered(state) {
    if (state !== this.pointed) {
      this.pointed = state;
      this.map.paint(...this.drawn, state === null ? null : this.kin(state));
    }
    return state === null ? [] : this.said(state);
  }

  paint(changes) {
    const { groups } = this.d;
    const { first, second } = this.page.selection;
    this.range.max = groups.steps.length - 1;
    if (!this.drawn || (changes && "table" in changes))
      this.range.value = Math.floor((groups.steps.length - 1) / 2);
    const at = Number(this.range.value);
    const labels = this.classes(at);
    const sizes = new Map();
    labels.forEach((label) => sizes.set(label, (sizes.get(label) ?? 0) + 1));
    const chosen = this.coloured(labels, sizes);
    const colour = (label) => (chosen.has(label) ? PALETTE[chosen.get(label)] : ALONE);
    this.drawn = [
      Array.from(labels, colour),
      Array.from(labels, (label) => String(label)),
      this.d.veiled,
    ];
    // Who walks by keys sees the class of where they are.
    const walking = changes && this.map.svg.matches(":focus-visible");
    this.map.paint(...this.drawn, walking ? this.kin(second ?? first) : null);
    this.map.select(first, second);
    if (changes && !("table" in changes)) return;
    this.tell(groups.steps[at], labels.length - this.d.veiled.size);
    this.draw(at);
  }

  // The numbers of a step of the slider.
  tell(step, states) {
    const { groups } = this.d;
    const classes = counted(step.classes, "class", "classes");
    this.range.setAttribute("aria-valuetext", `${digits(step.radius, 4)}, ${classes}`);
    const rows = [
      ["threshold", "threshold", digits(step.radius, 5), "radius"],
      ["classes", "class", `${whole(step.classes)} of ${counted(states, "state")}`, "classes"],
      [
        "regret bound",
        "bound",
        step.bound === null ? "no bound" : `at most ${digits(step.bound, 4)}`,
        "bound",
      ],
      [
        "realised regret",
        "realised",
        step.regret === null ? "not measured" : digits(step.regret, 4),
        "regret",
      ],
    ];
    this.facts.replaceChildren(
      ...rows.flatMap(([words, key, text, id]) => [
        element("dt", {}, term(words, key)),
        element("dd", { id }, text),
      ]),
    );
    const empty =
      step.bound !== null && groups.diameter && step.bound >= groups.diameter * (1 - 1e-9)
        ? `The bound is vacuous here: no policy has more regret than ${digits(groups.diameter, 4)}.`
        : null;
    this.note.replaceChildren(...coded([groups.unsaid, empty].filter(Boolean).join(" ")));
  }

  // The colour of each class of several states, as `views/class_colours.py` assigns them: the one
  // that the fewest neighbouring classes have, then the fewest classes, then the first.
  coloured(labels, sizes) {
    const beside = new Map();
    for (const [s, t] of this.map.places.borders()) {
      const [one, two] = [labels[s], labels[t]];
      if (one === two || sizes.get(one) === 1 || sizes.get(two) === 1) continue;
      for (const [here, there] of [
        [one, two],
        [two, one],
      ])
        beside.set(here, (beside.get(here) ?? new Set()).add(there));
    }
    const chosen = new Map();
    const uses = PALETTE.map(() => 0);
    labels.forEach((label) => {
      if (chosen.has(label) || label === NONE || sizes.get(label) === 1) return;
      const taken = PALETTE.map(() => 0);
      for (const other of beside.get(label) ?? [])
        if (chosen.has(other)) taken[chosen.get(other)]++;
      const order = [...PALETTE.keys()].sort(
        (a, b) => taken[a] - taken[b] || uses[a] - uses[b] || a - b,
      );
      chosen.set(label, order[0]);
      uses[order[0]]++;
    });
    return chosen;
  }

  // Regret over the number of classes.
  draw(at) {
    const { groups } = this.d;
    const rows = Object.entries({ bound: "bound", realised: "regret" }).flatMap(([kind, key]) =>
      groups.steps
        .filter((step) => step[key] !== null)
        .map((step) => ({ classes: step.classes, regret: step[key], kind })),
    );
    if (groups.steps.length < 2 || !rows.length) return this.chart.replaceChildren();
    const kinds = [...new Set(rows.map((row) => row.kind))];
    const most = groups.steps[0].classes;
    const here = groups.steps[at].classes;
    const chart = Plot.plot({
      width: Math.max(280, this.chart.clientWidth),
      height: 230,
      marginLeft: 48,
      marginBottom: 38,
      style: { background: "none", fontSize: "12px" },
      x: {
        label: "classes",
        type: most > 60 ? "log" : "linear",
        ticks: Math.min(6, most - 1),
        tickFormat: "d",
      },
      y: {
        label: `regret of ${groups.of}`,
        grid: true,
        nice: true,
        domain: [0, Math.max(...rows.map((row) => row.regret)) || 1],
      },
      color: { domain: kinds, range: kinds.map((kind) => REGRETS[kind][0]), legend: true },
      symbol: { domain: kinds, range: kinds.map((kind) => REGRETS[kind][1]) },
      ariaLabel: "Regret bound and realised regret over the number of classes",
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
    this.chart.replaceChildren(chart);
  }
}
