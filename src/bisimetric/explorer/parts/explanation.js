// Explanations of distances, step by step, as `Distance.explain` computes them; tests compare both.
import { computeOptimalCoupling, computeIndependentCoupling } from "./couplings.js";
import { decodeFloat64, pairIndex, decodeInt32, decodeMask, DistanceMatrix } from "./numbers.js";

const MAX_PATH_STEPS = 10_000;
const MAX_COUPLED_STEPS = 6;
const MIN_FRACTION = 0.05; // of the distance; pairs that contribute less are not followed
const MAX_OPERATIONS = 3e8;

/** @import { EncodedDistance, EncodedTransitions, Explanation, ExplainedDistance, Pair, Step, Transitions } from "./types.d.ts" */

// A distance of the page: `at(s, t)`, `has(s, t)`, `explain(s, t)`.
export class PageDistance {
  /**
   * @param {number} n
   * @param {EncodedDistance} data
   */
  constructor(n, data) {
    this.label = data.label;
    this.kind = data.kind;
    this.kindName = data.kindName;
    this.symbol = data.symbol;
    this.accuracy = data.accuracy;
    this.error = data.error;
    this.pairError = data.pairError ?? null;
    this.noTransitions = data.noTransitions;
    this.noValues = data.noValues;
    this.aggregation = data.aggregation;
    this.command = data.command ?? null;
    this.matrix = new DistanceMatrix(n, data.values);
    this.unknown = new Set(data.unknown);
    this.isDetermined = data.determined === null ? null : decodeMask(data.determined);
    this.V = data.V === null ? null : { ...data.V, values: decodeFloat64(data.V.data) };
    this.transitions = data.transitions === null ? null : decodeTransitions(data.transitions);
  }

  at(s, t) {
    return this.matrix.at(s, t);
  }

  has(s, t) {
    return !this.unknown.has(s) && !this.unknown.has(t);
  }

  // Whether the entry is only a lower bound.
  isLowerBound(s, t) {
    return this.isDetermined !== null && s !== t && !this.isDetermined(pairIndex(s, t));
  }

  /** @returns {Explanation} */
  explain(s, t) {
    return this.transitions.deterministic
      ? explainPath(this, [s, t])
      : explainCouplings(this, [s, t]);
  }
}

/**
 * Transitions with functions of a state and an action.
 * @param {EncodedTransitions} encoded
 * @returns {Transitions}
 */
function decodeTransitions(encoded) {
  const R = decodeFloat64(encoded.R);
  const [rowStarts, successors] = [encoded.rowStarts, encoded.successors].map(decodeInt32);
  const probabilities = encoded.probabilities && decodeFloat64(encoded.probabilities);
  return {
    ...encoded,
    available: encoded.available && decodeMask(encoded.available),
    known: encoded.known && decodeMask(encoded.known),
    reward: (s, a) => R[s * encoded.numActions + a],
    listSuccessors(s, a) {
      const found = new Map();
      const row = s * encoded.numActions + a;
      for (let i = rowStarts[row]; i < rowStarts[row + 1]; i++)
        found.set(successors[i], probabilities ? probabilities[i] : 1);
      return found;
    },
  };
}

/**
 * Whether two states are at the diameter bound because their action sets differ.
 * @param {ExplainedDistance} d
 * @param {Pair} pair
 */
function hasMismatchedActions({ kind, transitions }, [s, t]) {
  if (!transitions.available || kind !== "bisimulation" || !transitions.complete) return false;
  for (let a = 0; a < transitions.numActions; a++)
    if (
      transitions.available(s * transitions.numActions + a) !==
      transitions.available(t * transitions.numActions + a)
    )
      return true;
  return false;
}

/**
 * The pairs of actions that the distance compares.
 * @param {ExplainedDistance} d
 * @param {Pair} pair
 */
function listActionPairs({ kind, transitions }, [s, t]) {
  const has = transitions.complete ? transitions.available : transitions.known;
  const can = (state, action) => !has || has(state * transitions.numActions + action);
  const found = [];
  for (let a = 0; a < transitions.numActions; a++)
    for (let b = 0; b < transitions.numActions; b++)
      if ((kind === "lax" || a === b) && can(s, a) && can(t, b)) found.push([a, b]);
  return found;
}

