// States that are found: by a search, and by the guide.
import assert from "node:assert/strict";
import { test } from "node:test";
import { PageDistance } from "../../../src/bisimetric/explorer/parts/explanation.js";
import { findStrikingPair } from "../../../src/bisimetric/explorer/parts/guide.js";
import { StateLayout } from "../../../src/bisimetric/explorer/parts/state_layout.js";
import { findStates } from "../../../src/bisimetric/explorer/parts/state_search.js";
import { createDistanceData } from "./encoding.js";

test("states are found by name, number, prefix, word and part, in this order", () => {
  const names = ["hall 4", "14", "4", "kitchen", "4th floor", "the hall"];
  assert.deepEqual(findStates("4", names), [2, 4, 0, 1]);
  assert.deepEqual(findStates("#3", names), [3]);
  assert.deepEqual(findStates("HALL", names), [0, 5]);
  assert.deepEqual(findStates("itch", names), [3]);
  assert.deepEqual(findStates("  ", names), []);
  assert.deepEqual(findStates("cellar", names), []);
});

test("numbers are those of the MDP, and the list is short", () => {
  const names = Array.from({ length: 100 }, (_, s) => `s${7 * s}`);
  const ids = names.map((_, s) => 7 * s);
  assert.equal(findStates("14", names, ids)[0], 2);
  assert.equal(findStates("s", names, ids).length, 8);
  assert.deepEqual(findStates("#15", names, ids), []);
});

// Four cells in a row, each with a self-loop of the given reward, at discount 1/2.
function createRow(rewards, more = {}) {
  const matrix = rewards.map((r, s) =>
    rewards.slice(0, s + 1).map((other) => 2 * Math.abs(r - other)),
  );
  const rows = rewards.map((r, s) => [[r, { [s]: 1 }]]);
  const data = createDistanceData("bisimulation", 0.5, matrix, rows);
  const map = {
    width: rewards.length,
    height: 1,
    rows: rewards.map(() => 0),
    columns: [...rewards.keys()],
  };
  const names = rewards.map(String);
  return [
    new PageDistance(rewards.length, { ...data, ...more }),
    new StateLayout({ names, map, points: null }),
    new StateLayout({ names, map: null, points: rewards.map((r, s) => [r, s / 9]) }),
  ];
}

test("the guide shows neighbouring cells at a large distance", () => {
  const [d, layout] = createRow([0, 1, 9, 10]);
  assert.deepEqual(findStrikingPair(d, layout), { pair: [1, 2], isAdjacent: true });
});

test("or the states that differ most: of points, and of maps without such neighbours", () => {
  const [d, , points] = createRow([0, 1, 9, 10]);
  assert.deepEqual(findStrikingPair(d, points), { pair: [0, 3], isAdjacent: false });
  const [even, layout] = createRow([0, 1, 2, 3, 4]);
  assert.deepEqual(findStrikingPair(even, layout), { pair: [0, 4], isAdjacent: false });
});

test("unknown states are not shown, nor pairs at distance 0", () => {
  const [d, layout] = createRow([0, 1, 9, 10], { unknown: [2] });
  assert.deepEqual(findStrikingPair(d, layout), { pair: [0, 3], isAdjacent: false });
  const [zero, row] = createRow([1, 1, 1]);
  assert.equal(findStrikingPair(zero, row), null);
});
