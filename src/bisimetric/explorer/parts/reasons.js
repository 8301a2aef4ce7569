// Why two states are as far apart as they are: the choices that a distance makes, followed step by
// step. The rules are those of `Distance.explain`, and tests hold the two against each other.
import { best, independent } from "./couplings.js";
import { float64s, half, int32s, mask, Table } from "./numbers.js";

const MOST_PATH = 10_000;
const MOST_COUPLED = 6;
const SMALL_SHARE = 0.05; // a pair that carries less of the whole distance is not followed
const MOST_WORK = 3e8;

// A table of the page, ready to be asked: `at(s, t)`, `has(s, t)`, `explain(s, t)`.
export class Distances {
  constructor(n, about) {
    Object.assign(this, about);
    this.table = new Table(n, about.values);
    this.veiled = new Set(about.unknown);
    this.isDetermined = about.determined === null ? null : mask(about.determined);
    this.V = about.V === null ? null : { ...about.V, values: float64s(about.V.data) };
    this.steps = about.steps === null ? null : unpacked(about.steps);
  }

  at(s, t) {
    return this.table.at(s, t);
  }

  has(s, t) {
    return !this.veiled.has(s) && !this.veiled.has(t);
  }

  // Whether the true distance may be larger than the one in the table.
  isBelow(s, t) {
    return this.isDetermined !== null && s !== t && !this.isDetermined(half(s, t));
  }

  explain(s, t) {
    return this.steps.deterministic ? path(this, [s, t]) : coupled(this, [s, t]);
  }
}

// The steps as functions: `reward(s, a)`, `ends(s, a)`.
function unpacked(steps) {
  const [R, rows, successors] = [float64s(steps.R), int32s(steps.rows), int32s(steps.successors)];
  const probabilities = steps.probabilities && float64s(steps.probabilities);
  return {
    ...steps,
    available: steps.available && mask(steps.available),
    known: steps.known && mask(steps.known),
    reward: (s, a) => R[s * steps.count + a],
    ends(s, a) {
      const found = new Map();
      const row = s * steps.count + a;
      for (let i = rows[row]; i < rows[row + 1]; i++)
        found.set(successors[i], probabilities ? probabilities[i] : 1);
      return found;
    },
  };
}

// Whether d~ puts two states as far apart as possible because their actions differ.
function setsDiffer({ kind, steps }, [s, t]) {
  if (!steps.available || kind !== "bisimulation" || !steps.complete) return false;
  for (let a = 0; a < steps.count; a++)
    if (steps.available(s * steps.count + a) !== steps.available(t * steps.count + a)) return true;
  return false;
}

// The pairs of actions that the distance compares.
function candidates({ kind, steps }, [s, t]) {
  const has = steps.complete ? steps.available : steps.known;
  const can = (state, action) => !has || has(state * steps.count + action);
  const found = [];
  for (let a = 0; a < steps.count; a++)
    for (let b = 0; b < steps.count; b++)
      if ((kind === "lax" || a === b) && can(s, a) && can(t, b)) found.push([a, b]);
  return found;
}

// The candidate that attains the distance: the worst action, or for d_lax the worst action, answered best.
function attained(kind, found) {
  const top = (options, better) =>
    options.reduce((best, each) => (better(each, best) ? each : best));
  if (kind !== "lax") return top(found, (one, two) => one.backup > two.backup);
  const answers = [0, 1].map((side) => {
    const by = new Map();
    for (const each of found) {
      const action = each.actions[side];
      if (!by.has(action) || each.backup < by.get(action).backup) by.set(action, each);
    }
    return top([...by.values()], (one, two) => one.backup > two.backup);
  });
  return answers[0].backup >= answers[1].backup ? answers[0] : answers[1];
}

function spoken({ played }, actions, [s, t]) {
  if (!played) return actions;
  return Math.min(played[s], played[t]) < 0 ? null : [played[s], played[t]];
}

