// From distances to colours, and the bar that shows how.
import { element } from "./elements.js";
import { format } from "./numbers.js";
import { term } from "./tips.js";

// Twelve colours of classes, those of `views/class_colours.py`.
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
];
const BELOW = ["#08306b", "#2171b5", "#6baed6", "#c6dbef", "#f4f4f4"];
const ABOVE = ["#f4f4f4", "#fdd0a2", "#fd8d3c", "#d94801", "#7f2704"];

// From the smallest distance that is not 0 to the largest. It does not start at 0: at a discount
// near 1 all states that differ at all are far apart, and how far is what colours can show.
export function distanceScale(numbers, shades, error) {
  const nothing = error || 0;
  let [low, high] = [Infinity, 0];
  for (const x of numbers) {
    if (x > high) high = x;
    if (x > nothing && x < low) low = x;
  }
  if (high <= nothing) [low, high] = [0, 1];
  else if (low >= 0.999 * high) low = 0;
  const log = isDominated(numbers, nothing, low, high);
  const position = log
    ? (x) => Math.log(x / low) / Math.log(high / low)
    : (x) => (x - low) / (high - low);
  const colour = (x) => {
    if (x <= nothing) return "#ffffff";
    const place = Math.round(position(x) * (shades.length - 1));
    return shades[Math.max(0, Math.min(shades.length - 1, place))];
  };
  return { colour, low, high, shades, zero: true, log };
}

// Whether few distances dominate a linear scale, as `views/norms.py` tells: at most a tenth of them
// in its upper half, and the largest at least five times the smallest.
function isDominated(numbers, nothing, low, high) {
  if (!(low > 0) || high < 5 * low) return false;
  let [positive, upper] = [0, 0];
  for (const x of numbers) {
    if (x > nothing) positive++;
    if (x > (low + high) / 2) upper++;
  }
  return positive >= 8 && upper <= 0.1 * positive;
}

// Blue below 0, orange above, grey at 0; equally far on both sides.
export function differenceScale(numbers) {
  let high = 0;
  for (const x of numbers) high = Math.max(high, Math.abs(x));
  const shades = [...BELOW.slice(0, -1), ...ABOVE];
  const colour = (x) => mixed(shades, high ? (x / high + 1) / 2 : 0.5);
  return { colour, low: -high, high, shades, zero: false };
}

function mixed(shades, share) {
  const place = Math.max(0, Math.min(1, share)) * (shades.length - 1);
  const at = Math.min(Math.floor(place), shades.length - 2);
  const part = (colour, i) => parseInt(colour.slice(1 + 2 * i, 3 + 2 * i), 16);
  const channel = (i) =>
    Math.round(
      part(shades[at], i) + (place - at) * (part(shades[at + 1], i) - part(shades[at], i)),
    );
  return `rgb(${channel(0)}, ${channel(1)}, ${channel(2)})`;
}

// Black or white, whichever is read better on a colour.
export function ink(colour) {
  const parts = colour.startsWith("#")
    ? [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16))
    : colour.match(/\d+/g).map(Number);
  return 0.299 * parts[0] + 0.587 * parts[1] + 0.114 * parts[2] > 128 ? "#111" : "#fff";
}

// The bar under a map.
export function scaleBar(scale, { unknown = false, goals = false, others = false } = {}) {
  const written = format(Math.max(Math.abs(scale.low), scale.high));
  const middle = scale.log ? Math.sqrt(scale.low * scale.high) : (scale.low + scale.high) / 2;
  const marks = [];
  if (scale.log) marks.push(marked("logarithmic scale"));
  if (scale.zero) marks.push(swatch("#ffffff", "distance 0"));
  if (unknown) marks.push(marked(element("i", { class: "veil" }), term("not known")));
  if (others) marks.push(marked(element("i", { class: "other" }), "not on this page"));
  if (goals) marks.push(marked("★", term("goal")));
  return element(
    "div",
    { class: "scale" },
    element(
      "div",
      { class: "bar" },
      element("div", {
        class: "ramp",
        style: `background: linear-gradient(90deg, ${scale.shades.join(",")})`,
      }),
      element(
        "div",
        { class: "ticks" },
        ...[scale.low, middle, scale.high].map((x) => element("span", {}, written(x))),
      ),
    ),
    element("div", { class: "legend" }, ...marks),
  );
}

const marked = (...parts) => element("span", { class: "swatch" }, ...parts);

export const swatch = (colour, words) =>
  marked(element("i", { style: `background: ${colour}` }), words);
