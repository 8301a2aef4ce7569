// The explanation of a distance: heading, steps, sum and sentences.
import { createCopyButton } from "./clipboard.js";
import { createExplainCommand } from "./commands.js";
import { createChip, formatCode, createElement, createName } from "./elements.js";
import { formatNumber, createNumberFormat } from "./numbers.js";
import { describeExplanation } from "./sentences.js";
import { createMatchTable, SHOWN_STEPS, createStepTable } from "./step_tables.js";
import { createTerm } from "./tooltips.js";

const SHOWN_NEIGHBOURS = 6;
const STEP_MILLISECONDS = 450; // per step of the animation

export class ExplanationPanel {
  // `show(explanation, step)` draws a step on the map; `chart(host, panel, step)` its sum, or is null;
  // `announce(text)` is for screen readers.
  constructor(host, data, selection, { show, announce, chart = null }) {
    this.host = host;
    this.data = data;
    this.selection = selection;
    this.show = show;
    this.chart = chart;
    this.announce = announce;
    this.playing = null;
  }

  name(state) {
    return this.data.names[state];
  }

  paint(d) {
    this.stop();
    this.d = d;
    const { first, second } = this.selection;
    const hadFocus = this.host.contains(document.activeElement);
    this.host.replaceChildren();
    this.explanation = null;
    if (second === null) {
      this.show(null, 0);
      this.host.append(...this.createNeighbourLists(first));
      return;
    }
    this.host.append(...this.createHeading(first, second));
    // A button of the lists, which are gone, had it.
    if (hadFocus) this.host.querySelector("h2").focus();
    if (!d.has(first, second)) return this.showMessage("One of the two states is unknown.");
    this.command = this.createCommand(first, second);
    if (d.transitions === null) return this.showMessage(d.noTransitions, this.command);
    this.explanation = d.explain(first, second);
    const isSame = [d, first, second].every((part, i) => part === this.explained?.[i]);
    if (!isSame) this.step = this.getInitialStep();
    this.explained = [d, first, second];
    if (this.explanation.steps.length) this.host.append(this.createStepper(), this.createBody());
    for (const sentence of describeExplanation(this))
      this.host.append(createElement("p", {}, sentence));
    this.host.append(this.command ?? "");
    this.goTo(this.step);
  }

  // The end of a path, or the first coupling, which adds up to the distance.
  getInitialStep() {
    const { steps } = this.explanation;
    return steps.length && steps[0].coupling.length ? 0 : Math.min(steps.length, SHOWN_STEPS);
  }

  // The command that prints the explanation of a pair, with a button that copies it.
  createCommand(first, second) {
    const command = createExplainCommand(this.d, first, second);
    if (command === null) return null;
    const code = createElement("code", { tabindex: 0, "aria-label": "command" }, command);
    const copy = createCopyButton("copy", {
      name: "copy-command",
      getText: () => {
        // Selected, for browsers that do not allow pages to copy.
        window.getSelection().selectAllChildren(code);
        return command;
      },
      announce: this.announce,
      what: "command",
      failed: "selected",
    });
    return createElement("div", { class: "command" }, code, copy);
  }

  showMessage(words, more = null) {
    this.show(null, 0);
    this.host.append(createElement("p", { class: "quiet" }, ...formatCode(words)), more ?? "");
  }

  createHeading(first, second) {
    const { d } = this;
    const is = d.isLowerBound(first, second) ? "≥" : "=";
    return [
      createElement(
        "h2",
        { class: "pair", tabindex: -1 },
        createChip(this.name(first), "first"),
        createChip(this.name(second), "second"),
        createElement(
          "span",
          { class: "number", id: "distance" },
          d.has(first, second)
            ? `${d.symbol} ${is} ${formatNumber(d.at(first, second))}`
            : "unknown",
        ),
      ),
      createElement("p", { class: "quiet" }, ...this.describeAccuracy(first, second)),
    ];
  }

  describeAccuracy(first, second) {
    const { d } = this;
    if (d.isLowerBound(first, second)) return ["a ", createTerm("lower bound")];
    if (d.isDetermined) return [createTerm("proven"), ` to ${formatNumber(d.pairError ?? 0, 2)}`];
    return d.accuracy.startsWith("proven")
      ? [createTerm("proven"), d.accuracy.slice(6)]
      : [d.accuracy];
  }

