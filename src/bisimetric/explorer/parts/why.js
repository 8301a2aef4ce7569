// Why two states are as far apart as they are, in words, steps and sums.
import { element, term } from "./elements.js";
import { digits, format } from "./numbers.js";
import { sentences } from "./sentences.js";
import { matchTable, stepTable } from "./steps.js";

const SHOWN_NEIGHBOURS = 6;
const PACE = 450; // milliseconds of a step that is played

export class Why {
  // `show(reasons, step)` draws a step on the map; `chart(host, why, step)` draws its sum, or is null.
  constructor(host, data, selection, { show, chart = null }) {
    Object.assign(this, { host, data, selection, show, chart, playing: null });
  }

  name(state) {
    return this.data.names[state];
  }

  paint(d) {
    this.stop();
    this.d = d;
    const { first, second } = this.selection;
    this.host.replaceChildren();
    this.reasons = null;
    if (second === null) {
      this.show(null, 0);
      this.host.append(...this.neighbours(first));
      return;
    }
    this.host.append(...this.heading(first, second));
    if (!d.has(first, second)) return this.silent("Nothing is known of one of the two states.");
    if (d.steps === null) return this.silent(d.noSteps);
    this.reasons = d.explain(first, second);
    // Of a path all of it; of couplings the first, which adds up to the distance.
    const { steps } = this.reasons;
    this.step = steps.length && steps[0].coupling.length ? 0 : steps.length;
    if (this.reasons.steps.length) this.host.append(this.stepper(), this.body());
    for (const sentence of sentences(this)) this.host.append(element("p", {}, sentence));
    this.go(this.step);
  }

  silent(words) {
    this.show(null, 0);
    this.host.append(element("p", { class: "quiet" }, words));
  }

  heading(first, second) {
    const { d } = this;
    const is = d.isBelow(first, second) ? "≥" : "=";
    return [
      element(
        "h2",
        { class: "pair" },
        element("span", { class: "chip first" }, this.name(first)),
        element("span", { class: "chip second" }, this.name(second)),
        element(
          "span",
          { class: "number", id: "distance" },
          d.has(first, second) ? `${d.symbol} ${is} ${digits(d.at(first, second))}` : "not known",
        ),
      ),
      element("p", { class: "quiet" }, ...this.sure(first, second)),
    ];
  }

  sure(first, second) {
    const { d } = this;
    if (d.isBelow(first, second)) return ["a ", term("lower bound")];
    if (d.isDetermined) return [term("proven"), ` to ${digits(d.pairError ?? 0, 2)}`];
    return d.sure.startsWith("proven") ? [term("proven"), d.sure.slice(6)] : [d.sure];
  }

  // Without a second state: the nearest and the farthest ones, to be picked.
  neighbours(first) {
    const { d } = this;
    const row = d.table.row(first);
    const order = [...row.keys()]
      .filter((t) => t !== first && d.has(first, t))
      .sort((s, t) => row[s] - row[t] || s - t);
    const written = format(d.table.largest);
    const list = (title, states) =>
      element(
        "div",
        {},
        element("h3", {}, title),
        element(
          "ol",
          { class: "near" },
          ...states.map((t) =>
            element(
              "li",
              {},
              element(
                "button",
                { type: "button", onclick: () => this.selection.choose(first, t) },
                element("span", { class: "name" }, this.name(t)),
                element(
                  "span",
                  { class: "number" },
                  (d.isBelow(first, t) ? "≥ " : "") + written(row[t]),
                ),
              ),
            ),
          ),
        ),
      );
    const heading = element(
      "h2",
      { class: "pair" },
      element("span", {}, "from"),
      element("span", { class: "chip first" }, this.name(first)),
    );
    if (!d.has(first, first))
      return [heading, element("p", { class: "quiet" }, "Nothing is known of this state.")];
    if (!order.length)
      return [
        heading,
        element("p", { class: "quiet" }, "There is no other state to compare it with."),
      ];
    return [
      heading,
      element(
        "p",
        { class: "quiet" },
        "Pick a second state to see why it is as far away as it is.",
      ),
      element(
        "div",
        { class: "halves" },
        list("nearest", order.slice(0, SHOWN_NEIGHBOURS)),
        list("farthest", order.slice(-SHOWN_NEIGHBOURS).reverse()),
      ),
    ];
  }

  stepper() {
    const last = this.reasons.steps.length;
    const button = (words, label, step) =>
      element(
        "button",
        { type: "button", "aria-label": label, onclick: () => this.go(step()) },
        words,
      );
    this.range = element("input", {
      type: "range",
      min: 0,
      max: last,
      value: last,
      "aria-label": "step",
      oninput: () => this.go(Number(this.range.value)),
    });
    this.play = element(
      "button",
      { type: "button", class: "play", onclick: () => (this.playing ? this.stop() : this.start()) },
      "▶ play",
    );
    this.at = element("output", {});
    return element(
      "div",
      { class: "stepper" },
      button("◀", "one step back", () => Math.max(0, this.step - 1)),
      this.range,
      button("▶", "one step on", () => Math.min(last, this.step + 1)),
      this.play,
      this.at,
    );
  }

  start() {
    if (this.step === this.reasons.steps.length) this.go(0);
    this.play.textContent = "❚❚ pause";
    this.playing = setInterval(() => {
      this.go(this.step + 1, true);
      if (this.step === this.reasons.steps.length) this.stop();
    }, PACE);
  }

  stop() {
    clearInterval(this.playing);
    this.playing = null;
    if (this.play) this.play.textContent = "▶ play";
  }

  go(step, played = false) {
    if (!played) this.stop();
    this.step = step;
    this.show(this.reasons, step);
    if (!this.reasons.steps.length) return;
    this.range.value = step;
    this.at.textContent = `step ${step} of ${this.reasons.steps.length}`;
    for (const row of this.host.querySelectorAll("tr[data-step]"))
      row.classList.toggle("on", Number(row.dataset.step) === step - 1);
    this.matches?.replaceChildren(
      matchTable(this, this.reasons.steps[Math.min(step, this.reasons.steps.length - 1)]),
    );
    this.chart?.(this.sum, this, step);
  }

  body() {
    this.sum = element("div", { class: "sum" });
    const branching = this.reasons.steps[0].coupling.length > 0;
    this.matches = branching ? element("div", { class: "scroll" }) : null;
    return element("div", {}, this.sum, branching ? this.matches : stepTable(this));
  }
}

// The states that the two have been in up to a step, and the matches of the one that follows.
export function walked(reasons, step) {
  if (!reasons || !reasons.steps.length) return [[], [], []];
  const { steps } = reasons;
  const pairs = [...steps.map((each) => each.states), steps[steps.length - 1].after].slice(
    0,
    step + 1,
  );
  const coupling = steps[Math.min(step, steps.length - 1)].coupling.filter(
    ({ states }) => states[0] !== states[1],
  );
  return [pairs.map((pair) => pair[0]), pairs.map((pair) => pair[1]), coupling];
}
