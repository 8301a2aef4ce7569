// Classes of states by complete linkage, as `uses.aggregate(rule="complete")` in Python.

/**
 * @param {number} s
 * @param {number} t another one
 */
const indexBelow = (s, t) => (s > t ? (s * (s - 1)) / 2 + t : (t * (t - 1)) / 2 + s);

/**
 * All merges of complete linkage, the nearest two classes first, by nearest-neighbour chains.
 * @param {Float64Array} distances entries [s, t] with t <= s, row by row
 * @param {number} numStates
 * @returns {{ states: [number, number], height: number }[]} one state of each of the two classes, and
 *   the largest distance of their members; in increasing order of the heights
 */
export function computeMerges(distances, numStates) {
  const condensed = new Float64Array((numStates * (numStates - 1)) / 2);
  for (let s = 0, from = 0, to = 0; s < numStates; s++, from++)
    for (let t = 0; t < s; t++) condensed[to++] = distances[from++];
  let active = Array.from({ length: numStates }, (_, s) => s);
  /** @type {number[]} */
  const chain = [];
  /** @type {{ states: [number, number], height: number }[]} */
  const merges = [];
  while (merges.length < numStates - 1) {
    if (!chain.length) chain.push(active[0]);
    // Follow the nearest class; among equals the previous one, so that the chain ends.
    const s = chain[chain.length - 1];
    const previous = chain.length > 1 ? chain[chain.length - 2] : -1;
    let nearest = previous;
    let height = previous < 0 ? Infinity : condensed[indexBelow(s, previous)];
    for (const t of active)
      if (t !== s && condensed[indexBelow(s, t)] < height) {
        nearest = t;
        height = condensed[indexBelow(s, t)];
      }
    if (nearest !== previous) {
      chain.push(nearest);
      continue;
    }
    chain.length -= 2;
    const [survivor, removed] = [Math.min(s, nearest), Math.max(s, nearest)];
    merges.push({ states: [survivor, removed], height });
    active = active.filter((t) => t !== removed);
    for (const t of active)
      if (t !== survivor)
        condensed[indexBelow(survivor, t)] = Math.max(
          condensed[indexBelow(survivor, t)],
          condensed[indexBelow(removed, t)],
        );
  }
  // The sort is stable: among equal heights a class is formed before it is merged further.
  return merges.sort((one, two) => one.height - two.height);
}

/**
 * The classes after the merges up to a threshold, numbered by first appearance.
 * @param {{ states: [number, number], height: number }[]} merges
 * @param {number} threshold
 * @param {number} numStates
 * @returns {Int32Array}
 */
export function labelClasses(merges, threshold, numStates) {
  const roots = Int32Array.from({ length: numStates }, (_, s) => s);
  const findRoot = (/** @type {number} */ s) => {
    while (roots[s] !== s) s = roots[s];
    return s;
  };
  for (const { states, height } of merges) {
    if (height > threshold) break;
    const [one, two] = states.map(findRoot);
    roots[Math.max(one, two)] = Math.min(one, two);
  }
  const labels = new Int32Array(numStates);
  let numClasses = 0;
  for (let s = 0; s < numStates; s++)
    labels[s] = roots[s] === s ? numClasses++ : labels[findRoot(s)];
  return labels;
}

/**
 * The thresholds at which classes change: 0, and the heights of the merges.
 * @param {{ height: number }[]} merges
 * @returns {number[]}
 */
export const listThresholds = (merges) => [...new Set([0, ...merges.map(({ height }) => height)])];
