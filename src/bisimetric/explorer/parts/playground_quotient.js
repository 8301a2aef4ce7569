// The MDP of the classes of states at distance 0, and its solution for all states.
import { pairIndex } from "./numbers.js";
import { NUM_ACTIONS } from "./playground_chains.js";

/** @import { Problem } from "./playground_solver.js" */

// A strategy of d~ is an action; one of d_lax a move, 0 to 7, and its match: 4 * move + match.
export const NO_STRATEGY = 255;
const SIDE = 16;

/**
 * The classes of states at distance 0, by partition refinement: states of one class have the same
 * rewards and classes of successors, action by action, under the policy, or (lax) as sets.
 * @param {Problem} problem
 * @param {Int32Array} policy
 * @returns {Int32Array} numbered by first appearance
 */
export function refineClasses({ kind, numStates, next, R }, policy) {
  let labels = new Int32Array(numStates);
  for (let numClasses = numStates ? 1 : 0; ;) {
    const found = new Map();
    const refined = labels.map((label, s) => {
      const rows = kind === "on_policy" ? [policy[s]] : [0, 1, 2, 3];
      let parts = rows.map((a) => `${R[NUM_ACTIONS * s + a]}:${labels[next[NUM_ACTIONS * s + a]]}`);
      if (kind === "lax") parts = [...new Set(parts)].sort();
      const key = `${label} ${parts.join(" ")}`;
      if (!found.has(key)) found.set(key, found.size);
      return found.get(key);
    });
    if (found.size === numClasses) return refined;
    [labels, numClasses] = [refined, found.size];
  }
}

/**
 * The MDP of the classes, in which no two states are at distance 0, and its policy.
 * @param {Problem} problem
 * @param {Int32Array} policy
 * @param {Int32Array} labels
 * @returns {[Problem, Int32Array]}
 */
export function buildQuotient(problem, policy, labels) {
  const representatives = [];
  labels.forEach((label, s) => (representatives[label] ??= s));
  const rows = representatives.flatMap((s) => [0, 1, 2, 3].map((a) => NUM_ACTIONS * s + a));
  const quotient = {
    ...problem,
    numStates: representatives.length,
    next: Int32Array.from(rows, (row) => labels[problem.next[row]]),
    R: Float64Array.from(rows, (row) => problem.R[row]),
  };
  return [quotient, Int32Array.from(representatives, (s) => policy[s])];
}

/**
 * The strategies of a similar problem for the pairs of classes; a pair may have none.
 * @param {Problem} problem
 * @param {Int32Array} labels
 * @param {number} numClasses
 * @returns {Uint8Array}
 */
export function transferStrategies({ kind, start }, labels, numClasses) {
  const found = new Uint8Array((numClasses * (numClasses + 1)) / 2).fill(NO_STRATEGY);
  if (!start) return found;
  const classes = new Int32Array(numClasses).fill(-1);
  labels.forEach((label, s) => {
    const state = start.states[s];
    if (state >= 0 && classes[label] < 0) classes[label] = start.labels[state];
  });
  for (let s = 0, pair = 0; s < numClasses; s++, pair++)
    for (let t = 0; t < s; t++, pair++) {
      const [one, two] = [classes[s], classes[t]];
      if (one < 0 || two < 0 || one === two) continue;
      const code = start.strategies[pairIndex(one, two)];
      // The move of one state becomes one of the other where their order is reversed.
      const isSwapped = kind === "lax" && one < two && code !== NO_STRATEGY;
      found[pair] = isSwapped ? code ^ SIDE : code;
    }
  return found;
}

/**
 * @param {Float64Array} distances between classes
 * @param {Int32Array} labels
 * @returns {Float64Array} distances between states
 */
export function expand(distances, labels) {
  const found = new Float64Array((labels.length * (labels.length + 1)) / 2);
  for (let s = 0, pair = 0; s < labels.length; s++)
    for (let t = 0; t <= s; t++, pair++) found[pair] = distances[pairIndex(labels[s], labels[t])];
  return found;
}
