// Distances of deterministic MDPs by policy iteration on unordered pairs of states. It has no access
// to the page: it runs in a Worker too, and in Node's tests.
import { pairIndex } from "./numbers.js";
import {
  MAX_ITERATIONS,
  NUM_ACTIONS,
  computeMinGain,
  computeOptimalPolicy,
  evaluateChain,
  evaluatePolicy,
} from "./playground_chains.js";
import {
  NO_STRATEGY,
  buildQuotient,
  expand,
  refineClasses,
  transferStrategies,
} from "./playground_quotient.js";

/**
 * @typedef {"bisimulation" | "on_policy" | "lax"} Kind
 * @typedef {object} Problem
 * @property {Kind} kind
 * @property {number} numStates
 * @property {Int32Array} next (states, 4), the successor per state and action
 * @property {Float64Array} R (states, 4), the reward per state and action
 * @property {number} discount
 * @property {Int32Array | null} policy an action per state, for d^pi; null is an optimal one
 * @property {Start | null} [start] a solution of a similar problem, whose strategies are tried first
 * @typedef {object} Start
 * @property {Uint8Array} strategies
 * @property {Int32Array} labels
 * @property {Int32Array} states the state of that problem for each one of this, or -1
 * @typedef {object} Solution
 * @property {Float64Array} distances entries [s, t] with t <= s, row by row
 * @property {Int32Array} labels the class of each state: states of one class are at distance 0
 * @property {number} residual the largest change by one more Bellman update
 * @property {number} iterations
 * @property {Uint8Array} strategies per pair of classes, for `Start`
 * @property {Int32Array} policy the given policy, or an optimal one
 * @property {Float64Array} V the values of that policy
 */

/**
 * Compute a distance, its classes, the policy and its values.
 * @param {Problem} problem
 * @returns {Solution}
 */
export function solve(problem) {
  const policy = problem.policy ?? computeOptimalPolicy(problem);
  const V = evaluatePolicy(problem, policy);
  const labels = refineClasses(problem, policy);
  const solvers = { bisimulation: solveBisimulation, on_policy: solveOnPolicy, lax: solveLax };
  const [quotient, actions] = buildQuotient(problem, policy, labels);
  const strategies = transferStrategies(problem, labels, quotient.numStates);
  const solution = solvers[problem.kind](quotient, actions, strategies);
  return { ...solution, distances: expand(solution.distances, labels), labels, policy, V };
}

/**
 * d^pi: both states follow the policy, so that pairs form one chain.
 * @param {Problem} problem
 * @param {Int32Array} policy
 */
function solveOnPolicy({ numStates, next, R, discount }, policy) {
  const numPairs = (numStates * (numStates + 1)) / 2;
  const [chain, cost] = [new Int32Array(numPairs), new Float64Array(numPairs)];
  const rows = Int32Array.from(policy, (action, s) => NUM_ACTIONS * s + action);
  for (let s = 0, pair = 0; s < numStates; s++) {
    for (let t = 0; t < s; t++, pair++) {
      chain[pair] = pairIndex(next[rows[s]], next[rows[t]]);
      cost[pair] = Math.abs(R[rows[s]] - R[rows[t]]);
    }
    chain[pair++] = -1;
  }
  const distances = new Float64Array(numPairs);
  evaluateChain(chain, cost, discount, distances);
  let residual = 0;
  for (let pair = 0; pair < numPairs; pair++)
    if (chain[pair] >= 0)
      residual = Math.max(
        residual,
        Math.abs(cost[pair] + discount * distances[chain[pair]] - distances[pair]),
      );
  return { distances, residual, iterations: 1, strategies: new Uint8Array(0) };
}

/**
 * The pairs whose Bellman update may have changed: bit 1 for the opponent's match, bit 2 for the
 * player's move. A pair is marked when the distance of one of its successors changes.
 * @param {Problem} problem
 */
function createMarks({ numStates, next }) {
  const predecessors = Array.from({ length: numStates }, () => /** @type {number[]} */ ([]));
  for (let s = 0; s < numStates; s++)
    for (const t of new Set(next.subarray(NUM_ACTIONS * s, NUM_ACTIONS * (s + 1))))
      predecessors[t].push(s);
  const flags = new Uint8Array((numStates * (numStates + 1)) / 2).fill(3);
  return {
    flags,
    /**
     * @param {number} s
     * @param {number} t
     */
    markPredecessors(s, t) {
      const [first, second] = [predecessors[s], predecessors[t]];
      for (let i = 0; i < first.length; i++) {
        const u = first[i];
        for (let j = 0; j < second.length; j++) {
          const v = second[j];
          flags[u > v ? (u * (u + 1)) / 2 + v : (v * (v + 1)) / 2 + u] = 3;
        }
      }
    },
  };
}

