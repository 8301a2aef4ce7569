import assert from "node:assert/strict";
import { test } from "node:test";
import {
  computeIndependentCoupling,
  computeOptimalCoupling,
} from "../../../src/bisimetric/explorer/parts/couplings.js";
import { PageDistance } from "../../../src/bisimetric/explorer/parts/explanation.js";
import { describeExplanation } from "../../../src/bisimetric/explorer/parts/sentences.js";
import { createDistanceData } from "./encoding.js";

const createDistance = (n, ...rest) => new PageDistance(n, createDistanceData(...rest));
const isClose = (x, y) => assert.ok(Math.abs(x - y) < 1e-12, `${x} and ${y}`);

function describe(d, first, second) {
  const names = ["zero", "one", "two", "three", "four"];
  return describeExplanation({
    d,
    explanation: d.explain(first, second),
    selection: { first, second },
    name: (s) => names[s],
  });
}

// Two self-loops with rewards 1 and 0: the distance is 1 / (1 - 1/2).
test("a loop is summed infinitely often", () => {
  const matrix = [[0], [2, 0]];
  const d = createDistance(2, "bisimulation", 0.5, matrix, [[[1, { 0: 1 }]], [[0, { 1: 1 }]]]);
  const { steps, loopStart, total } = d.explain(0, 1);
  assert.equal(steps.length, 1);
  assert.equal(loopStart, 0);
  isClose(total, 2);
  assert.deepEqual(describe(d, 0, 1), ["Step 0 repeats forever: 1 more, 2 in total."]);
});

// 0 -> 2 -> 3 and 1 -> 3 -> 3 with rewards 0, 4 and 1: discount * 4 + 1 at discount 1/2.
test("a path ends where both are in one state, and its terms add up", () => {
  const matrix = [[0], [3, 0], [3.5, 4.5, 0], [2, 1, 4, 0]];
  const rows = [[[0, { 2: 1 }]], [[1, { 3: 1 }]], [[4, { 3: 1 }]], [[0, { 3: 1 }]]];
  const d = createDistance(4, "bisimulation", 0.5, matrix, rows);
  const { steps, loopStart, end, total } = d.explain(0, 1);
  assert.deepEqual(
    steps.map(({ states, rewardGap, contribution }) => [states, rewardGap, contribution]),
    [
      [[0, 1], 1, 1],
      [[2, 3], 4, 2],
    ],
  );
  assert.equal(loopStart, null);
  assert.deepEqual(end, [3, 3]);
  assert.equal(total, d.at(0, 1));
  assert.deepEqual(describe(d, 0, 1), ["Then both are in three: 3 in total."]);
  assert.deepEqual(describe(d, 2, 2), ["They are the same state."]);
});

// All actions lead to the absorbing state 2; rewards (1, 0) and (0, 3/4).
test("d~ compares equal actions, d_lax each with the best match of the other state", () => {
  const rows = [
    [
      [1, { 2: 1 }],
      [0, { 2: 1 }],
    ],
    [
      [0, { 2: 1 }],
      [0.75, { 2: 1 }],
    ],
    [
      [0, { 2: 1 }],
      [0, { 2: 1 }],
    ],
  ];
  const strict = createDistance(3, "bisimulation", 0.5, [[0], [1, 0], [1, 0.75, 0]], rows);
  assert.deepEqual(strict.explain(0, 1).steps[0].actions, [0, 0]);
  isClose(strict.explain(0, 1).total, 1);
  const lax = createDistance(3, "lax", 0.5, [[0], [0.25, 0], [1, 0.75, 0]], rows);
  assert.deepEqual(lax.explain(0, 1).steps[0].actions, [0, 1]);
  isClose(lax.explain(0, 1).total, 0.25);
});

