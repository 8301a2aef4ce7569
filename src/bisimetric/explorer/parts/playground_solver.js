// Distances of deterministic MDPs by policy iteration on unordered pairs of states. It has no access
// to the page: it runs in a Worker too, and in Node's tests.

const NUM_ACTIONS = 4;
// Only a gain above this fraction of the diameter bound changes a strategy; less is rounding.
const MIN_RELATIVE_GAIN = 1e-14;
const MAX_ITERATIONS = 1000;

/**
 * @typedef {"bisimulation" | "on_policy" | "lax"} Kind
 * @typedef {object} Problem
 * @property {Kind} kind
 * @property {number} numStates
 * @property {Int32Array} next (states, 4), the successor per state and action
 * @property {Float64Array} R (states, 4), the reward per state and action
 * @property {number} discount
 * @property {Int32Array | null} policy an action per state, for d^pi; null is an optimal one
 * @typedef {object} Solution
 * @property {Float64Array} distances entries [s, t] with t <= s, row by row
 * @property {Int32Array} labels the class of each state: states of one class are at distance 0
 * @property {number} residual the largest change by one more Bellman update
 * @property {number} iterations
 * @property {Int32Array} policy the given policy, or an optimal one
 * @property {Float64Array} V the values of that policy
 */

/**
 * The index of a pair in the lower triangle, the diagonal included.
 * @param {number} s
 * @param {number} t
 */
const indexPair = (s, t) => (s > t ? (s * (s + 1)) / 2 + t : (t * (t + 1)) / 2 + s);

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
  const solution = solvers[problem.kind](...buildQuotient(problem, policy, labels));
  return { ...solution, distances: expand(solution.distances, labels), labels, policy, V };
}

/**
 * The classes of states at distance 0, by partition refinement: states of one class have the same
 * rewards and classes of successors, action by action, under the policy, or (lax) as sets.
 * @param {Problem} problem
 * @param {Int32Array} policy
 * @returns {Int32Array} numbered by first appearance
 */
function refineClasses({ kind, numStates, next, R }, policy) {
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
function buildQuotient(problem, policy, labels) {
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
 * @param {Float64Array} distances between classes
 * @param {Int32Array} labels
 * @returns {Float64Array} distances between states
 */
function expand(distances, labels) {
  const found = new Float64Array((labels.length * (labels.length + 1)) / 2);
  for (let s = 0, pair = 0; s < labels.length; s++)
    for (let t = 0; t <= s; t++, pair++) found[pair] = distances[indexPair(labels[s], labels[t])];
  return found;
}

/**
 * Evaluate the chain x -> next[x]: value(x) = cost(x) + discount * value(next(x)), exactly up to
 * rounding. Nodes with next[x] < 0 are worth 0. Cycles are summed as geometric series.
 * @param {Int32Array} next
 * @param {Float64Array} cost
 * @param {number} discount
 * @param {Float64Array} values the output
 */
function evaluateChain(next, cost, discount, values) {
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
function computeOptimalPolicy({ numStates, next, R, discount }) {
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
function evaluatePolicy({ numStates, next, R, discount }, policy) {
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
function computeMinGain(R, discount) {
  let [low, high] = [0, 0];
  for (const reward of R) [low, high] = [Math.min(low, reward), Math.max(high, reward)];
  return MIN_RELATIVE_GAIN * ((high - low) / (1 - discount) + 1);
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
      chain[pair] = indexPair(next[rows[s]], next[rows[t]]);
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
  return { distances, residual, iterations: 1 };
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
 * Visit the marked pairs t < s in order, or in reverse order, and clear their marks.
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
      if (!(flags[start + t] & mask)) continue;
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
 */
function solveBisimulation(problem) {
  const { numStates, next, R, discount } = problem;
  const numPairs = (numStates * (numStates + 1)) / 2;
  const distances = new Float64Array(numPairs);
  const [chain, cost] = [new Int32Array(numPairs).fill(-1), new Float64Array(numPairs)];
  const { flags, markPredecessors } = createMarks(problem);
  const minGain = computeMinGain(R, discount);
  let gain = 0;
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
    chain[pair] = indexPair(next[first + best], next[second + best]);
    cost[pair] = Math.abs(R[first + best] - R[second + best]);
    markPredecessors(s, t);
  };
  let iterations = 0;
  do {
    gain = 0;
    for (const isReversed of [false, true]) visitMarked(numStates, flags, 3, isReversed, update);
    const evaluate = () => evaluateChain(chain, cost, discount, distances);
    evaluateAndMark(numStates, distances, evaluate, markPredecessors, minGain);
    iterations++;
  } while (gain > 0 && iterations < MAX_ITERATIONS);
  return { distances, residual: Math.max(gain, minGain), iterations };
}

/**
 * d_lax: a player chooses a state and its action, to increase the distance; the opponent matches it
 * with an action of the other state. Strategy iteration (Hoffman and Karp 1966): the best response to
 * the player by policy iteration, then better actions for the player by in-place Bellman sweeps.
 * @param {Problem} problem
 */
function solveLax(problem) {
  const { numStates, next, R, discount } = problem;
  const numPairs = (numStates * (numStates + 1)) / 2;
  const distances = new Float64Array(numPairs);
  const [chain, cost] = [new Int32Array(numPairs).fill(-1), new Float64Array(numPairs)];
  const { flags, markPredecessors } = createMarks(problem);
  // The player's action per pair: 0 to 3 of the first state, 4 to 7 of the second.
  const moves = new Uint8Array(numPairs);
  const minGain = computeMinGain(R, discount);
  const options = new Float64Array(NUM_ACTIONS * NUM_ACTIONS);
  let [gain, numChanged] = [0, 0];

  /** @type {(s: number, t: number, pair: number, move: number, match: number) => void} */
  const setStrategies = (s, t, pair, move, match) => {
    const action = move % NUM_ACTIONS;
    const one = NUM_ACTIONS * s + (move < NUM_ACTIONS ? action : match);
    const two = NUM_ACTIONS * t + (move < NUM_ACTIONS ? match : action);
    moves[pair] = move;
    chain[pair] = indexPair(next[one], next[two]);
    cost[pair] = Math.abs(R[one] - R[two]);
  };

  // Find a better match for the opponent, by more than rounding.
  /** @type {(s: number, t: number, pair: number) => void} */
  const improveMatch = (s, t, pair) => {
    const move = moves[pair];
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
    setStrategies(s, t, pair, move, best);
    flags[pair] = 3;
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
  do {
    gain = 0;
    for (const isReversed of [false, true]) visitMarked(numStates, flags, 2, isReversed, update);
    do {
      numChanged = 0;
      evaluateAndMark(numStates, distances, evaluate, markPredecessors, minGain);
      visitMarked(numStates, flags, 1, false, improveMatch);
      iterations++;
    } while (numChanged > 0 && iterations < MAX_ITERATIONS);
  } while (gain > 0 && iterations < MAX_ITERATIONS);
  return { distances, residual: Math.max(gain, minGain), iterations };
}
