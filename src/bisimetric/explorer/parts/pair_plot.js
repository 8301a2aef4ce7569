// A scatter plot of two numbers per pair of states, with the diagonal.
import * as Plot from "./charts.js";
import { abbreviate, createElement, describeChart } from "./elements.js";
import { pluralise, formatNumber } from "./numbers.js";
import { isDark } from "./theme.js";

const MAX_DOTS = 3000;
const NUM_BINS = 60;
const DOT_RADIUS = 14; // pixels
const PLOT_COLOURS = { all: "#3b7dd8", first: "#e4007c", second: "#d06a00", diagonal: "#d55e00" };

// Points x, y, x, y, ... as dots; of many pairs, counts per bin.
export function binPairs(points) {
  let [maxX, maxY] = [0, 0];
  for (let i = 0; i < points.length; i += 2) {
    maxX = Math.max(maxX, points[i]);
    maxY = Math.max(maxY, points[i + 1]);
  }
  const high = Math.max(maxX, maxY) || 1;
  const isDense = points.length / 2 > MAX_DOTS;
  return {
    high,
    maxY,
    isDense,
    all: isDense ? countPairs(points, high, maxY || 1) : listPoints(points),
  };
}

function listPoints(points) {
  const found = [];
  for (let i = 0; i < points.length; i += 2) found.push({ x: points[i], y: points[i + 1] });
  return found;
}

// Counts of pairs per bin.
function countPairs(points, maxX, maxY) {
  const counts = new Uint32Array(NUM_BINS * NUM_BINS);
  const place = (value, most) => Math.min(NUM_BINS - 1, Math.floor((value / most) * NUM_BINS));
  for (let i = 0; i < points.length; i += 2)
    counts[place(points[i], maxX) * NUM_BINS + place(points[i + 1], maxY)] += 1;
  const found = [];
  counts.forEach((count, key) => {
    const [i, j] = [Math.floor(key / NUM_BINS), key % NUM_BINS];
    const [x1, x2] = [i, i + 1].map((side) => (side * maxX) / NUM_BINS);
    const [y1, y2] = [j, j + 1].map((side) => (side * maxY) / NUM_BINS);
    if (count) found.push({ x1, x2, y1, y2, count });
  });
  return found;
}

// All pairs are drawn once; those of the selected state, which change with every click, on a canvas
// above them.
export class PairPlot {
  // `select(state)` is called on a click on a pair of the selected state.
  constructor(host, tooltip, select) {
    this.tooltip = tooltip;
    this.selectedPairs = [];
    this.canvas = createElement("canvas", { "aria-hidden": "true" });
    this.frame = createElement("div", { class: "pair-plot" });
    this.legend = createElement("p", { class: "quiet" });
    host.append(this.frame, this.legend);
    this.frame.addEventListener("pointermove", (event) => this.hover(event));
    this.frame.addEventListener("pointerleave", () => tooltip.hide());
    this.frame.addEventListener("click", (event) => {
      const pair = this.findPair(event);
      if (pair) select(pair.t);
    });
  }

  // `x`, `y`: labels of the axes; `label`: a summary for screen readers; `shade` marks the region above the diagonal.
  draw({ high, maxY, isDense, all }, { x, y, label, shade = false }) {
    this.axes = [x, y];
    const width = this.frame.clientWidth || 280;
    const most = 1.2 * high;
    const diagonal = [0, most].map((end) => ({ x: end, y: end }));
    this.chart = Plot.plot({
      width,
      height: 340,
      marginLeft: 56,
      marginBottom: 42,
      style: { background: "none", fontSize: "12px" },
      x: { label: x, domain: [0, high], nice: true, grid: true },
      y: {
        label: y,
        domain: [0, shade ? maxY * 1.08 || high : high],
        nice: true,
        grid: true,
      },
      // Large counts are dark on white, light on black.
      color: { type: "log", scheme: "blues", range: isDark() ? [0.85, 0.1] : [0.25, 1] },
      marks: [
        shade
          ? Plot.areaY(diagonal, {
              x: "x",
              y1: "y",
              y2: most,
              fill: PLOT_COLOURS.diagonal,
              fillOpacity: 0.12,
              clip: true,
            })
          : null,
        Plot.line(diagonal, {
          x: "x",
          y: "y",
          stroke: PLOT_COLOURS.diagonal,
          strokeDasharray: "5 4",
          clip: true,
        }),
        isDense
          ? Plot.rect(all, {
              x1: "x1",
              x2: "x2",
              y1: "y1",
              y2: "y2",
              fill: "count",
              inset: 0,
              title: (cell) => pluralise(cell.count, "pair"),
            })
          : Plot.dot(all, { x: "x", y: "y", r: 2.2, fill: PLOT_COLOURS.all, fillOpacity: 0.85 }),
      ],
    });
    describeChart(this.chart, label);
    this.frame.replaceChildren(this.chart, this.canvas);
    for (const [side, pixels] of Object.entries({ width, height: 340 })) {
      this.canvas[side] = pixels * window.devicePixelRatio;
      this.canvas.style[side] = `${pixels}px`;
    }
  }

  // `selectedPairs`: the pairs of the selected state, with x, y, the other state t and its name;
  // `second`: the second state, or null.
  drawSelectedPairs(selectedPairs, first, second) {
    const [x, y] = [this.chart.scale("x"), this.chart.scale("y")];
    this.selectedPairs = selectedPairs.map((pair) => ({
      ...pair,
      left: x.apply(pair.x),
      top: y.apply(pair.y),
    }));
    const selected = this.selectedPairs.find(({ t }) => t === second);
    const context = this.canvas.getContext("2d");
    context.setTransform(window.devicePixelRatio, 0, 0, window.devicePixelRatio, 0, 0);
    context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    const many = selectedPairs.length > 300;
    for (const { left, top } of this.selectedPairs)
      drawDot(context, left, top, many ? 1.6 : 3.2, PLOT_COLOURS.first, !many);
    if (selected) drawDot(context, selected.left, selected.top, 5.5, PLOT_COLOURS.second, true);
    const entry = (kind, words) => [createElement("span", { class: `dot ${kind}` }), ` ${words} `];
    this.legend.replaceChildren(
      ...entry("first", `pairs with ${abbreviate(first)}, the selected state`),
      ...(selected ? entry("second", `with ${abbreviate(selected.name)}`) : []),
    );
  }

  findPair({ clientX, clientY }) {
    const { left, top } = this.frame.getBoundingClientRect();
    let [best, minDistance] = [null, DOT_RADIUS];
    for (const pair of this.selectedPairs) {
      const distance = Math.hypot(pair.left - (clientX - left), pair.top - (clientY - top));
      if (distance < minDistance) [best, minDistance] = [pair, distance];
    }
    return best;
  }

  hover(event) {
    const pair = this.findPair(event);
    this.frame.style.cursor = pair ? "pointer" : "";
    if (!pair) return this.tooltip.hide();
    const name = createElement("strong", {}, pair.name);
    const numbers = [pair.x, pair.y].map(
      (number, i) => `${this.axes[i]} = ${formatNumber(number, 5)}`,
    );
    this.tooltip.show([name, ...numbers], event.clientX + 14, event.clientY + 16);
  }
}

function drawDot(context, x, y, radius, colour, hasBorder) {
  context.beginPath();
  context.arc(x, y, radius, 0, 2 * Math.PI);
  context.fillStyle = colour;
  context.fill();
  if (!hasBorder) return;
  [context.strokeStyle, context.lineWidth] = ["white", radius / 5];
  context.stroke();
}
