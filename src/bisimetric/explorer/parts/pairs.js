// A number of every pair of states against another one, with the diagonal.
import { brief, element } from "./elements.js";
import { counted, digits } from "./numbers.js";
import { isDark } from "./theme.js";

const MOST_DOTS = 3000;
const CELLS = 60;
const REACH_OF_DOT = 14; // pixels
const INKS = { all: "#3b7dd8", own: "#e4007c", chosen: "#d06a00", diagonal: "#d55e00" };

// What is drawn of all pairs: points are x, y, x, y, ...; of many, how many are in a cell.
export function gathered(points) {
  let [wide, tall] = [0, 0];
  for (let i = 0; i < points.length; i += 2) {
    wide = Math.max(wide, points[i]);
    tall = Math.max(tall, points[i + 1]);
  }
  const high = Math.max(wide, tall) || 1;
  const dense = points.length / 2 > MOST_DOTS;
  return { high, tall, dense, all: dense ? binned(points, high, tall || 1) : dots(points) };
}

function dots(points) {
  const found = [];
  for (let i = 0; i < points.length; i += 2) found.push({ x: points[i], y: points[i + 1] });
  return found;
}

// How many pairs are in each cell of a raster.
function binned(points, wide, tall) {
  const counts = new Uint32Array(CELLS * CELLS);
  const place = (value, most) => Math.min(CELLS - 1, Math.floor((value / most) * CELLS));
  for (let i = 0; i < points.length; i += 2)
    counts[place(points[i], wide) * CELLS + place(points[i + 1], tall)] += 1;
  const found = [];
  counts.forEach((count, key) => {
    const [i, j] = [Math.floor(key / CELLS), key % CELLS];
    const [x1, x2] = [i, i + 1].map((side) => (side * wide) / CELLS);
    const [y1, y2] = [j, j + 1].map((side) => (side * tall) / CELLS);
    if (count) found.push({ x1, x2, y1, y2, count });
  });
  return found;
}

// All pairs are drawn once; those of the picked state, which change with every click, on a canvas
// above them.
export class PairPlot {
  // `pick(state)` is told of a click on a pair of the picked state.
  constructor(host, tip, pick) {
    Object.assign(this, { tip, pick, own: [] });
    this.canvas = element("canvas", { "aria-hidden": "true" });
    this.frame = element("div", { class: "pair-plot" });
    this.legend = element("p", { class: "quiet" });
    host.append(this.frame, this.legend);
    this.frame.addEventListener("pointermove", (event) => this.hover(event));
    this.frame.addEventListener("pointerleave", () => tip.hide());
    this.frame.addEventListener("click", (event) => {
      const pair = this.under(event);
      if (pair) pick(pair.t);
    });
  }

  // `x`, `y` name the axes; `shade` darkens what must be empty.
  draw({ high, tall, dense, all }, { x, y, label, shade = false }) {
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
        domain: [0, shade ? tall * 1.08 || high : high],
        nice: true,
        grid: true,
      },
      // Many pairs stand out from the page: dark on white, light on black.
      color: { type: "log", scheme: "blues", range: isDark() ? [0.85, 0.1] : [0.25, 1] },
      ariaLabel: label,
      marks: [
        shade
          ? Plot.areaY(diagonal, {
              x: "x",
              y1: "y",
              y2: most,
              fill: INKS.diagonal,
              fillOpacity: 0.12,
              clip: true,
            })
          : null,
        Plot.line(diagonal, {
          x: "x",
          y: "y",
          stroke: INKS.diagonal,
          strokeDasharray: "5 4",
          clip: true,
        }),
        dense
          ? Plot.rect(all, {
              x1: "x1",
              x2: "x2",
              y1: "y1",
              y2: "y2",
              fill: "count",
              inset: 0,
              title: (cell) => counted(cell.count, "pair"),
            })
          : Plot.dot(all, { x: "x", y: "y", r: 2.2, fill: INKS.all, fillOpacity: 0.55 }),
      ],
    });
    this.frame.replaceChildren(this.chart, this.canvas);
    for (const [side, pixels] of Object.entries({ width, height: 340 })) {
      this.canvas[side] = pixels * window.devicePixelRatio;
      this.canvas.style[side] = `${pixels}px`;
    }
  }

  // `own` are the pairs of the picked state: x, y, their other state t and its name; `second` is
  // the state that is compared with, or null.
  mark(own, first, second) {
    const [x, y] = [this.chart.scale("x"), this.chart.scale("y")];
    this.own = own.map((pair) => ({ ...pair, left: x.apply(pair.x), top: y.apply(pair.y) }));
    const chosen = this.own.find(({ t }) => t === second);
    const pen = this.canvas.getContext("2d");
    pen.setTransform(window.devicePixelRatio, 0, 0, window.devicePixelRatio, 0, 0);
    pen.clearRect(0, 0, this.canvas.width, this.canvas.height);
    const many = own.length > 300;
    for (const { left, top } of this.own) disc(pen, left, top, many ? 1.6 : 3.2, INKS.own, !many);
    if (chosen) disc(pen, chosen.left, chosen.top, 5.5, INKS.chosen, true);
    const entry = (kind, words) => [element("span", { class: `dot ${kind}` }), ` ${words} `];
    this.legend.replaceChildren(
      ...entry("own", `pairs with ${brief(first)}, the picked state`),
      ...(chosen ? entry("chosen", `with ${brief(chosen.name)}`) : []),
    );
  }

  under({ clientX, clientY }) {
    const { left, top } = this.frame.getBoundingClientRect();
    let [best, least] = [null, REACH_OF_DOT];
    for (const pair of this.own) {
      const far = Math.hypot(pair.left - (clientX - left), pair.top - (clientY - top));
      if (far < least) [best, least] = [pair, far];
    }
    return best;
  }

  hover(event) {
    const pair = this.under(event);
    this.frame.style.cursor = pair ? "pointer" : "";
    if (!pair) return this.tip.hide();
    const name = element("strong", {}, pair.name);
    const numbers = [pair.x, pair.y].map((number, i) => `${this.axes[i]} = ${digits(number, 5)}`);
    this.tip.show([name, ...numbers], event.clientX + 14, event.clientY + 16);
  }
}

function disc(pen, x, y, radius, ink, lined) {
  pen.beginPath();
  pen.arc(x, y, radius, 0, 2 * Math.PI);
  pen.fillStyle = ink;
  pen.fill();
  if (!lined) return;
  [pen.strokeStyle, pen.lineWidth] = ["white", radius / 5];
  pen.stroke();
}
