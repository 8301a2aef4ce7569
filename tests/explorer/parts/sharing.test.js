// What leaves a page: commands and tables.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";
import {
  createExplainCommand,
  quoteArgument,
} from "../../../src/bisimetric/explorer/parts/commands.js";
import { formatRowTable, listPairTables } from "../../../src/bisimetric/explorer/parts/csv.js";
import { PageDistance } from "../../../src/bisimetric/explorer/parts/explanation.js";
import { createFileName } from "../../../src/bisimetric/explorer/parts/save_menu.js";
import { createDistanceData, encodeBits } from "./encoding.js";

const LOOPS = [[[1, { 0: 1 }]], [[0, { 1: 1 }]], [[0, { 2: 1 }]]];
const MATRIX = [[0], [2, 0], [0.1 + 0.2, 4, 0]];
const createDistance = (more = {}) =>
  new PageDistance(3, { ...createDistanceData("bisimulation", 0.5, MATRIX, LOOPS), ...more });

test("a shell reads back what was quoted", () => {
  const texts = [
    "1,5",
    "a b",
    "it's",
    '"',
    "$HOME",
    "`ls`",
    "a\nb",
    "*",
    "~",
    "é",
    "",
    "#1",
    "!x",
    "-",
  ];
  for (const text of texts) {
    const command = `printf '%s' ${quoteArgument(text)}`;
    assert.equal(execFileSync("/bin/sh", ["-c", command], { encoding: "utf8" }), text);
  }
  assert.equal(quoteArgument("dir/d.npz"), "dir/d.npz");
});

test("a command needs a file, and states that have a name", () => {
  const command = { file: "my d.npz", states: ["1,1", null, "it's"] };
  assert.equal(
    createExplainCommand({ command }, 0, 2),
    `bisimetric explain 'my d.npz' 1,1 'it'"'"'s'`,
  );
  assert.equal(createExplainCommand({ command }, 0, 1), null);
  assert.equal(createExplainCommand({ command: null }, 0, 2), null);
  const dashed = { file: "-d.npz", states: ["0", "1"] };
  assert.equal(createExplainCommand({ command: dashed }, 0, 1), "bisimetric explain ./-d.npz 0 1");
});

test("a table has the distances of one state, with all digits", () => {
  const text = formatRowTable(["a", 'b "2"', "1,3"], [createDistance()], 0);
  assert.equal(text, 'from,to,d\r\na,a,0\r\na,"b ""2""",2\r\na,"1,3",0.30000000000000004\r\n');
});

test("unknown distances are empty, and lower bounds are marked", () => {
  const determined = encodeBits([1, 1, 1, 0, 1, 1].map(Boolean));
  const d = createDistance({ unknown: [1], determined });
  const [text] = [...listPairTables(["a", "b", "c"], [d, createDistance({ label: "e" })])];
  assert.equal(
    text,
    [
      "first,second,d,d is a lower bound,e",
      "a,b,,false,2",
      "a,c,0.30000000000000004,true,0.30000000000000004",
      "b,c,,false,4",
      "",
    ].join("\r\n"),
  );
});

test("a large table has several parts and every pair once", () => {
  const n = 240;
  const names = Array.from({ length: n }, (_, s) => String(s));
  const d = {
    label: "d",
    isDetermined: null,
    matrix: { step: 0 },
    at: (s, t) => s + t,
    has: () => true,
  };
  const parts = [...listPairTables(names, [d])];
  assert.ok(parts.length > 1);
  const rows = parts.join("").trimEnd().split("\r\n").slice(1);
  assert.equal(rows.length, (n * (n - 1)) / 2);
  assert.equal(new Set(rows).size, rows.length);
  assert.equal(rows.at(-1), "238,239,477");
});

test("file names have letters, digits and hyphens", () => {
  assert.equal(createFileName("../two rooms: 3,4"), "two-rooms-3-4");
  assert.equal(createFileName("…"), "bisimetric");
  assert.equal(createFileName("x".repeat(200)).length, 60);
});
