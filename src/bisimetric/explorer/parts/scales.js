// Colour scales of distances, and their legends.
import { createElement } from "./elements.js";
import { createNumberFormat } from "./numbers.js";
import { createTerm } from "./tooltips.js";

/** @import { ColourScale } from "./types.d.ts" */

// Colours of classes, those of `views/class_colours.py`: twelve, and twelve more where neighbours
// have all of these.
export const PALETTE = [
  "#0072b2",
  "#e69f00",
  "#009e73",
  "#cc79a7",
  "#56b4e9",
  "#d55e00",
  "#f0e442",
  "#2020d8",
  "#303000",
  "#a8f090",
  "#600060",
  "#7f5539",
  "#000000",
  "#7070ff",
  "#400090",
  "#604050",
  "#70b060",
  "#d0d0b0",
  "#904000",
  "#50a0ff",
  "#90e0ff",
  "#f0ff80",
  "#001030",
  "#805080",
];
export const NUM_COMMON_COLOURS = 12;
const BELOW = ["#08306b", "#2171b5", "#6baed6", "#c6dbef", "#f4f4f4"];
const ABOVE = ["#f4f4f4", "#fdd0a2", "#fd8d3c", "#d94801", "#7f2704"];

// Norms of a scale, those of `views/norms.py`, with their names.
export const NORMS = {
  auto: "automatic",
  linear: "linear",
  log: "logarithmic",
  quantile: "rank (quantiles)",
};

/**
 * A scale from the smallest positive distance to the largest, not from 0: at discounts near 1 all
 * positive distances are large, and colours would not distinguish them.
 * @param {ArrayLike<number>} numbers
 * @param {string[]} shades
 * @param {number | null} error distances up to it are 0
 * @param {string} norm a key of `NORMS`
 * @returns {ColourScale}
 */
export function createDistanceScale(numbers, shades, error, norm = "auto") {
  const zeroLevel = error || 0;
  let [low, high] = [Infinity, 0];
  for (let i = 0; i < numbers.length; i++) {
    const x = numbers[i];
    if (x > high) high = x;
    if (x > zeroLevel && x < low) low = x;
  }
  if (high <= zeroLevel) [low, high] = [0, 1];
  else if (low >= 0.999 * high) low = 0;
  const chosen = norm === "auto" ? chooseNorm(numbers, zeroLevel, low, high) : norm;
  const { position, middle, note } = createNorm(low > 0 ? chosen : "linear", numbers, low, high);
  const colour = (x) => {
    if (x <= zeroLevel) return "#ffffff";
    const place = Math.round(position(x) * (shades.length - 1));
    return shades[Math.max(0, Math.min(shades.length - 1, place))];
  };
  return { colour, low, middle, high, shades, zero: true, note };
}

// The position from 0 to 1 of a distance between `low` and `high`, the distance in the middle, and a
// note for the legend.
function createNorm(norm, numbers, low, high) {
  if (norm === "log")
    return {
      position: (x) => Math.log(x / low) / Math.log(high / low),
      middle: Math.sqrt(low * high),
      note: "logarithmic scale",
    };
  if (norm === "quantile") {
    const sorted = Float64Array.from(numbers)
      .filter((x) => x >= low)
      .sort();
    const last = sorted.length - 1;
    return {
      position: (x) => (x >= high ? 1 : findFirst(sorted, x) / last),
      middle: sorted[Math.round(last / 2)],
      note: "quantile scale: equally many distances per colour",
    };
  }
  return {
    position: (x) => (x - low) / (high - low),
    middle: (low + high) / 2,
    note: null,
  };
}

// The index of the first number of a sorted array that is at least x.
function findFirst(sorted, x) {
  let [start, end] = [0, sorted.length];
  while (start < end) {
    const middle = (start + end) >> 1;
    if (sorted[middle] < x) start = middle + 1;
    else end = middle;
  }
  return start;
}

