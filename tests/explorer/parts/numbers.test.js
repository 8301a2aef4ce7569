import assert from "node:assert/strict";
import { test } from "node:test";
import {
  createNumberFormat,
  decodeMask,
  DistanceMatrix,
  formatCount,
  formatNumber,
  pairIndex,
  parseIndex,
  parseIndices,
  pluralise,
} from "../../../src/bisimetric/explorer/parts/numbers.js";
import { encode, encodeBits, encodeMatrix } from "./encoding.js";

test("a matrix is read from its lower triangle, in either order", () => {
  const matrix = new DistanceMatrix(3, encodeMatrix([[0], [1.5, 0], [2, 0.25, 0]]));
  assert.equal(matrix.at(0, 2), 2);
  assert.equal(matrix.at(2, 1), 0.25);
  assert.deepEqual([...matrix.row(1)], [1.5, 0, 0.25]);
  assert.equal(matrix.largest, 2);
});

test("24 bits are multiples of a step", () => {
  const data = encode(Uint8Array.from([0, 0, 0, 1, 0, 0, 0, 1, 0]));
  const matrix = new DistanceMatrix(2, { encoding: "uint24", step: 0.5, data });
  assert.deepEqual([...matrix.values], [0, 0.5, 128]);
});

test("indices of pairs are those of the lower triangle, row by row", () => {
  const found = [];
  for (let s = 0; s < 4; s++) for (let t = 0; t <= s; t++) found.push(pairIndex(s, t));
  assert.deepEqual(found, [...found.keys()]);
  assert.equal(pairIndex(1, 3), pairIndex(3, 1));
});

test("masks have eight entries per byte, the first one lowest", () => {
  const bits = [true, false, false, true, false, false, false, false, true];
  const mask = decodeMask(encodeBits(bits));
  assert.deepEqual(
    bits.map((_, i) => mask(i)),
    bits,
  );
});

test("numbers of a map have the same decimals, four digits of the largest", () => {
  assert.deepEqual([0, 0.5, 9.9].map(createNumberFormat(9.9)), ["0", "0.500", "9.900"]);
  assert.deepEqual([0, 3, 123.456].map(createNumberFormat(123.456)), ["0", "3.0", "123.5"]);
  assert.equal(createNumberFormat(2e-7)(1.234e-7), "1.2e-7");
  // 9.9999 has four digits as 10.00.
  assert.equal(createNumberFormat(9.99996)(1), "1.00");
  assert.equal(createNumberFormat(0)(0), "0");
});

test("subnormal bounds on the error of an exact 0 are 0", () => {
  assert.equal(formatNumber(1.98e-322), "0");
  assert.equal(formatNumber(2 ** -1022, 3), "2.23e-308");
  assert.equal(formatNumber(0.1 + 0.2), "0.3");
  assert.equal(formatNumber(-1234567.8, 3), "-1230000");
  assert.equal(formatNumber(12345678, 5), "1.23e+7");
});

test("counts agree with their nouns", () => {
  assert.equal(formatCount(1234567), "1,234,567");
  assert.equal(pluralise(1, "class", "classes"), "1 class");
  assert.equal(pluralise(2000, "state"), "2,000 states");
});

test("only indices below the count are parsed", () => {
  assert.equal(parseIndex("7", 8), 7);
  for (const text of ["8", "-1", "1e3", "", " 1", "0x1", "1.0"])
    assert.equal(parseIndex(text, 8), null, text);
  assert.deepEqual(parseIndices("3,5", 6), [3, 5]);
  assert.deepEqual(parseIndices("0", 6), [0]);
  for (const text of ["3,6", "3,", ",3", "1,2,3", "a"])
    assert.deepEqual(parseIndices(text, 6), [], text);
});