// Each state has one successor: a path, until it ends at distance 0 or returns to an earlier pair.
function path(d, states) {
  const { steps: world, kind } = d;
  const [steps, seen] = [[], new Map()];
  let [pair, weight, left] = [states, 1, null];
  const key = (two) => two.join();
  while (!seen.has(key(pair)) && pair[0] !== pair[1] && steps.length < MOST_PATH) {
    const compared = candidates(d, pair);
    if (d.at(...pair) === 0 || setsDiffer(d, pair) || !compared.length) break;
    const found = compared.map((actions) => {
      const after = actions.map((action, i) => world.ends(pair[i], action).keys().next().value);
      const gap = Math.abs(world.reward(pair[0], actions[0]) - world.reward(pair[1], actions[1]));
      return {
        actions,
        after,
        gap,
        backup: gap + world.discount * (Math.min(...after) < 0 ? 0 : d.at(...after)),
      };
    });
    if (found.some(({ after }) => Math.min(...after) < 0)) {
      left = pair;
      break;
    }
    seen.set(key(pair), steps.length);
    const { actions, after, gap } = attained(kind, found);
    steps.push({
      states: pair,
      actions: spoken(world, actions, pair),
      gap,
      adds: weight * gap,
      after,
      weight,
      coupling: [],
    });
    [pair, weight] = [after, weight * world.discount];
  }
  const loop = seen.get(key(pair)) ?? null;
  let total = steps.reduce((sum, step) => sum + step.adds, 0);
  if (loop !== null) {
    const once = steps.slice(loop).reduce((sum, step) => sum + step.adds, 0);
    total += once / (1 - world.discount ** (steps.length - loop)) - once;
  } else total += weight * d.at(...pair);
  return {
    steps,
    loop,
    total,
    end: pair,
    left,
    apart: setsDiffer(d, pair) ? pair : null,
    large: false,
  };
}

// Successors branch: each step shows their coupling, and the next follows what adds most.
function coupled(d, states) {
  const { steps: world } = d;
  const like = (s) => {
    if (!world.known) for (let t = 0; t < d.table.n; t++) if (d.at(s, t) === 0) return t;
    return s;
  };
  const kin = (pair) => pair.map(like).join();
  const [steps, seen] = [[], new Map()];
  const whole = d.at(...states);
  let [pair, weight, left, large] = [states, 1, null, false];
  while (!seen.has(kin(pair)) && !setsDiffer(d, pair) && candidates(d, pair).length) {
    const carried = weight * d.at(...pair);
    if (carried <= (steps.length ? SMALL_SHARE * whole : 0) || steps.length === MOST_COUPLED) break;
    const chosen = coupling(d, pair);
    if (chosen.left || chosen.large) {
      [left, large] = [chosen.left ? pair : null, chosen.large];
      break;
    }
    seen.set(kin(pair), steps.length);
    const masses = new Map();
    for (const match of chosen.matches)
      masses.set(kin(match.states), (masses.get(kin(match.states)) ?? 0) + match.mass);
    const carries = (match) => masses.get(kin(match.states)) * match.distance;
    const after = chosen.matches.reduce((most, match) =>
      carries(match) > carries(most) ? match : most,
    ).states;
    const { gap } = chosen;
    steps.push({
      states: pair,
      actions: spoken(world, chosen.actions, pair),
      gap,
      adds: weight * gap,
      after,
      weight,
      coupling: chosen.matches,
    });
    weight *= world.discount * masses.get(kin(after));
    pair = after;
  }
  const total = steps.length
    ? steps[0].gap + steps[0].coupling.reduce((sum, match) => sum + match.adds, 0)
    : whole;
  const apart = setsDiffer(d, pair) ? pair : null;
  return { steps, loop: seen.get(kin(pair)) ?? null, total, end: pair, left, apart, large };
}

// The actions that attain the distance of a pair, their reward gap and how their ends are matched.
function coupling(d, pair) {
  const { steps: world, kind } = d;
  const compared = candidates(d, pair).map((actions) => ({
    actions,
    ends: actions.map((a, i) => world.ends(pair[i], a)),
  }));
  if (compared.some(({ ends }) => ends.some((end) => end.has(-1)))) return { left: true };
  const work = compared.reduce(
    (sum, { ends: [a, b] }) => sum + a.size * b.size * (a.size + b.size),
    0,
  );
  if (work > MOST_WORK) return { large: true };
  const found = compared.map(({ actions, ends }) => {
    const plan = kind === "mico" ? independent(...ends) : best(...ends, (x, y) => d.at(x, y));
    const gap = Math.abs(world.reward(pair[0], actions[0]) - world.reward(pair[1], actions[1]));
    const mean = plan.reduce((sum, { states, mass }) => sum + mass * d.at(...states), 0);
    return { actions, gap, plan, backup: gap + world.discount * mean };
  });
  const chosen = attained(kind, found);
  const matches = chosen.plan.map(({ states, mass }) => ({
    states,
    mass,
    distance: d.at(...states),
    adds: world.discount * mass * d.at(...states),
  }));
  const shared = ({ states: [x, y] }) => kind !== "mico" && x === y;
  matches.sort(
    (one, two) => shared(one) - shared(two) || two.adds - one.adds || two.mass - one.mass,
  );
  return { ...chosen, matches };
}
