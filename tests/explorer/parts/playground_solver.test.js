// The solver of the playground against value iteration, on random grids.
import assert from "node:assert/strict";
import test from "node:test";
import {
  buildMdp,
  paintCells,
  parseGrid,
} from "../../../src/bisimetric/explorer/parts/playground_grid.js";
import { solve } from "../../../src/bisimetric/explorer/parts/playground_solver.js";

const TOLERANCE = 1e-9;
const ROOMS = "*******\n*    g*\n*     *\n*     *\n*** ***\n*    g*\n*     *\n*     *\n*******";

function createRandom(seed) {
  let state = seed;
  return () => (state = (state * 1103515245 + 12345) % 2147483648) / 2147483648;
}

function createGrid(rows, columns, seed) {
  const random = createRandom(seed);
  const pick = () => "****    g x1 5 9   "[Math.floor(19 * random())];
  const lines = Array.from({ length: rows }, () => Array.from({ length: columns }, pick).join(""));
  return `${lines.join("\n")}\n${" ".repeat(columns)}`;
}

// Value iteration on all ordered pairs, until nothing changes.
function iterateValues({ kind, numStates: n, next, R, discount }, policy) {
  let d = new Float64Array(n * n);
  const backup = (s, a, t, b) =>
    Math.abs(R[4 * s + a] - R[4 * t + b]) + discount * d[next[4 * s + a] * n + next[4 * t + b]];
  const actions = [0, 1, 2, 3];
  const update = (s, t) => {
    if (kind === "on_policy") return backup(s, policy[s], t, policy[t]);
    if (kind === "bisimulation") return Math.max(...actions.map((a) => backup(s, a, t, a)));
    const matchOf = (match) => Math.min(...actions.map(match));
    return Math.max(
      ...actions.map((a) => matchOf((b) => backup(s, a, t, b))),
      ...actions.map((b) => matchOf((a) => backup(s, a, t, b))),
    );
  };
  for (let change = 1; change > 1e-14;) {
    const updated = d.map((_, i) => update(Math.floor(i / n), i % n));
    change = updated.reduce((largest, x, i) => Math.max(largest, Math.abs(x - d[i])), 0);
    d = updated;
  }
  return d;
}

for (const kind of ["bisimulation", "on_policy", "lax"])
  test(`${kind} is the fixed point that value iteration finds`, () => {
    for (const [seed, text] of [ROOMS, ...[1, 2, 3, 4].map((k) => createGrid(3, 5, k))].entries())
      for (const discount of [0, 0.3, 0.9]) {
        const mdp = buildMdp(parseGrid(text));
        const problem = { ...mdp, kind, discount, policy: null };
        const { distances, policy, residual, labels } = solve(problem);
        const expected = iterateValues(problem, policy);
        assert.ok(residual < 1e-11);
        for (let s = 0, pair = 0; s < mdp.numStates; s++)
          for (let t = 0; t <= s; t++, pair++) {
            const error = Math.abs(distances[pair] - expected[s * mdp.numStates + t]);
            assert.ok(error <= TOLERANCE, `grid ${seed}, ${discount}: ${s}, ${t}: ${error}`);
            if (labels[s] === labels[t]) assert.equal(distances[pair], 0);
            else if (discount === 0.9) assert.ok(distances[pair] > 0);
          }
      }
  });

test("the policy is optimal", () => {
  const mdp = buildMdp(parseGrid(ROOMS));
  const discount = 0.9;
  const { V } = solve({ ...mdp, kind: "on_policy", discount, policy: null });
  for (let s = 0; s < mdp.numStates; s++) {
    const values = [0, 1, 2, 3].map((a) => mdp.R[4 * s + a] + discount * V[mdp.next[4 * s + a]]);
    assert.ok(Math.abs(Math.max(...values) - V[s]) < 1e-12);
  }
});

test("a policy that is given is kept, and evaluated", () => {
  const mdp = buildMdp(parseGrid(">g<"));
  const { V, policy, distances } = solve({ ...mdp, kind: "on_policy", discount: 0.5 });
  assert.deepEqual([...policy], [3, 1, 2]);
  // The goal moves down, into a wall, for ever: -1 / (1 - 0.5).
  assert.deepEqual([...V], [0, -2, 0]);
  assert.deepEqual([...distances], [0, 2, 0, 0, 2, 0]);
});

test("lax distances are at most bisimulation distances, and bound the values", () => {
  const mdp = buildMdp(parseGrid(createGrid(6, 8, 7)));
  const [d, lax] = ["bisimulation", "lax"].map((kind) =>
    solve({ ...mdp, kind, discount: 0.95, policy: null }),
  );
  for (let s = 0, pair = 0; s < mdp.numStates; s++)
    for (let t = 0; t <= s; t++, pair++) {
      assert.ok(lax.distances[pair] <= d.distances[pair] + TOLERANCE);
      assert.ok(Math.abs(lax.V[s] - lax.V[t]) <= lax.distances[pair] + TOLERANCE);
    }
});

test("one state is at distance 0 from itself", () => {
  const mdp = buildMdp(parseGrid(" "));
  for (const kind of ["bisimulation", "on_policy", "lax"])
    assert.deepEqual([...solve({ ...mdp, kind, discount: 0.9, policy: null }).distances], [0]);
});

for (const kind of ["bisimulation", "lax"])
  test(`strategies of the grid before a stroke lead to the same ${kind} distances`, () => {
    let mdp = buildMdp(parseGrid(ROOMS));
    let solution = solve({ ...mdp, kind, discount: 0.9, policy: null });
    for (const cell of [9, 12, 31, 12]) {
      const painted = buildMdp(paintCells(parseGrid(ROOMS), [cell], "*"));
      const problem = { ...painted, kind, discount: 0.9, policy: null };
      const states = Int32Array.from(painted.cells, (place) => mdp.states[place]);
      const { strategies, labels } = solution;
      const warm = solve({ ...problem, start: { strategies, labels, states } });
      const { distances } = solve(problem);
      warm.distances.forEach((x, i) => assert.ok(Math.abs(x - distances[i]) <= TOLERANCE));
      assert.deepEqual(warm.labels, solve(problem).labels);
      [mdp, solution] = [painted, warm];
    }
  });
