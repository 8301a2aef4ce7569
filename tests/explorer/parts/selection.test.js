import assert from "node:assert/strict";
import { test } from "node:test";
import { Selection } from "../../../src/bisimetric/explorer/parts/selection.js";

const pair = ({ first, second }) => [first, second];

test("arrow, Enter, arrow, Enter selects a pair", () => {
  const selection = new Selection();
  selection.move(1);
  assert.deepEqual(pair(selection), [1, null]);
  selection.select(selection.cursor);
  selection.move(11);
  assert.deepEqual(pair(selection), [1, 11]);
  selection.select(selection.cursor);
  assert.deepEqual(pair(selection), [1, 11]);
  assert.ok(selection.hasSecond);
});

test("after a pair, the next click selects a source", () => {
  const selection = new Selection(3);
  selection.selectPair(4, 5);
  selection.select(6);
  assert.deepEqual(pair(selection), [6, null]);
  selection.select(6);
  assert.deepEqual(pair(selection), [6, 6]);
  selection.clear();
  assert.deepEqual(pair(selection), [6, null]);
  assert.ok(!selection.hasSource);
});

test("listeners get the changes", () => {
  const selection = new Selection();
  const seen = [];
  selection.listen((changes) => seen.push(changes));
  selection.set({ distance: 2 });
  assert.deepEqual(seen, [{ distance: 2 }]);
  assert.equal(selection.distance, 2);
});
