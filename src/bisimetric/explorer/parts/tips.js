// Words that are explained where they stand, and the one tooltip of a page.
import { element } from "./elements.js";

const TERMS = {
  state: "A situation of the world: here a cell of the map, or a point.",
  distance:
    "How differently two states behave: 0 where nothing that one can do tells them apart. It bounds how far their values can differ.",
  "bisimulation distance":
    "Compares two states action by action, now and after every step; the action that tells them most apart counts. It bounds how far the best values differ.",
  "on-policy distance":
    "Compares two states under one policy, a fixed way to act. It bounds how far the values of that policy differ.",
  "lax bisimulation distance":
    "Like the bisimulation distance, but each state may answer with another action. Never larger, and still a bound on the best values.",
  "MICo distance":
    "Compares two states under one policy, each drawing its next state on its own. A state need not be at distance 0 of itself.",
  discount:
    "How much the next step counts, between 0 and 1: a reward k steps ahead counts discount^k.",
  value:
    "What a state is worth: all rewards to come, discounted. V* under the best policy, V^π under a given one.",
  worth: "What the agent believes that a frame is worth: all rewards to come, discounted.",
  "reward gap": "How much more one of the two is paid in this step.",
  adds: "What this step adds to the distance: its reward gap, times the discount once for each step before.",
  coupling:
    "Where a step may end in several states: how the ends of one are matched with the ends of the other, so that they differ as little as they can.",
  mass: "How much probability is matched so.",
  proven:
    "The true number lies no farther away than this; the program has proven it, rounding included.",
  threshold: "No two states of one class are farther apart than this.",
  class: "States that are merged, and treated as one.",
  promised:
    "No state can lose more than this by the policy of the merged world: proven from the distances.",
  measured: "The most that a state really loses by the policy of the merged world.",
  stress:
    "How badly the picture keeps the distances: 0 is perfect, 1 would be all states on one spot.",
  goal: "A state that pays the largest reward whenever it is entered.",
  "not known": "No step of the data was lived in this state, so nothing is said of it.",
  "lower bound": "The true distance may be larger: not all steps were seen.",
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