/**
 * Visit the marked pairs t < s in order, or in reverse order, and clear their marks; mask 0: all.
 * @param {number} numStates
 * @param {Uint8Array} flags
 * @param {number} mask of the bits of the mark
 * @param {boolean} isReversed
 * @param {(s: number, t: number, pair: number) => void} visit
 */
function visitMarked(numStates, flags, mask, isReversed, visit) {
  for (let i = 0; i < numStates; i++) {
    const s = isReversed ? numStates - 1 - i : i;
    const start = (s * (s + 1)) / 2;
    for (let j = 0; j < s; j++) {
      const t = isReversed ? s - 1 - j : j;
      if (mask && !(flags[start + t] & mask)) continue;
      flags[start + t] &= ~mask;
      visit(s, t, start + t);
    }
  }
}

/**
 * Evaluate the strategies of all pairs, and mark what depends on a changed distance.
 * @param {number} numStates
 * @param {Float64Array} distances changed in place
 * @param {() => void} evaluate
 * @param {(s: number, t: number) => void} markPredecessors
 * @param {number} minGain
 */
function evaluateAndMark(numStates, distances, evaluate, markPredecessors, minGain) {
  const previous = distances.slice();
  evaluate();
  for (let s = 0, pair = 0; s < numStates; s++, pair++)
    for (let t = 0; t < s; t++, pair++)
      if (Math.abs(distances[pair] - previous[pair]) > minGain) markPredecessors(s, t);
}

/**
 * d~: the maximum over actions. In-place Bellman sweeps from below, each followed by the evaluation
 * of the actions that attain them.
 * @param {Problem} problem
 * @param {Int32Array} _policy
 * @param {Uint8Array} strategies to start from, changed in place
 */
function solveBisimulation(problem, _policy, strategies) {
  const { numStates, next, R, discount } = problem;
  const numPairs = (numStates * (numStates + 1)) / 2;
  const distances = new Float64Array(numPairs);
  const [chain, cost] = [new Int32Array(numPairs).fill(-1), new Float64Array(numPairs)];
  const { flags, markPredecessors } = createMarks(problem);
  const minGain = computeMinGain(R, discount);
  let gain = 0;
  /** @type {(s: number, t: number, pair: number, action: number) => void} */
  const setAction = (s, t, pair, action) => {
    const [one, two] = [NUM_ACTIONS * s + action, NUM_ACTIONS * t + action];
    strategies[pair] = action;
    chain[pair] = pairIndex(next[one], next[two]);
    cost[pair] = Math.abs(R[one] - R[two]);
  };
  const update = (/** @type {number} */ s, /** @type {number} */ t, /** @type {number} */ pair) => {
    const [first, second] = [NUM_ACTIONS * s, NUM_ACTIONS * t];
    let largest = distances[pair] + minGain;
    let best = -1;
    for (let a = 0; a < NUM_ACTIONS; a++) {
      const u = next[first + a];
      const v = next[second + a];
      const value =
        Math.abs(R[first + a] - R[second + a]) +
        discount * distances[u > v ? (u * (u + 1)) / 2 + v : (v * (v + 1)) / 2 + u];
      if (value > largest) {
        largest = value;
        best = a;
      }
    }
    if (best < 0) return;
    gain = Math.max(gain, largest - distances[pair]);
    distances[pair] = largest;
    setAction(s, t, pair, best);
    markPredecessors(s, t);
  };
  visitMarked(numStates, flags, 0, false, (s, t, pair) => {
    if (strategies[pair] !== NO_STRATEGY) setAction(s, t, pair, strategies[pair]);
  });
  evaluateChain(chain, cost, discount, distances);
  let iterations = 0;
  do {
    gain = 0;
    for (const isReversed of [false, true]) visitMarked(numStates, flags, 3, isReversed, update);
    const evaluate = () => evaluateChain(chain, cost, discount, distances);
    evaluateAndMark(numStates, distances, evaluate, markPredecessors, minGain);
    iterations++;
  } while (gain > 0 && iterations < MAX_ITERATIONS);
  return { distances, residual: Math.max(gain, minGain), iterations, strategies };
}

/**
 * d_lax: a player chooses a state and its action, to increase the distance; the opponent matches it
 * with an action of the other state. Strategy iteration (Hoffman and Karp 1966): the best response to
 * the player by policy iteration, then better actions for the player by in-place Bellman sweeps.
 * @param {Problem} problem
 * @param {Int32Array} _policy
 * @param {Uint8Array} strategies to start from, changed in place
 */
