// Colour scales of distances, and their legends.
import { createElement } from "./elements.js";
import { createNumberFormat } from "./numbers.js";
import { createTerm } from "./tooltips.js";

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

// From the smallest positive distance to the largest, not from 0: at discounts near 1 all positive
// distances are large, and colours would not distinguish them.
export function createDistanceScale(numbers, shades, error) {
  const zeroLevel = error || 0;
  let [low, high] = [Infinity, 0];
  for (const x of numbers) {
    if (x > high) high = x;
    if (x > zeroLevel && x < low) low = x;
  }
  if (high <= zeroLevel) [low, high] = [0, 1];
  else if (low >= 0.999 * high) low = 0;
  const log = isDominated(numbers, zeroLevel, low, high);
  const position = log
    ? (x) => Math.log(x / low) / Math.log(high / low)
    : (x) => (x - low) / (high - low);
  const colour = (x) => {
    if (x <= zeroLevel) return "#ffffff";
    const place = Math.round(position(x) * (shades.length - 1));
    return shades[Math.max(0, Math.min(shades.length - 1, place))];
  };
  return { colour, low, high, shades, zero: true, log };
}

// Whether few distances dominate a linear scale, as in `views/norms.py`: at most a tenth of them
// in its upper half, and the largest at least five times the smallest.
function isDominated(numbers, zeroLevel, low, high) {
  if (!(low > 0) || high < 5 * low) return false;
  let [positive, upper] = [0, 0];
  for (const x of numbers) {
    if (x > zeroLevel) positive++;
    if (x > (low + high) / 2) upper++;
  }
  return positive >= 8 && upper <= 0.1 * positive;
}

// A diverging scale, symmetric around 0: blue below, grey at 0, orange above.
export function createDifferenceScale(numbers) {
  let high = 0;
  for (const x of numbers) high = Math.max(high, Math.abs(x));
  const shades = [...BELOW.slice(0, -1), ...ABOVE];
  const colour = (x) => interpolate(shades, high ? (x / high + 1) / 2 : 0.5);
  return { colour, low: -high, high, shades, zero: false };
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
  const middle = scale.log ? Math.sqrt(scale.low * scale.high) : (scale.low + scale.high) / 2;
  const marks = [];
  if (scale.log) marks.push(createLegendEntry("logarithmic scale"));
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
        ...[scale.low, middle, scale.high].map((x) => createElement("span", {}, formatDistance(x))),
      ),
    ),
    createElement("div", { class: "legend" }, ...marks, ...entries),
  );
}

const createLegendEntry = (...parts) => createElement("span", { class: "swatch" }, ...parts);

export const createSwatch = (colour, words) =>
  createLegendEntry(createElement("i", { style: `background: ${colour}` }), words);