test("states with other actions are at the diameter bound", () => {
  const rows = [
    [
      [0, { 0: 1 }],
      [0, { 0: 1 }],
    ],
    [
      [0, { 1: 1 }],
      [0, { 1: 1 }],
    ],
  ];
  const available = Buffer.from([0b0111]).toString("base64");
  const d = createDistance(2, "bisimulation", 0.5, [[0], [2, 0]], rows, { available });
  const { steps, mismatchedPair, total } = d.explain(0, 1);
  assert.equal(steps.length, 0);
  assert.deepEqual(mismatchedPair, [0, 1]);
  assert.equal(total, 2);
  assert.match(describe(d, 0, 1)[0], /do not have the same actions/);
});

// 0 goes to 2 or 3, 1 to 3: the mass that both have in 3 stays there.
test("a stochastic step is a reward gap and the matches of a coupling", () => {
  const matrix = [[0], [1.5, 0], [3, 4, 0], [1, 0.5, 4, 0]];
  const rows = [[[0.5, { 2: 0.5, 3: 0.5 }]], [[0, { 3: 1 }]], [[0, { 2: 1 }]], [[0, { 3: 1 }]]];
  const d = createDistance(4, "bisimulation", 0.5, matrix, rows);
  const [step] = d.explain(0, 1).steps;
  assert.deepEqual(
    step.coupling.map(({ states, mass }) => [states, mass]),
    [
      [[2, 3], 0.5],
      [[3, 3], 0.5],
    ],
  );
  isClose(d.explain(0, 1).total, 0.5 + 0.5 * 0.5 * 4);
  assert.deepEqual(step.nextStates, [2, 3]);
});

test("a successor that is not on the page ends the path", () => {
  const rows = [[[0, { "-1": 1 }]], [[1, { 1: 1 }]]];
  const d = createDistance(2, "bisimulation", 0.5, [[0], [2, 0]], rows);
  assert.deepEqual(d.explain(0, 1).outsidePair, [0, 1]);
  assert.match(describe(d, 0, 1)[0], /not on this page/);
});

// All orders of a list.
function* permute(items) {
  if (!items.length) yield [];
  for (const [i, item] of items.entries())
    for (const rest of permute(items.toSpliced(i, 1))) yield [item, ...rest];
}

test("optimal couplings are as cheap as the best assignment of unit masses", () => {
  const position = (s) => (7 * s * s) % 11;
  const distance = (s, t) => Math.abs(position(s) - position(t));
  const count = (units) => {
    const masses = new Map();
    for (const s of units) masses.set(s, (masses.get(s) ?? 0) + 1 / units.length);
    return masses;
  };
  for (const [one, two] of [
    [
      [0, 0, 1, 2, 3],
      [1, 1, 4, 5, 5],
    ],
    [
      [0, 1, 2, 3, 4],
      [5, 6, 7, 8, 9],
    ],
    [
      [2, 2, 2, 2, 2],
      [2, 3, 3, 4, 4],
    ],
  ]) {
    const plan = computeOptimalCoupling(count(one), count(two), distance);
    const cost = plan.reduce(
      (sum, { states, mass }) => sum + mass * distance(states[0], states[1]),
      0,
    );
    let best = Infinity;
    for (const order of permute(two))
      best = Math.min(
        best,
        order.reduce((sum, t, i) => sum + distance(one[i], t) / one.length, 0),
      );
    isClose(cost, best);
    for (const [side, units] of [one, two].entries())
      for (const [s, mass] of count(units)) {
        const matched = plan.filter(({ states }) => states[side] === s);
        isClose(
          matched.reduce((sum, match) => sum + match.mass, 0),
          mass,
        );
      }
  }
});

test("the independent coupling has the product of the masses", () => {
  const plan = computeIndependentCoupling(
    new Map([
      [0, 0.25],
      [1, 0.75],
    ]),
    new Map([[2, 1]]),
  );
  assert.deepEqual(plan, [
    { states: [0, 2], mass: 0.25 },
    { states: [1, 2], mass: 0.75 },
  ]);
});
