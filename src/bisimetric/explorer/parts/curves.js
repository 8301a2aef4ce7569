// The curves of an episode: how far each frame is from the source, what it is worth, what happened.
import { drawing, element } from "./elements.js";

const SNAP = 4; // pixels from a mark that still count as on it
const KINDS_OF_MARKS = ["#e69f00", "#cc79a7", "#56b4e9", "#d55e00"];
const INK = { far: "#3b7dd8", worth: "#009e73", source: "#e4007c" };
const FRAME = {
  marginLeft: 48,
  marginRight: 16,
  style: { background: "none", fontSize: "12px" },
};

export class Curves {
  constructor(host, { times, marks, words, table, V }) {
    Object.assign(this, { host, times, marks, words, table, V });
    this.kinds = [...new Set(marks.map((mark) => mark.words))];
  }

  colour(words) {
    return KINDS_OF_MARKS[this.kinds.indexOf(words) % KINDS_OF_MARKS.length];
  }

  // The axis of distances starts at `low`.
  draw(source, low) {
    const { times } = this;
    this.frame = {
      ...FRAME,
      width: Math.max(280, this.host.clientWidth),
      x: { domain: [times[0], Math.max(times[times.length - 1], times[0] + 1)], label: null },
    };
    this.row = this.table.row(source);
    const charts = [this.distances(source, low), ...(this.V ? [this.values(source)] : [])];
    this.x = charts[0].scale("x");
    this.scales = charts.map((chart) => chart.scale("y"));
    this.pointers = charts.map((chart) => pointer(chart));
    this.host.replaceChildren(...charts);
  }

  distances(source, low) {
    const { marks, times } = this;
    const points = times.map((time, i) => ({ time, far: this.row[i] }));
    const [x, y] = ["time", "far"];
    const at = { x: "at", stroke: (mark) => this.colour(mark.words) };
    return Plot.plot({
      ...this.frame,
      height: 250,
      marginTop: 30,
      x: { ...this.frame.x, label: this.V ? null : "frame" },
      y: { label: this.words, grid: true, nice: true, domain: [low, this.table.largest || 1] },
      ariaLabel: `Distances from frame ${times[source]}`,
      marks: [
        Plot.ruleX(marks, { ...at, strokeOpacity: 0.9, strokeDasharray: "2 3" }),
        Plot.dot(marks, {
          x: "at",
          frameAnchor: "top",
          symbol: "diamond",
          r: 4.5,
          fill: at.stroke,
        }),
        low ? null : Plot.areaY(points, { x, y, fill: INK.far, fillOpacity: 0.18 }),
        Plot.lineY(points, { x, y, stroke: INK.far, strokeWidth: 1.6, clip: true }),
        Plot.ruleX([times[source]], { stroke: INK.source, strokeWidth: 3 }),
        Plot.dot([times[source]], {
          x: (time) => time,
          frameAnchor: "bottom",
          r: 7,
          fill: INK.source,
          stroke: "white",
        }),
        low ? null : Plot.ruleY([0]),
      ],
    });
  }

  values(source) {
    return Plot.plot({
      ...this.frame,
      height: 120,
      x: { ...this.frame.x, label: "frame" },
      y: { label: "value", nice: true, ticks: 3, grid: true },
      ariaLabel: "Values of the frames",
      marks: [
        Plot.lineY(
          this.times.map((time, i) => ({ time, worth: this.V[i] })),
          { x: "time", y: "worth", stroke: INK.worth, strokeWidth: 1.4 },
        ),
        Plot.ruleX([this.times[source]], { stroke: INK.source, strokeWidth: 2 }),
      ],
    });
  }

  // A line through the frame that is pointed at. It alone moves with the pointer.
  point(frame) {
    const left = this.x.apply(this.times[frame]);
    this.pointers.forEach(({ line, dot }, i) => {
      for (const end of ["x1", "x2"]) line.setAttribute(end, left);
      dot.setAttribute("cx", left);
      const top = this.scales[i].apply((i ? this.V : this.row)[frame]);
      dot.setAttribute("cy", Math.min(top, this.scales[i].range[0]));
    });
  }

  // The frame under the pointer: that of a mark, where one is close.
  under({ clientX }) {
    const left = clientX - this.host.getBoundingClientRect().left;
    const far = (time) => Math.abs(this.x.apply(time) - left);
    const mark = nearest(this.marks, ({ at }) => far(at));
    if (mark !== null && far(this.marks[mark].at) <= SNAP) return this.at(this.marks[mark].at);
    return nearest(this.times, far);
  }

  // The frame at a time, or nearest to it.
  at(time) {
    return nearest(this.times, (each) => Math.abs(each - time));
  }

  legend() {
    const entry = (colour, ...words) =>
      element(
        "span",
        { class: "swatch" },
        element("i", { style: `background: ${colour}` }),
        ...words,
      );
    return [
      entry(INK.source, "source frame"),
      ...this.kinds.map((kind) => entry(this.colour(kind), kind)),
    ];
  }
}

function pointer(chart) {
  const height = Number(chart.getAttribute("height"));
  const line = drawing("line", { class: "pointer", y1: 24, y2: height - 30 });
  const dot = drawing("circle", { class: "pointer", r: 4 });
  chart.append(line, dot);
  return { line, dot };
}

// The place of the item of least cost; null where there is none.
function nearest(items, cost) {
  let best = null;
  items.forEach((item, i) => {
    if (best === null || cost(item) < cost(items[best])) best = i;
  });
  return best;
}
