// Text grids, classes and the history of the playground.
import assert from "node:assert/strict";
import test from "node:test";
import {
  computeMerges,
  labelClasses,
  listThresholds,
} from "../../../src/bisimetric/explorer/parts/playground_classes.js";
import {
  buildMdp,
  countStates,
  decodeGrid,
  encodeGrid,
  fillArrows,
  formatGrid,
  listCellsBetween,
  paintCells,
  parseGrid,
  removeArrows,
  resizeGrid,
} from "../../../src/bisimetric/explorer/parts/playground_grid.js";
import { History } from "../../../src/bisimetric/explorer/parts/playground_history.js";
import { PRESETS } from "../../../src/bisimetric/explorer/parts/playground_presets.js";

test("a grid is parsed, formatted and encoded", () => {
  const text = "*^g *\n*1x9*";
  const grid = parseGrid(`\n${text}\r\n\n`);
  assert.deepEqual([grid.rows, grid.columns], [2, 5]);
  assert.equal(formatGrid(grid), text);
  assert.equal(encodeGrid(grid), "*ug.*_*1x9*");
  assert.deepEqual(decodeGrid(encodeGrid(grid)), grid);
  // Nothing in it is changed by the encoding of an address.
  assert.equal(String(new URLSearchParams({ grid: encodeGrid(grid) })), `grid=${encodeGrid(grid)}`);
  assert.equal(countStates(grid), 6);
});

test("what is no grid is reported with its place", () => {
  for (const [text, message] of [
    ["", /empty/],
    ["**\n*", /Line 2 has 1 characters and line 1 has 2/],
    ["**\n*y", /Line 2, column 2 is “y”/],
    [" ".repeat(41), /1 rows and 41 columns/],
  ])
    assert.throws(() => parseGrid(text), message);
  for (const text of ["", "?", "..._.."]) assert.equal(decodeGrid(text), null);
});

test("moves, rewards and arrows", () => {
  const mdp = buildMdp(parseGrid("*>5\ng^x"));
  assert.deepEqual(mdp.names, ["0,1", "0,2", "1,0", "1,1", "1,2"]);
  assert.deepEqual([...mdp.next.slice(0, 4)], [0, 3, 0, 1]);
  assert.deepEqual([...mdp.R.slice(0, 4)], [-1, 0, -1, 0.5]);
  assert.deepEqual([...mdp.R.slice(12, 16)], [0, -1, 1, -1]);
  assert.deepEqual([...mdp.policy], [3, 1, 1, 0, 1]);
  assert.equal(buildMdp(parseGrid("g")).policy, null);
});

test("painting, arrows and strokes", () => {
  const grid = parseGrid("   \n g ");
  assert.equal(formatGrid(paintCells(grid, [0, 5], "*")), "*  \n g*");
  assert.equal(paintCells(grid, [4], "g"), grid);
  const arrows = fillArrows(grid, [0, 1, 2, 3, 0, 1]);
  assert.equal(formatGrid(arrows), "^v<\n>gv");
  assert.deepEqual(removeArrows(arrows), grid);
  assert.deepEqual(listCellsBetween(parseGrid("    \n    \n    "), 0, 11), [0, 5, 6, 11]);
  assert.deepEqual(listCellsBetween(grid, 4, 4), [4, 4]);
});

test("a border stays one when the size changes", () => {
  const grid = parseGrid("****\n* g*\n****");
  assert.equal(formatGrid(resizeGrid(grid, 4, 6)), "******\n* g  *\n*    *\n******");
  assert.equal(formatGrid(resizeGrid(grid, 3, 3)), "***\n* *\n***");
  assert.deepEqual(resizeGrid(grid, 3, 4), grid);
});

test("classes by complete linkage", () => {
  const points = [0, 1, 5, 7];
  const distances = Float64Array.from(
    points.flatMap((x, s) => points.slice(0, s + 1).map((y) => Math.abs(x - y))),
  );
  const merges = computeMerges(distances, 4);
  assert.deepEqual(listThresholds(merges), [0, 1, 2, 7]);
  assert.deepEqual([...labelClasses(merges, 1, 4)], [0, 0, 1, 2]);
  assert.deepEqual([...labelClasses(merges, 6.9, 4)], [0, 0, 1, 1]);
  assert.deepEqual([...labelClasses(merges, 7, 4)], [0, 0, 0, 0]);
  assert.deepEqual(computeMerges(new Float64Array(1), 1), []);
});

test("undo and redo", () => {
  const history = new History({ at: 0 });
  assert.equal(history.undo(), null);
  for (const at of [1, 2, 2, 3]) history.push({ at });
  assert.deepEqual([history.undo(), history.undo()], [{ at: 2 }, { at: 1 }]);
  assert.deepEqual(history.redo(), { at: 2 });
  history.push({ at: 4 });
  assert.equal(history.canRedo, false);
  assert.deepEqual(history.undo(), { at: 2 });
});

test("presets have the two states that they select", () => {
  for (const { name, text, states, discount } of Object.values(PRESETS)) {
    const { names } = buildMdp(parseGrid(text));
    assert.ok(
      states.every((state) => names.includes(state)),
      name,
    );
    assert.ok(discount > 0 && discount < 1);
  }
});
