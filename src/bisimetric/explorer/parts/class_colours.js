// The colours of classes.
import { NUM_COMMON_COLOURS, PALETTE } from "./scales.js";

export const SINGLETON_COLOUR = "#f0f2f5";

// The colour of each class of several states, as `views/class_colours.py` assigns them: one that the
// fewest neighbouring classes have, if possible of the common ones, then the fewest classes.
// `sizes` is a Map of the number of states per class; `isKnown(label)` is false of no class.
export function assignClassColours(layout, labels, sizes, isKnown = (_label) => true) {
  const neighbours = new Map();
  for (const [s, t] of layout.listAdjacentPairs()) {
    const [one, two] = [labels[s], labels[t]];
    if (one === two || sizes.get(one) === 1 || sizes.get(two) === 1) continue;
    for (const [here, there] of [
      [one, two],
      [two, one],
    ])
      neighbours.set(here, (neighbours.get(here) ?? new Set()).add(there));
  }
  const isRare = (colour, taken) => Number(taken[colour] > 0 || colour >= NUM_COMMON_COLOURS);
  const chosen = new Map();
  const uses = PALETTE.map(() => 0);
  labels.forEach((label) => {
    if (chosen.has(label) || !isKnown(label) || sizes.get(label) === 1) return;
    const taken = PALETTE.map(() => 0);
    for (const other of neighbours.get(label) ?? [])
      if (chosen.has(other)) taken[chosen.get(other)]++;
    const order = [...PALETTE.keys()].sort(
      (a, b) =>
        taken[a] - taken[b] || isRare(a, taken) - isRare(b, taken) || uses[a] - uses[b] || a - b,
    );
    chosen.set(label, order[0]);
    uses[order[0]]++;
  });
  return chosen;
}