/**
 * The candidate that attains the distance: the maximum over actions, or for d_lax the Hausdorff
 * distance.
 * @template {{ actions: number[], backup: number }} C
 * @param {string} kind
 * @param {C[]} found
 * @returns {C}
 */
function selectAttaining(kind, found) {
  const selectBest = (options, better) =>
    options.reduce((best, each) => (better(each, best) ? each : best));
  if (kind !== "lax") return selectBest(found, (one, two) => one.backup > two.backup);
  const selected = [0, 1].map((side) => {
    const by = new Map();
    for (const each of found) {
      const action = each.actions[side];
      if (!by.has(action) || each.backup < by.get(action).backup) by.set(action, each);
    }
    return selectBest([...by.values()], (one, two) => one.backup > two.backup);
  });
  return selected[0].backup >= selected[1].backup ? selected[0] : selected[1];
}

function selectReportedActions({ policyActions }, actions, [s, t]) {
  if (!policyActions) return actions;
  return Math.min(policyActions[s], policyActions[t]) < 0
    ? null
    : [policyActions[s], policyActions[t]];
}

/**
 * Deterministic transitions: a path, until distance 0 or an earlier pair.
 * @param {ExplainedDistance} d
 * @param {Pair} states
 * @returns {Explanation}
 */
function explainPath(d, states) {
  const { transitions, kind } = d;
  const [steps, visited] = [[], new Map()];
  let [pair, weight, outsidePair] = [states, 1, null];
  const key = (two) => two.join();
  while (!visited.has(key(pair)) && pair[0] !== pair[1] && steps.length < MAX_PATH_STEPS) {
    const compared = listActionPairs(d, pair);
    if (d.at(...pair) === 0 || hasMismatchedActions(d, pair) || !compared.length) break;
    const found = compared.map((actions) => {
      const [one, two] = actions.map(
        (action, i) => transitions.listSuccessors(pair[i], action).keys().next().value,
      );
      /** @type {Pair} */
      const nextStates = [one, two];
      const rewardGap = Math.abs(
        transitions.reward(pair[0], actions[0]) - transitions.reward(pair[1], actions[1]),
      );
      return {
        actions,
        nextStates,
        rewardGap,
        backup:
          rewardGap +
          transitions.discount * (Math.min(...nextStates) < 0 ? 0 : d.at(...nextStates)),
      };
    });
    if (found.some(({ nextStates }) => Math.min(...nextStates) < 0)) {
      outsidePair = pair;
      break;
    }
    visited.set(key(pair), steps.length);
    const { actions, nextStates, rewardGap } = selectAttaining(kind, found);
    steps.push({
      states: pair,
      actions: selectReportedActions(transitions, actions, pair),
      rewardGap,
      contribution: weight * rewardGap,
      nextStates,
      weight,
      coupling: [],
    });
    [pair, weight] = [nextStates, weight * transitions.discount];
  }
  const loopStart = visited.get(key(pair)) ?? null;
  let total = steps.reduce((sum, step) => sum + step.contribution, 0);
  if (loopStart !== null) {
    const once = steps.slice(loopStart).reduce((sum, step) => sum + step.contribution, 0);
    total += once / (1 - transitions.discount ** (steps.length - loopStart)) - once;
  } else total += weight * d.at(...pair);
  return {
    steps,
    loopStart,
    total,
    end: pair,
    outsidePair,
    mismatchedPair: hasMismatchedActions(d, pair) ? pair : null,
    tooLarge: false,
  };
}

/**
 * Stochastic transitions: each step has a coupling, and the next follows its largest term.
 * @param {ExplainedDistance} d
 * @param {Pair} states
 * @returns {Explanation}
 */
