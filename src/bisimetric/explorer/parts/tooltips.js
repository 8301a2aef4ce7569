// Explanations of terms, and the tooltip of a page.
import { createElement } from "./elements.js";

const TERMS = {
  state: "A state of the MDP: here a cell of the map, or a point.",
  distance:
    "How differently two states behave: 0 if no sequence of actions distinguishes them. It bounds how far their values can differ.",
  "bisimulation distance":
    "The maximum over actions of the reward gap plus the discounted distance of the successors. It bounds the difference of optimal values.",
  "on-policy distance":
    "Compares two states under one policy. It bounds how far their values under that policy differ.",
  "lax bisimulation distance":
    "Like the bisimulation distance, but each action may be matched with a different one. Never larger, and still a bound on the optimal values.",
  "MICo distance":
    "Compares two states under one policy, with independent next states. The distance of a state to itself need not be 0.",
  "reduced MICo distance":
    "MICo less the mean of the two self-distances. Its square root is a metric; it does not bound differences of values.",
  discount: "The discount factor, between 0 and 1: a reward k steps ahead counts discount^k.",
  value:
    "The expected discounted return from a state: V* under an optimal policy, V^π under a given one.",
  "agent's value": "The agent's estimate of the discounted return from a frame.",
  "reward gap": "The difference of the rewards in this step.",
  contribution:
    "What this step contributes to the distance: its reward gap times discount^k in step k.",
  coupling:
    "For stochastic transitions: the optimal transport plan between the two distributions of successors.",
  mass: "The probability of this pair in the coupling.",
  proven: "A proven bound on the error, rounding included.",
  threshold: "No two states of one class are farther apart than this.",
  class: "States that the aggregated MDP treats as one.",
  bound: "A proven bound on the regret, in any state, of the policy of the aggregated MDP.",
  realised: "The largest regret, over all states, of the policy of the aggregated MDP.",
  stress:
    "How badly the points reproduce the distances: 0 is perfect; 1 is all states on one point.",
  goal: "A state that pays the largest reward whenever it is entered.",
  absorbing: "A state that no action leaves and where no action pays, such as a hole.",
  heading: "The direction in which the agent looks; the four cells of a place are outlined.",
  stand: "Where the passenger waits, and the destination.",
  unknown: "The data never visited this state, so its distances are unknown.",
  "lower bound": "The true distance may be larger: not all transitions were observed.",
  difference: "The second distance minus the first.",
};

// A term whose explanation shows on hover, focus and touch.
export function createTerm(word, key = word) {
  return createElement("span", { class: "term", tabindex: 0, "data-term": key }, word);
}

// One tooltip for the whole page.
export class Tooltip {
  constructor(host) {
    this.box = createElement("div", {
      class: "tooltip",
      role: "tooltip",
      id: "tooltip",
      hidden: true,
    });
    host.append(this.box);
    const showTerm = (event) => {
      const word = event.target.closest?.("[data-term]");
      if (word) this.explain(word);
    };
    const hideTerm = (event) => event.target.closest?.("[data-term]") && this.hide();
    document.addEventListener("pointerover", showTerm);
    document.addEventListener("focusin", showTerm);
    document.addEventListener("pointerout", hideTerm);
    document.addEventListener("focusout", hideTerm);
    document.addEventListener("keydown", (event) => event.key === "Escape" && this.hide());
    window.addEventListener("scroll", () => this.follow(), { capture: true, passive: true });
  }

  // Explain a term below its word.
  explain(word) {
    const { left, bottom } = word.getBoundingClientRect();
    this.show([TERMS[word.dataset.term]], left, bottom + 4);
    word.setAttribute("aria-describedby", "tooltip");
    this.word = word;
  }

  // Follow the word when the page scrolls; the state under the pointer changes, so hide its tooltip.
  follow() {
    if (!this.word) return this.hide();
    const { top, bottom } = this.word.getBoundingClientRect();
    if (bottom < 0 || top > window.innerHeight) this.hide();
    else this.explain(this.word);
  }

  // Show lines of text or nodes near a position, inside the window.
  show(lines, x, y) {
    this.hide();
    this.box.replaceChildren(...lines.map((line) => createElement("div", {}, line)));
    this.box.hidden = false;
    const { width, height } = this.box.getBoundingClientRect();
    const [right, bottom] = [document.documentElement.clientWidth, window.innerHeight];
    this.box.style.left = `${Math.max(6, Math.min(x, right - width - 6))}px`;
    this.box.style.top = `${y + height + 6 > bottom ? Math.max(6, y - height - 28) : y}px`;
  }

  hide() {
    this.box.hidden = true;
    this.word?.removeAttribute("aria-describedby");
    this.word = null;
  }
}
