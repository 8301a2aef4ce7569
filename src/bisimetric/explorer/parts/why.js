// Why two states are as far apart as they are, in words, steps and sums.
import { chip, coded, element, named } from "./elements.js";
import { digits, format } from "./numbers.js";
import { sentences } from "./sentences.js";
import { matchTable, SHOWN_STEPS, stepTable } from "./steps.js";
import { term } from "./tips.js";

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
    // Of a path all that the table has; of couplings the first, which adds up to the distance.
    const { steps } = this.reasons;
    this.step = steps.length && steps[0].coupling.length ? 0 : Math.min(steps.length, SHOWN_STEPS);
    if (this.reasons.steps.length) this.host.append(this.stepper(), this.body());
    for (const sentence of sentences(this)) this.host.append(element("p", {}, sentence));
    this.go(this.step);
  }

  silent(words) {
    this.show(null, 0);
    this.host.append(element("p", { class: "quiet" }, ...coded(words)));
  }

  heading(first, second) {
    const { d } = this;
    const is = d.isBelow(first, second) ? "≥" : "=";
    return [
      element(
        "h2",
        { class: "pair" },
        chip(this.name(first), "first"),
        chip(this.name(second), "second"),
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
    const heading = element(
      "h2",
      { class: "pair" },
      element("span", {}, "from"),
      chip(this.name(first), "first"),
    );
    const said = (words) => element("p", { class: "quiet" }, words);
    if (!d.has(first, first)) return [heading, said("Nothing is known of this state.")];
    const row = d.table.row(first);
    const order = [...row.keys()]
      .filter((t) => t !== first && d.has(first, t))
      .sort((s, t) => row[s] - row[t] || s - t);
    if (!order.length) return [heading, said("There is no other state to compare it with.")];
    // Each state in one list, also where there are few.
    const near = Math.min(SHOWN_NEIGHBOURS, Math.ceil(order.length / 2));
    const far = Math.min(SHOWN_NEIGHBOURS, order.length - near);
    return [
      heading,
      said("Pick a second state to see why it is as far away as it is."),
      element(
        "div",
        { class: "halves" },
        this.list(order.length > 1 ? "nearest" : "the only other one", order.slice(0, near), row),
        far ? this.list("farthest", order.slice(-far).reverse(), row) : null,
      ),
    ];
  }

  list(title, states, row) {
    const { first } = this.selection;
    const written = format(this.d.table.largest);
    const choice = (t) =>
      element(
        "button",
        { type: "button", onclick: () => this.selection.choose(first, t) },
        named(this.name(t)),
        element(
          "span",
          { class: "number" },
          (this.d.isBelow(first, t) ? "≥ " : "") + written(row[t]),
        ),
      );
    return element(
      "div",
      {},
      element("h3", {}, title),
      element("ol", { class: "near" }, ...states.map((t) => element("li", {}, choice(t)))),
    );
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

// The states that the two have been in up to a step, but not long before it, where lines would only
// cover each other; and the matches of the step that follows.
export function walked(reasons, step) {
  if (!reasons || !reasons.steps.length) return [[], [], []];
  const { steps } = reasons;
  const all = [...steps.map((each) => each.states), steps[steps.length - 1].after];
  const pairs = all.slice(Math.max(0, step - SHOWN_STEPS), step + 1);
  const coupling = steps[Math.min(step, steps.length - 1)].coupling.filter(
    ({ states }) => states[0] !== states[1],
  );
  return [pairs.map((pair) => pair[0]), pairs.map((pair) => pair[1]), coupling];
}
