// The curves of an episode: distances from the source frame, values and events.
import * as Plot from "./charts.js";
import { createSvgElement, createElement, describeChart } from "./elements.js";
import { formatNumber, pluralise } from "./numbers.js";

const SNAP_PIXELS = 4; // around an event
// Contrast of at least 3 to 1 with light and dark cards.
const EVENT_COLOURS = ["#b87700", "#c0569a", "#2a8fd8", "#d55e00"];
const CURVE_COLOURS = { distance: "#3b7dd8", value: "#009e73", source: "#e4007c" };
const FRAME = {
  marginLeft: 48,
  marginRight: 16,
  style: { background: "none", fontSize: "12px" },
};

export class Curves {
  constructor(host, { times, events, distanceName, matrix, V }) {
    this.host = host;
    this.times = times;
    this.events = events;
    this.distanceName = distanceName;
    this.matrix = matrix;
    this.V = V;
    this.eventTypes = [...new Set(events.map((event) => event.text))];
  }

  colour(text) {
    return EVENT_COLOURS[this.eventTypes.indexOf(text) % EVENT_COLOURS.length];
  }

  // The axis of distances starts at `minDistance`.
  draw(source, minDistance) {
    const { times } = this;
    this.frame = {
      ...FRAME,
      width: Math.max(280, this.host.clientWidth),
      x: { domain: [times[0], Math.max(times[times.length - 1], times[0] + 1)], label: null },
    };
    this.row = this.matrix.row(source);
    const charts = [
      describeChart(this.distances(source, minDistance), this.describeDistances(source)),
      ...(this.V ? [describeChart(this.values(source), this.describeValues())] : []),
    ];
    this.x = charts[0].scale("x");
    this.scales = charts.map((chart) => chart.scale("y"));
    this.pointers = charts.map((chart) => appendPointer(chart));
    this.host.replaceChildren(...charts);
  }

  describeDistances(source) {
    const order = [...this.row.keys()].sort((s, t) => this.row[s] - this.row[t]);
    const say = (frame) => `${formatNumber(this.row[frame], 3)} to frame ${this.times[frame]}`;
    const nearest = order.find((frame) => frame !== source) ?? source;
    const events = this.events.length ? `; ${pluralise(this.events.length, "event")}` : "";
    return `Curve of the ${this.distanceName} from frame ${this.times[source]}: smallest ${say(nearest)}, largest ${say(order[order.length - 1])}${events}.`;
  }

  describeValues() {
    const [low, high] = [Math.min(...this.V), Math.max(...this.V)].map((x) => formatNumber(x, 3));
    return `Curve of the values of the frames, from ${low} to ${high}.`;
  }

  distances(source, minDistance) {
    const { events, times } = this;
    const points = times.map((time, i) => ({ time, distance: this.row[i] }));
    const [x, y] = ["time", "distance"];
    const at = { x: "time", stroke: (event) => this.colour(event.text) };
    return Plot.plot({
      ...this.frame,
      height: 250,
      marginTop: 30,
      x: { ...this.frame.x, label: this.V ? null : "frame" },
      y: {
        label: this.distanceName,
        grid: true,
        nice: true,
        domain: [minDistance, this.matrix.largest || 1],
      },
      marks: [
        Plot.ruleX(events, { ...at, strokeOpacity: 0.9, strokeDasharray: "2 3" }),
        Plot.dot(events, {
          x: "time",
          frameAnchor: "top",
          symbol: "diamond",
          r: 4.5,
          fill: at.stroke,
        }),
        minDistance
          ? null
          : Plot.areaY(points, { x, y, fill: CURVE_COLOURS.distance, fillOpacity: 0.18 }),
        Plot.lineY(points, { x, y, stroke: CURVE_COLOURS.distance, strokeWidth: 1.6, clip: true }),
        Plot.ruleX([times[source]], { stroke: CURVE_COLOURS.source, strokeWidth: 3 }),
        Plot.dot([times[source]], {
          x: (time) => time,
          frameAnchor: "bottom",
          r: 7,
          fill: CURVE_COLOURS.source,
          stroke: "white",
        }),
        minDistance ? null : Plot.ruleY([0]),
      ],
    });
  }

  values(source) {
    return Plot.plot({
      ...this.frame,
      height: 120,
      x: { ...this.frame.x, label: "frame" },
      y: { label: "value", nice: true, ticks: 3, grid: true },
      marks: [
        Plot.lineY(
          this.times.map((time, i) => ({ time, value: this.V[i] })),
          { x: "time", y: "value", stroke: CURVE_COLOURS.value, strokeWidth: 1.4 },
        ),
        Plot.ruleX([this.times[source]], { stroke: CURVE_COLOURS.source, strokeWidth: 2 }),
      ],
    });
  }

  // Move the line at the compared frame.
  movePointer(frame) {
    const left = this.x.apply(this.times[frame]);
    this.pointers.forEach(({ line, dot }, i) => {
      for (const end of ["x1", "x2"]) line.setAttribute(end, String(left));
      dot.setAttribute("cx", String(left));
      const top = this.scales[i].apply((i ? this.V : this.row)[frame]);
      dot.setAttribute("cy", String(Math.min(top, this.scales[i].range[0])));
    });
  }

  // The frame under the pointer, or that of an event nearby.
  findFrame({ clientX }) {
    const left = clientX - this.host.getBoundingClientRect().left;
    const distance = (time) => Math.abs(this.x.apply(time) - left);
    const nearestEvent = findNearest(this.events, ({ time }) => distance(time));
    if (nearestEvent !== null && distance(this.events[nearestEvent].time) <= SNAP_PIXELS)
      return this.findFrameAt(this.events[nearestEvent].time);
    return findNearest(this.times, distance);
  }

  // The frame at a time, or nearest to it.
  findFrameAt(time) {
    return findNearest(this.times, (each) => Math.abs(each - time));
  }

  createLegend() {
    const entry = (colour, ...words) =>
      createElement(
        "span",
        { class: "swatch" },
        createElement("i", { style: `background: ${colour}` }),
        ...words,
      );
    return [
      entry(CURVE_COLOURS.source, "source frame"),
      ...this.eventTypes.map((kind) => entry(this.colour(kind), kind)),
    ];
  }
}

function appendPointer(chart) {
  const height = Number(chart.getAttribute("height"));
  const line = createSvgElement("line", { class: "pointer", y1: 24, y2: height - 30 });
  const dot = createSvgElement("circle", { class: "pointer", r: 4 });
  chart.append(line, dot);
  return { line, dot };
}

// The index of the item of the smallest cost; null if there is none.
function findNearest(items, cost) {
  let best = null;
  items.forEach((item, i) => {
    if (best === null || cost(item) < cost(items[best])) best = i;
  });
  return best;
}