// The norm of "auto", as in `views/norms.py`: linear, unless few distances dominate the scale, at most
// a tenth of them in its upper half.
function chooseNorm(numbers, zeroLevel, low, high) {
  if (!(low > 0)) return "linear";
  let [positive, upper] = [0, 0];
  for (let i = 0; i < numbers.length; i++) {
    if (numbers[i] > zeroLevel) positive++;
    if (numbers[i] > (low + high) / 2) upper++;
  }
  if (positive < 8 || upper > 0.1 * positive) return "linear";
  return high >= 5 * low ? "log" : "quantile";
}

/**
 * A diverging scale, symmetric around 0: blue below, grey at 0, orange above.
 * @returns {ColourScale}
 */
export function createDifferenceScale(numbers) {
  let high = 0;
  for (const x of numbers) high = Math.max(high, Math.abs(x));
  const shades = [...BELOW.slice(0, -1), ...ABOVE];
  const colour = (x) => interpolate(shades, high ? (x / high + 1) / 2 : 0.5);
  return { colour, low: -high, middle: 0, high, shades, zero: false, note: null };
}

function interpolate(shades, fraction) {
  const place = Math.max(0, Math.min(1, fraction)) * (shades.length - 1);
  const at = Math.min(Math.floor(place), shades.length - 2);
  const parseChannel = (colour, i) => parseInt(colour.slice(1 + 2 * i, 3 + 2 * i), 16);
  const channel = (i) =>
    Math.round(
      parseChannel(shades[at], i) +
        (place - at) * (parseChannel(shades[at + 1], i) - parseChannel(shades[at], i)),
    );
  return `rgb(${channel(0)}, ${channel(1)}, ${channel(2)})`;
}

// Black or white, whichever has the larger contrast with a colour: at least 4.58 to 1 (WCAG 2).
export function contrastColour(colour) {
  const parts = colour.startsWith("#")
    ? [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16))
    : colour.match(/\d+/g).map(Number);
  const [red, green, blue] = parts.map((part) =>
    part <= 10 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4,
  );
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.1791 ? "#000" : "#fff";
}

// The entries of a legend for what is drawn over the colours of a map.
export function createMarkEntries({ goals, holes, map }, hasUnknown = false) {
  const createIcon = (name) => createElement("i", { class: name });
  const found = [
    [hasUnknown, createIcon("unknown"), createTerm("unknown")],
    [map?.unsampledCells.length, createIcon("unsampled"), "not on this page"],
    [goals.length, "★", createTerm("goal")],
    [holes.length, "●", createTerm("absorbing")],
    [map?.headings.length, "▲", createTerm("heading")],
    [map?.stands.length, "R", createTerm("stand")],
    [map?.walls.length, "❙", "wall"],
  ];
  return found.filter(([isShown]) => isShown).map((parts) => createLegendEntry(...parts.slice(1)));
}

// The bar under a map; `entries` of its legend.
export function createScaleBar(scale, entries) {
  const formatDistance = createNumberFormat(Math.max(Math.abs(scale.low), scale.high));
  const marks = [];
  if (scale.note) marks.push(createLegendEntry(scale.note));
  if (scale.zero) marks.push(createSwatch("#ffffff", "distance 0"));
  return createElement(
    "div",
    { class: "scale" },
    createElement(
      "div",
      { class: "bar" },
      createElement("div", {
        class: "ramp",
        style: `background: linear-gradient(90deg, ${scale.shades.join(",")})`,
      }),
      createElement(
        "div",
        { class: "ticks" },
        ...[scale.low, scale.middle, scale.high].map((x) =>
          createElement("span", {}, formatDistance(x)),
        ),
      ),
    ),
    createElement("div", { class: "legend" }, ...marks, ...entries),
  );
}

const createLegendEntry = (...parts) => createElement("span", { class: "swatch" }, ...parts);

export const createSwatch = (colour, words) =>
  createLegendEntry(createElement("i", { style: `background: ${colour}` }), words);
