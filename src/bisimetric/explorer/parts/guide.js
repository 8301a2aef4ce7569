// A guide for the first visit: a striking pair of states and its explanation, in three steps.
import { createChip, createElement } from "./elements.js";
import { formatNumber } from "./numbers.js";

const MIN_STRIKING_FRACTION = 0.3; // of the largest distance, between neighbouring cells
const MAX_CANDIDATES = 20; // that are explained until one has steps
const STORED = "bisimetric-guide";

/**
 * Neighbouring cells at a large distance; or, where there are none, the states that differ most.
 * @param {import("./explanation.js").PageDistance} d
 * @param {import("./state_layout.js").StateLayout} layout
 * @returns {{ pair: [number, number], isAdjacent: boolean } | null}
 */
export function findStrikingPair(d, layout) {
  if (!(d.matrix.largest > (d.error ?? 0))) return null;
  const isShown = ([s, t]) => d.has(s, t) && d.at(s, t) > 0 && !d.isLowerBound(s, t);
  const isExplained = ([s, t]) => {
    if (!d.transitions) return true;
    const { steps, outsidePair } = d.explain(s, t);
    return steps.length > 0 && !outsidePair;
  };
  const select = (pairs) =>
    pairs
      .filter(isShown)
      .sort((one, two) => d.at(two[0], two[1]) - d.at(one[0], one[1]))
      .slice(0, MAX_CANDIDATES)
      .find(isExplained) ?? null;
  const isBeside = ([s, t]) =>
    Math.abs(layout.x[s] - layout.x[t]) + Math.abs(layout.y[s] - layout.y[t]) < 1.5;
  const beside = layout.hasCells ? select(layout.listAdjacentPairs().filter(isBeside)) : null;
  if (beside && d.at(beside[0], beside[1]) >= MIN_STRIKING_FRACTION * d.matrix.largest)
    return { pair: beside, isAdjacent: true };
  const pair = select(listFarthest(d));
  return pair && { pair, isAdjacent: false };
}

// The pairs of some states with the state that is farthest from each.
function listFarthest(d) {
  const found = [];
  for (let s = 0; s < d.matrix.n; s++) {
    let farthest = 0;
    for (let t = 0; t < d.matrix.n; t++)
      if (d.has(s, t) && d.at(s, t) > d.at(s, farthest)) farthest = t;
    found.push([s, farthest]);
  }
  return found;
}

export class Guide {
  // `view`: that of distances; `onEnd()` is called when the guide is done or skipped.
  constructor({ data, selection, announce }, view, onEnd) {
    this.onEnd = onEnd;
    this.selection = selection;
    this.announce = announce;
    this.view = view;
    this.names = data.names;
    this.isSelecting = false;
    this.text = createElement("p", { id: "guide-text" });
    this.position = createElement("span", { class: "quiet" });
    const button = (words, onclick) => createElement("button", { type: "button", onclick }, words);
    this.skip = button("skip", () => this.end());
    this.back = button("back", () => this.goTo(this.step - 1));
    this.next = button("next", () =>
      this.step < this.last ? this.goTo(this.step + 1) : this.end(),
    );
    this.element = createElement(
      "section",
      { class: "card guide", "aria-label": "guide", hidden: true },
      this.text,
      createElement(
        "div",
        { class: "guide-buttons" },
        this.position,
        this.skip,
        this.back,
        this.next,
      ),
    );
    this.element.addEventListener("keydown", (event) => event.key === "Escape" && this.end());
    // A person who selects a state needs no guide.
    selection.listen(() => !this.isSelecting && this.isShown && this.end());
  }

  get isShown() {
    return !this.element.hidden;
  }

  // Start, if there is a pair to show; return whether there is.
  start() {
    this.found = findStrikingPair(this.view.d, this.view.map.layout);
    if (!this.found) return false;
    this.last = this.view.d.transitions ? 2 : 1;
    this.element.hidden = false;
    this.goTo(0);
    return true;
  }

  goTo(step) {
    this.step = step;
    const [first, second] = this.found.pair;
    this.isSelecting = true;
    if (step === 0) this.selection.set({ first, second: null, hasSource: false, hasSecond: false });
    else if (this.selection.second !== second) {
      this.selection.set({ first, second, hasSource: true });
      this.selection.hasSecond = true; // without scrolling to the explanation, away from the guide
    }
    this.isSelecting = false;
    const panel = this.view.explanationPanel;
    if (step && panel.explanation?.steps.length)
      panel.goTo(step === 1 ? 0 : panel.getInitialStep());
    this.text.replaceChildren(...this.describe(step));
    this.position.textContent = `${step + 1} of ${this.last + 1}`;
    this.back.hidden = step === 0;
    this.skip.hidden = step === this.last;
    if (step === 2) this.view.revealExplanation();
    this.next.textContent = step < this.last ? "next" : "done";
    this.announce(this.text.textContent);
  }

  describe(step) {
    const { d } = this.view;
    const { pair, isAdjacent } = this.found;
    const [one, two] = pair.map((s, i) => createChip(this.names[s], i ? "second" : "first"));
    if (step === 0)
      return [
        "Each colour is the distance of a state from ",
        one,
        ": how differently the two behave. Dark is near, bright is far, and white is distance 0.",
      ];
    const distance = d.at(pair[0], pair[1]);
    if (step === 1)
      return [
        one,
        " and ",
        two,
        isAdjacent ? " are neighbours on the map and behave differently:" : " differ most:",
        ` their distance is ${formatNumber(distance, 4)}`,
        distance < d.matrix.largest
          ? `, ${formatNumber((100 * distance) / d.matrix.largest, 2)}% of the largest.`
          : ", the largest of all.",
      ];
    return [
      d.transitions.deterministic
        ? "The explanation shows why: from both states the paths on the map are followed, and the reward gaps along them, discounted, add up to the distance. "
        : "The explanation shows why: the reward gap, and the discounted distances of the matched successors, add up to the distance. ",
      "“Play” shows it step by step. Then click any two states.",
    ];
  }

  end() {
    if (this.element.contains(document.activeElement))
      this.view.map.svg.focus({ preventScroll: true });
    this.element.hidden = true;
    try {
      window.localStorage.setItem(STORED, "off");
    } catch {
      // A browser without storage for this page shows the guide again.
    }
    this.onEnd();
  }

  // Whether this browser has shown the guide to its end.
  static isOff() {
    try {
      return window.localStorage.getItem(STORED) === "off";
    } catch {
      return false;
    }
  }
}