function explainCouplings(d, states) {
  const { transitions } = d;
  const findRepresentative = (s) => {
    if (!transitions.known) for (let t = 0; t < d.matrix.n; t++) if (d.at(s, t) === 0) return t;
    return s;
  };
  const createClassKey = (pair) => pair.map(findRepresentative).join();
  const [steps, visited] = [[], new Map()];
  const distance = d.at(...states);
  let [pair, weight, outsidePair, tooLarge] = [states, 1, null, false];
  while (
    !visited.has(createClassKey(pair)) &&
    !hasMismatchedActions(d, pair) &&
    listActionPairs(d, pair).length
  ) {
    const remaining = weight * d.at(...pair);
    if (
      remaining <= (steps.length ? MIN_FRACTION * distance : 0) ||
      steps.length === MAX_COUPLED_STEPS
    )
      break;
    const { chosen, isOutside, isTooLarge } = findCoupling(d, pair);
    if (!chosen) {
      [outsidePair, tooLarge] = [isOutside ? pair : null, isTooLarge];
      break;
    }
    visited.set(createClassKey(pair), steps.length);
    const masses = new Map();
    for (const match of chosen.matches)
      masses.set(
        createClassKey(match.states),
        (masses.get(createClassKey(match.states)) ?? 0) + match.mass,
      );
    const computeTerm = (match) => masses.get(createClassKey(match.states)) * match.distance;
    const nextStates = chosen.matches.reduce((largest, match) =>
      computeTerm(match) > computeTerm(largest) ? match : largest,
    ).states;
    const { rewardGap } = chosen;
    steps.push({
      states: pair,
      actions: selectReportedActions(transitions, chosen.actions, pair),
      rewardGap,
      contribution: weight * rewardGap,
      nextStates,
      weight,
      coupling: chosen.matches,
    });
    weight *= transitions.discount * masses.get(createClassKey(nextStates));
    pair = nextStates;
  }
  const total = steps.length
    ? steps[0].rewardGap + steps[0].coupling.reduce((sum, match) => sum + match.contribution, 0)
    : distance;
  const mismatchedPair = hasMismatchedActions(d, pair) ? pair : null;
  return {
    steps,
    loopStart: visited.get(createClassKey(pair)) ?? null,
    total,
    end: pair,
    outsidePair,
    mismatchedPair,
    tooLarge,
  };
}

/**
 * The actions that attain the distance of a pair, their reward gap and their coupling.
 * @param {ExplainedDistance} d
 * @param {Pair} pair
 */
function findCoupling(d, pair) {
  const { transitions, kind } = d;
  const compared = listActionPairs(d, pair).map((actions) => ({
    actions,
    successors: actions.map((a, i) => transitions.listSuccessors(pair[i], a)),
  }));
  if (compared.some(({ successors }) => successors.some((each) => each.has(-1))))
    return { chosen: null, isOutside: true, isTooLarge: false };
  const work = compared.reduce(
    (sum, { successors: [a, b] }) => sum + a.size * b.size * (a.size + b.size),
    0,
  );
  if (work > MAX_OPERATIONS) return { chosen: null, isOutside: false, isTooLarge: true };
  const found = compared.map(({ actions, successors }) => {
    const plan =
      kind === "mico"
        ? computeIndependentCoupling(...successors)
        : computeOptimalCoupling(...successors, (x, y) => d.at(x, y));
    const rewardGap = Math.abs(
      transitions.reward(pair[0], actions[0]) - transitions.reward(pair[1], actions[1]),
    );
    const mean = plan.reduce((sum, { states, mass }) => sum + mass * d.at(...states), 0);
    return { actions, rewardGap, plan, backup: rewardGap + transitions.discount * mean };
  });
  const attaining = selectAttaining(kind, found);
  const matches = attaining.plan.map(({ states, mass }) => ({
    states,
    mass,
    distance: d.at(...states),
    contribution: transitions.discount * mass * d.at(...states),
  }));
  const shared = ({ states: [x, y] }) => Number(kind !== "mico" && x === y);
  matches.sort(
    (one, two) =>
      shared(one) - shared(two) || two.contribution - one.contribution || two.mass - one.mass,
  );
  return { chosen: { ...attaining, matches }, isOutside: false, isTooLarge: false };
}
