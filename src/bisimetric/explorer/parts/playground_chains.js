// Policies of deterministic MDPs, evaluated exactly up to rounding.

/** @import { Problem } from "./playground_solver.js" */

export const NUM_ACTIONS = 4;
// Only a gain above this fraction of the diameter bound changes a strategy; less is rounding.
const MIN_RELATIVE_GAIN = 1e-14;
export const MAX_ITERATIONS = 1000;

/**
 * Evaluate the chain x -> next[x]: value(x) = cost(x) + discount * value(next(x)), exactly up to
 * rounding. Nodes with next[x] < 0 are worth 0. Cycles are summed as geometric series.
 * @param {Int32Array} next
 * @param {Float64Array} cost
 * @param {number} discount
 * @param {Float64Array} values the output
 */
export function evaluateChain(next, cost, discount, values) {
  const [numNodes, UNSEEN, ACTIVE, DONE] = [next.length, 0, 1, 2];
  const marks = new Uint8Array(numNodes);
  const path = new Int32Array(numNodes);
  for (let start = 0; start < numNodes; start++) {
    let [length, at] = [0, start];
    while (marks[at] === UNSEEN && next[at] >= 0) {
      marks[at] = ACTIVE;
      path[length++] = at;
      at = next[at];
    }
    if (marks[at] === ACTIVE) {
      // A cycle that ends the path: sum it once, from each of its nodes backwards.
      let [sum, weight, node] = [0, 1, at];
      do {
        sum += weight * cost[node];
        weight *= discount;
        node = next[node];
      } while (node !== at);
      values[at] = sum / (1 - weight);
      marks[at] = DONE;
    } else if (marks[at] === UNSEEN) {
      values[at] = 0;
      marks[at] = DONE;
    }
    for (let i = length - 1; i >= 0; i--) {
      const node = path[i];
      if (marks[node] === DONE) continue;
      values[node] = cost[node] + discount * values[next[node]];
      marks[node] = DONE;
    }
  }
}

/**
 * Howard's policy iteration for the optimal policy, from the actions of largest reward.
 * @param {Problem} problem
 * @returns {Int32Array}
 */
export function computeOptimalPolicy({ numStates, next, R, discount }) {
  const policy = new Int32Array(numStates);
  const minGain = computeMinGain(R, discount);
  for (let s = 0; s < numStates; s++)
    for (let a = 1; a < NUM_ACTIONS; a++)
      if (R[NUM_ACTIONS * s + a] > R[NUM_ACTIONS * s + policy[s]]) policy[s] = a;
  for (let iteration = 0; iteration < MAX_ITERATIONS; iteration++) {
    const V = evaluatePolicy({ numStates, next, R, discount }, policy);
    let isStable = true;
    const evaluate = (row) => R[row] + discount * V[next[row]];
    for (let s = 0; s < numStates; s++) {
      let [best, largest] = [policy[s], evaluate(NUM_ACTIONS * s + policy[s]) + minGain];
      for (let a = 0; a < NUM_ACTIONS; a++) {
        const value = evaluate(NUM_ACTIONS * s + a);
        if (value > largest) [best, largest] = [a, value];
      }
      if (best !== policy[s]) [policy[s], isStable] = [best, false];
    }
    if (isStable) break;
  }
  return policy;
}

/**
 * @param {Pick<Problem, "numStates" | "next" | "R" | "discount">} problem
 * @param {Int32Array} policy
 * @returns {Float64Array} V
 */
export function evaluatePolicy({ numStates, next, R, discount }, policy) {
  const V = new Float64Array(numStates);
  const rows = Int32Array.from(policy, (action, s) => NUM_ACTIONS * s + action);
  evaluateChain(
    rows.map((row) => next[row]),
    Float64Array.from(rows, (row) => R[row]),
    discount,
    V,
  );
  return V;
}

// Below the error of a sum, so that no strategy recurs.
export function computeMinGain(R, discount) {
  let [low, high] = [0, 0];
  for (const reward of R) [low, high] = [Math.min(low, reward), Math.max(high, reward)];
  return MIN_RELATIVE_GAIN * ((high - low) / (1 - discount) + 1);
}
