import assert from "node:assert/strict";
import { test } from "node:test";
import { StateLayout } from "../../../src/bisimetric/explorer/parts/state_layout.js";

const DIRECTIONS = [
  [1, 0],
  [-1, 0],
  [0, 1],
  [0, -1],
];

// A repeatable sequence in [0, 1): a linear congruential generator.
function createRandom(seed) {
  let state = seed;
  return () => (state = (1103515245 * state + 12345) % 2 ** 31) / 2 ** 31;
}

function createPoints(count) {
  const random = createRandom(1);
  const points = Array.from({ length: count }, () => [random(), random()]);
  return new StateLayout({ names: points.map(String), map: null, points });
}

// Two rooms of 2 x 2 cells and a cell between them.
function createRooms() {
  const cells = [
    [0, 0],
    [0, 1],
    [1, 0],
    [1, 1],
    [1, 2],
    [1, 3],
    [1, 4],
    [0, 3],
    [0, 4],
  ];
  const map = {
    width: 5,
    height: 2,
    rows: cells.map(([row]) => row),
    columns: cells.map(([, column]) => column),
  };
  return new StateLayout({ names: cells.map(String), map, points: null });
}

function reach(layout) {
  const found = new Set([0]);
  for (const s of found)
    for (const [dx, dy] of DIRECTIONS) found.add(layout.findNeighbour(s, dx, dy));
  return found;
}

test("arrow keys reach every state of a map and of points", () => {
  assert.equal(reach(createRooms()).size, 9);
  assert.equal(reach(createPoints(150)).size, 150);
});

test("between points, the opposite arrow leads back", () => {
  const layout = createPoints(150);
  for (let s = 0; s < layout.count; s++)
    for (const [dx, dy] of DIRECTIONS) {
      const next = layout.findNeighbour(s, dx, dy);
      if (next !== s) assert.equal(layout.findNeighbour(next, -dx, -dy), s);
    }
});

test("a position belongs to the state of its cell, or to the nearest point", () => {
  const rooms = createRooms();
  assert.equal(rooms.findState(2.5, 1.5, 0), 4);
  assert.equal(rooms.findState(2.5, 0.5, 0), null);
  const points = createPoints(30);
  for (let s = 0; s < points.count; s++) {
    const found = points.findState(points.x[s], points.y[s], 0);
    assert.equal(points.x[found], points.x[s]);
  }
  assert.equal(points.findState(-50, -50, 1), null);
});

test("adjacent cells share a side or a corner", () => {
  const pairs = createRooms()
    .listAdjacentPairs()
    .map(([s, t]) => [Math.min(s, t), Math.max(s, t)].join());
  assert.equal(new Set(pairs).size, pairs.length);
  for (const pair of ["0,1", "0,2", "0,3", "1,2", "1,4", "3,4", "4,5", "4,7"])
    assert.ok(pairs.includes(pair), pair);
  assert.ok(!pairs.includes("0,4"));
});

test("points are inside of the drawing", () => {
  const { x, y, width, height, size } = createPoints(60);
  for (let s = 0; s < 60; s++) {
    assert.ok(x[s] > size / 2 && x[s] < width - size / 2);
    assert.ok(y[s] > size / 2 && y[s] < height - size / 2);
  }
});
