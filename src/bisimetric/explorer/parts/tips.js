// Words that are explained where they stand, and the one tooltip of a page.
import { element } from "./elements.js";

const TERMS = {
  state: "A state of the MDP: here a cell of the map, or a point.",
  distance:
    "How differently two states behave: 0 if no sequence of actions distinguishes them. It bounds how far their values can differ.",
  "bisimulation distance":
    "Compares two states action by action, now and after every step; the maximum over actions counts. It bounds the difference of optimal values.",
  "on-policy distance":
    "Compares two states under one policy, a fixed way to act. It bounds how far the values of that policy differ.",
  "lax bisimulation distance":
    "Like the bisimulation distance, but each state may answer with another action. Never larger, and still a bound on the optimal values.",
  "MICo distance":
    "Compares two states under one policy, with independent next states. The distance of a state to itself need not be 0.",
  discount:
    "How much the next step counts, between 0 and 1: a reward k steps ahead counts discount^k.",
  value:
    "The expected discounted return from a state: V* under an optimal policy, V^π under a given one.",
  worth: "The agent's estimate of the discounted return from a frame.",
  "reward gap": "The difference of the rewards in this step.",
  adds: "What this step adds to the distance: its reward gap, times the discount once for each step before.",
  coupling:
    "For stochastic transitions: the optimal transport plan between the two distributions of successors.",
  mass: "The probability of this pair in the coupling.",
  proven:
    "A proven bound on the error, rounding included.",
  threshold: "No two states of one class are farther apart than this.",
  class: "States that are merged, and treated as one.",
  bound:
    "A proven bound on the regret, in any state, of the policy of the aggregated MDP.",
  realised: "The largest regret, over all states, of the policy of the aggregated MDP.",
  stress:
    "How badly the points reproduce the distances: 0 is perfect; 1 is all states on one point.",
  goal: "A state that pays the largest reward whenever it is entered.",
  "not known": "The data never visited this state, so its distances are unknown.",
  "lower bound": "The true distance may be larger: not all transitions were observed.",
  difference: "The second distance minus the first.",
};

// A word with an explanation that shows on hover, on focus and on touch.
export function term(word, key = word) {
  return element("span", { class: "term", tabindex: 0, "data-term": key }, word);
}

// One tooltip for the whole page.
export class Tip {
  constructor(host) {
    this.box = element("div", { class: "tip", role: "tooltip", id: "tip", hidden: true });
    host.append(this.box);
    const shown = (event) => {
      const word = event.target.closest?.("[data-term]");
      if (!word) return;
      word.setAttribute("aria-describedby", "tip");
      const place = word.getBoundingClientRect();
      this.show([TERMS[word.dataset.term]], place.left, place.bottom + 4);
    };
    const gone = (event) => event.target.closest?.("[data-term]") && this.hide();
    document.addEventListener("pointerover", shown);
    document.addEventListener("focusin", shown);
    document.addEventListener("pointerout", gone);
    document.addEventListener("focusout", gone);
  }

  // Lines of text, or nodes, near a place of the window and inside of it.
  show(lines, x, y) {
    this.box.replaceChildren(...lines.map((line) => element("div", {}, line)));
    this.box.hidden = false;
    const { width, height } = this.box.getBoundingClientRect();
    const [right, bottom] = [document.documentElement.clientWidth, window.innerHeight];
    this.box.style.left = `${Math.max(6, Math.min(x, right - width - 6))}px`;
    this.box.style.top = `${y + height + 6 > bottom ? Math.max(6, y - height - 28) : y}px`;
  }

  hide() {
    this.box.hidden = true;
  }
}