function solveLax(problem, _policy, strategies) {
  const { numStates, next, R, discount } = problem;
  const numPairs = (numStates * (numStates + 1)) / 2;
  const distances = new Float64Array(numPairs);
  const [chain, cost] = [new Int32Array(numPairs).fill(-1), new Float64Array(numPairs)];
  const { flags, markPredecessors } = createMarks(problem);
  const minGain = computeMinGain(R, discount);
  const options = new Float64Array(NUM_ACTIONS * NUM_ACTIONS);
  let [gain, numChanged] = [0, 0];

  /** @type {(s: number, t: number, pair: number, move: number, match: number) => void} */
  const setStrategies = (s, t, pair, move, match) => {
    const action = move % NUM_ACTIONS;
    const one = NUM_ACTIONS * s + (move < NUM_ACTIONS ? action : match);
    const two = NUM_ACTIONS * t + (move < NUM_ACTIONS ? match : action);
    strategies[pair] = NUM_ACTIONS * move + match;
    chain[pair] = pairIndex(next[one], next[two]);
    cost[pair] = Math.abs(R[one] - R[two]);
  };

  // Find a better match for the opponent, by more than rounding.
  /** @type {(s: number, t: number, pair: number) => void} */
  const improveMatch = (s, t, pair) => {
    if (strategies[pair] === NO_STRATEGY) return; // its distance is 0, the lower bound to start from
    // The player's action: 0 to 3 of the first state, 4 to 7 of the second.
    const move = strategies[pair] >> 2;
    const fixed = NUM_ACTIONS * (move < NUM_ACTIONS ? s : t) + (move % NUM_ACTIONS);
    const free = NUM_ACTIONS * (move < NUM_ACTIONS ? t : s);
    const u = next[fixed];
    const reward = R[fixed];
    let smallest = distances[pair] - minGain;
    let best = -1;
    for (let b = 0; b < NUM_ACTIONS; b++) {
      const v = next[free + b];
      const value =
        Math.abs(reward - R[free + b]) +
        discount * distances[u > v ? (u * (u + 1)) / 2 + v : (v * (v + 1)) / 2 + u];
      if (value < smallest) {
        smallest = value;
        best = b;
      }
    }
    if (best < 0) return;
    distances[pair] = smallest;
    setStrategies(s, t, pair, move, best);
    // Its own move may no longer be the best one.
    flags[pair] = 3;
    markPredecessors(s, t);
    numChanged++;
  };

  // Update a pair: the Hausdorff distance of the two sets of actions.
  /** @type {(s: number, t: number, pair: number) => void} */
  const update = (s, t, pair) => {
    for (let a = 0, i = 0; a < NUM_ACTIONS; a++) {
      const u = next[NUM_ACTIONS * s + a];
      const reward = R[NUM_ACTIONS * s + a];
      for (let b = 0; b < NUM_ACTIONS; b++, i++) {
        const v = next[NUM_ACTIONS * t + b];
        options[i] =
          Math.abs(reward - R[NUM_ACTIONS * t + b]) +
          discount * distances[u > v ? (u * (u + 1)) / 2 + v : (v * (v + 1)) / 2 + u];
      }
    }
    let largest = distances[pair] + minGain;
    let [best, match] = [-1, 0];
    for (let move = 0; move < 2 * NUM_ACTIONS; move++) {
      const start = move < NUM_ACTIONS ? NUM_ACTIONS * move : move - NUM_ACTIONS;
      const stride = move < NUM_ACTIONS ? 1 : NUM_ACTIONS;
      let nearest = 0;
      for (let b = 1; b < NUM_ACTIONS; b++)
        if (options[start + stride * b] < options[start + stride * nearest]) nearest = b;
      if (options[start + stride * nearest] > largest) {
        largest = options[start + stride * nearest];
        best = move;
        match = nearest;
      }
    }
    if (best < 0) return;
    gain = Math.max(gain, largest - distances[pair]);
    distances[pair] = largest;
    setStrategies(s, t, pair, best, match);
    markPredecessors(s, t);
  };

  const evaluate = () => evaluateChain(chain, cost, discount, distances);
  let iterations = 0;
  const respond = () => {
    do {
      numChanged = 0;
      evaluateAndMark(numStates, distances, evaluate, markPredecessors, minGain);
      for (const isReversed of [false, true])
        visitMarked(numStates, flags, 1, isReversed, improveMatch);
      iterations++;
    } while (numChanged > 0 && iterations < MAX_ITERATIONS);
  };
  visitMarked(numStates, flags, 0, false, (s, t, pair) => {
    const strategy = strategies[pair];
    if (strategy !== NO_STRATEGY) setStrategies(s, t, pair, strategy >> 2, strategy & 3);
  });
  respond();
  do {
    gain = 0;
    for (const isReversed of [false, true]) visitMarked(numStates, flags, 2, isReversed, update);
    respond();
  } while (gain > 0 && iterations < MAX_ITERATIONS);
  return { distances, residual: Math.max(gain, minGain), iterations, strategies };
}
