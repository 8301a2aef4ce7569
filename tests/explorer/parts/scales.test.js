import assert from "node:assert/strict";
import { test } from "node:test";
import {
  contrastColour,
  createDifferenceScale,
  createDistanceScale,
  PALETTE,
} from "../../../src/bisimetric/explorer/parts/scales.js";

const SHADES = ["#000000", "#222222", "#444444", "#666666", "#888888"];

test("distances within the error are white", () => {
  const { colour } = createDistanceScale([0, 1e-9, 1, 2], SHADES, 1e-8);
  assert.equal(colour(1e-9), "#ffffff");
  assert.equal(colour(1), SHADES[0]);
  assert.equal(colour(2), SHADES[4]);
  assert.equal(colour(5), SHADES[4]);
});

test("a scale starts at the smallest positive distance, or at 0 if all are equal", () => {
  assert.equal(createDistanceScale([0, 9, 10], SHADES, 0).low, 9);
  assert.equal(createDistanceScale([0, 10, 10], SHADES, 0).low, 0);
  assert.deepEqual(
    (({ low, high }) => [low, high])(createDistanceScale([0, 0], SHADES, 0)),
    [0, 1],
  );
});

const FEW_FAR = [1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5, 100];

test("a scale that few distances dominate is logarithmic, or by quantiles if they are close", () => {
  const scale = createDistanceScale(FEW_FAR, SHADES, 0);
  assert.match(scale.note, /logarithmic/);
  assert.equal(scale.middle, 10);
  assert.equal(scale.colour(10), SHADES[2]);
  assert.equal(createDistanceScale([...FEW_FAR, 90], SHADES, 0).note, null);
  const close = [1, 1.1, 1.1, 1.2, 1.2, 1.2, 1.3, 1.3, 1.3, 4];
  assert.match(createDistanceScale(close, SHADES, 0).note, /quantile/);
  assert.equal(createDistanceScale(FEW_FAR.slice(3), SHADES, 0).note, null);
});

test("a norm can be chosen", () => {
  assert.equal(createDistanceScale(FEW_FAR, SHADES, 0, "linear").colour(10), SHADES[0]);
  assert.equal(createDistanceScale([1, 2, 3, 100], SHADES, 0, "log").colour(10), SHADES[2]);
  // Where all distances are equal there is no other norm.
  assert.equal(createDistanceScale([0, 2, 2], SHADES, 0, "log").note, null);
});

test("quantiles are ranks among the positive distances; equal distances have one colour", () => {
  const { colour, low, middle, high } = createDistanceScale(
    [0, 7, 1, 3, 3, 1e6],
    SHADES,
    0,
    "quantile",
  );
  assert.deepEqual([0, 1, 3, 7, 1e6].map(colour), [
    "#ffffff",
    SHADES[0],
    SHADES[1],
    SHADES[3],
    SHADES[4],
  ]);
  assert.deepEqual([low, middle, high], [1, 3, 1e6]);
});

test("differences are symmetric around 0", () => {
  const { colour, low, high } = createDifferenceScale([-1, 4]);
  assert.deepEqual([low, high], [-4, 4]);
  assert.equal(colour(0), "rgb(244, 244, 244)");
  assert.equal(createDifferenceScale([0]).colour(0), "rgb(244, 244, 244)");
});

function luminance(colour) {
  const channels = [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16) / 255);
  const [red, green, blue] = channels.map((c) =>
    c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4,
  );
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

test("text has a contrast of at least 4.5 to 1 with every colour", () => {
  const greys = Array.from(
    { length: 256 },
    (_, i) => `#${i.toString(16).padStart(2, "0").repeat(3)}`,
  );
  for (const colour of [...PALETTE, ...greys]) {
    const text = contrastColour(colour) === "#000" ? 0 : 1;
    const levels = [luminance(colour), text].sort((a, b) => b - a);
    assert.ok((levels[0] + 0.05) / (levels[1] + 0.05) >= 4.5, colour);
  }
});