  // Without a second state: buttons that select the nearest and the farthest ones.
  createNeighbourLists(first) {
    const { d } = this;
    const heading = createElement(
      "h2",
      { class: "pair" },
      createElement("span", {}, "from"),
      createChip(this.name(first), "first"),
    );
    const createMessage = (words) => createElement("p", { class: "quiet" }, words);
    if (!d.has(first, first)) return [heading, createMessage("This state is unknown.")];
    const row = d.matrix.row(first);
    const order = [...row.keys()]
      .filter((t) => t !== first && d.has(first, t))
      .sort((s, t) => row[s] - row[t] || s - t);
    if (!order.length)
      return [heading, createMessage("There is no other state to compare it with.")];
    // Few states: none is in both lists.
    const near = Math.min(SHOWN_NEIGHBOURS, Math.ceil(order.length / 2));
    const far = Math.min(SHOWN_NEIGHBOURS, order.length - near);
    return [
      heading,
      createMessage("Select a second state to see the explanation of the distance."),
      createElement(
        "div",
        { class: "halves" },
        this.createList(
          order.length > 1 ? "nearest" : "the only other state",
          order.slice(0, near),
          row,
        ),
        far ? this.createList("farthest", order.slice(-far).reverse(), row) : null,
      ),
    ];
  }

  createList(title, states, row) {
    const { first } = this.selection;
    const formatDistance = createNumberFormat(this.d.matrix.largest);
    const choice = (t) =>
      createElement(
        "button",
        { type: "button", onclick: () => this.selection.selectPair(first, t) },
        createName(this.name(t)),
        createElement(
          "span",
          { class: "number" },
          (this.d.isLowerBound(first, t) ? "≥ " : "") + formatDistance(row[t]),
        ),
      );
    return createElement(
      "div",
      {},
      createElement("h3", {}, title),
      createElement(
        "ol",
        { class: "neighbours" },
        ...states.map((t) => createElement("li", {}, choice(t))),
      ),
    );
  }

  createStepper() {
    const last = this.explanation.steps.length;
    const button = (words, label, step) =>
      createElement(
        "button",
        { type: "button", "aria-label": label, onclick: () => this.goTo(step()) },
        words,
      );
    this.range = createElement("input", {
      type: "range",
      min: 0,
      max: last,
      value: last,
      "aria-label": "step",
      oninput: () => this.goTo(Number(this.range.value)),
    });
    this.play = createElement(
      "button",
      { type: "button", class: "play", onclick: () => (this.playing ? this.stop() : this.start()) },
      "▶ play",
    );
    this.position = createElement("output", { "aria-live": "off" });
    return createElement(
      "div",
      { class: "stepper" },
      button("◀", "one step back", () => Math.max(0, this.step - 1)),
      this.range,
      button("▶", "one step forward", () => Math.min(last, this.step + 1)),
      this.play,
      this.position,
    );
  }

  start() {
    if (this.step === this.explanation.steps.length) this.goTo(0);
    this.play.textContent = "❚❚ pause";
    this.playing = setInterval(() => {
      this.goTo(this.step + 1, true);
      this.announce(this.describeStep());
      if (this.step === this.explanation.steps.length) this.stop();
    }, STEP_MILLISECONDS);
  }

  describeStep() {
    const { steps } = this.explanation;
    const sum = steps.slice(0, this.step).reduce((total, each) => total + each.contribution, 0);
    return `step ${this.step} of ${steps.length}, sum ${formatNumber(sum, 4)}`;
  }

  stop() {
    clearInterval(this.playing);
    this.playing = null;
    if (this.play) this.play.textContent = "▶ play";
  }

  goTo(step, isPlayed = false) {
    if (!isPlayed) this.stop();
    this.step = step;
    this.show(this.explanation, step);
    if (!this.explanation.steps.length) return;
    this.range.value = step;
    this.position.textContent = `step ${step} of ${this.explanation.steps.length}`;
    for (const row of this.host.querySelectorAll("tr[data-step]"))
      row.classList.toggle("current", Number(row.dataset.step) === step - 1);
    this.matches?.replaceChildren(
      createMatchTable(
        this,
        this.explanation.steps[Math.min(step, this.explanation.steps.length - 1)],
      ),
    );
    this.chart?.(this.sum, this, step);
  }

  createBody() {
    this.sum = createElement("div", { class: "sum" });
    const isStochastic = this.explanation.steps[0].coupling.length > 0;
    this.matches = isStochastic ? createElement("div", { class: "scroll" }) : null;
    return createElement("div", {}, this.sum, isStochastic ? this.matches : createStepTable(this));
  }
}

// The last states of both paths up to a step, of which earlier lines would overlap, and the matches of
// the next step.
export function listPathStates(explanation, step) {
  if (!explanation || !explanation.steps.length) return [[], [], []];
  const { steps } = explanation;
  const all = [...steps.map((each) => each.states), steps[steps.length - 1].nextStates];
  const pairs = all.slice(Math.max(0, step - SHOWN_STEPS), step + 1);
  const coupling = steps[Math.min(step, steps.length - 1)].coupling.filter(
    ({ states }) => states[0] !== states[1],
  );
  return [pairs.map((pair) => pair[0]), pairs.map((pair) => pair[1]), coupling];
}
