// The page of an episode: distances from one frame, which can be dragged, to all others.
import { element, read, term, Tip } from "./elements.js";
import { counted, digits, float64s, format, Table } from "./numbers.js";
import { themeButton } from "./theme.js";

const THUMBNAILS = 6;
const data = read();
const { frames, times } = data;
const last = frames.length - 1;
const table = new Table(frames.length, data.values);
const written = format(table.largest);
const V = data.V && float64s(data.V);
new Tip(document.body);
const at = { source: 0, pointed: last };

const image = (frame) =>
  element("img", {
    src: frames[frame],
    alt: `frame ${times[frame]}`,
    width: data.shape[1],
    height: data.shape[0],
  });

function slider(name, words) {
  const range = element("input", {
    type: "range",
    id: name,
    min: 0,
    max: last,
    value: at[name],
    oninput: () => put({ [name]: Number(range.value) }),
  });
  return element("label", { for: name }, words, range);
}

const card = (name, ...parts) =>
  element("section", { class: "card", "aria-label": name }, ...parts);
const chart = element("div", { class: "curve", id: "curve" });
const shown = {
  source: element("figure", { class: "screen source" }),
  pointed: element("figure", { class: "screen" }),
};
const strips = {
  nearest: element("div", { class: "strip", id: "nearest" }),
  furthest: element("div", { class: "strip", id: "furthest" }),
};

document.body.prepend(
  element(
    "header",
    {},
    element("div", { class: "top" }, element("h1", {}, data.title), themeButton(paint)),
    element(
      "p",
      { class: "facts-line" },
      element("span", {}, counted(frames.length, "frame")),
      element("span", {}, term(data.words, "distance")),
    ),
    ...data.notes.map((note) => element("p", { class: "note", role: "note" }, note)),
  ),
  element(
    "main",
    {},
    element(
      "div",
      { class: "two episode" },
      card(
        "curve",
        element("h2", {}, `${data.words} from the source frame`),
        chart,
        slider("source", "source frame"),
        slider("pointed", "frame to compare"),
        element(
          "p",
          { class: "quiet" },
          "Drag the source along the curve; point at a frame to see it.",
        ),
      ),
      card("frames", element("div", { class: "halves" }, shown.source, shown.pointed)),
    ),
    card("nearest", element("h2", {}, "Nearest"), strips.nearest),
    card("furthest", element("h2", {}, "Furthest"), strips.furthest),
    element(
      "footer",
      {},
      element(
        "p",
        { class: "quiet" },
        "Frames in a row look alike, so of near neighbours in time one is shown. Click one to look from it.",
      ),
      element("p", { class: "quiet" }, `made by ${data.made}`),
    ),
  ),
);

function put(changes) {
  Object.assign(at, changes);
  for (const name of ["source", "pointed"]) document.getElementById(name).value = at[name];
  paint();
}

function caption(name, frame, words) {
  const worth = V ? `, value ${digits(V[frame], 3)}` : "";
  shown[name].replaceChildren(
    image(frame),
    element(
      "figcaption",
      {},
      element("strong", {}, `${words} ${times[frame]}`),
      element("span", {}, worth),
    ),
  );
}

// Frames in an order, none of them close in time to the source or to one before.
function picked(order) {
  const gap = Math.max(1, Math.round(frames.length / 30));
  const found = [];
  for (const frame of order) {
    if ([at.source, ...found].every((other) => Math.abs(other - frame) >= gap)) found.push(frame);
    if (found.length === THUMBNAILS) break;
  }
  return found;
}

function thumbnails(name, order, row) {
  const buttons = picked(order).map((frame) =>
    element(
      "button",
      {
        type: "button",
        "aria-label": `frame ${times[frame]}, at ${written(row[frame])}`,
        onclick: () => put({ source: frame }),
      },
      image(frame),
      element("span", {}, `${times[frame]}`),
      element("span", { class: "number" }, written(row[frame])),
    ),
  );
  strips[name].replaceChildren(...buttons);
}

function paint() {
  const row = table.row(at.source);
  const order = [...row.keys()].sort((s, t) => row[s] - row[t] || s - t);
  caption("source", at.source, "source frame");
  caption("pointed", at.pointed, "frame");
  shown.pointed.append(
    element("p", { class: "number", id: "apart" }, `${data.words} ${written(row[at.pointed])}`),
  );
  thumbnails("nearest", order, row);
  thumbnails("furthest", order.toReversed?.() ?? [...order].reverse(), row);
  draw(row);
}

function draw(row) {
  const points = times.map((time, i) => ({ time, far: row[i] }));
  const frame = {
    width: Math.max(280, chart.clientWidth),
    marginLeft: 48,
    marginRight: 16,
    style: { background: "none", fontSize: "12px" },
    x: { domain: [times[0], Math.max(times[last], times[0] + 1)], label: null },
  };
  const line = Plot.plot({
    ...frame,
    height: 240,
    x: { ...frame.x, label: V ? null : "frame" },
    y: { label: data.words, grid: true, nice: true, domain: [0, table.largest || 1] },
    ariaLabel: `Distances from frame ${times[at.source]}`,
    marks: [
      Plot.ruleX(data.marks, {
        x: "at",
        stroke: "#e69f00",
        strokeOpacity: 0.8,
        strokeDasharray: "2 3",
        title: "words",
        tip: "x",
      }),
      Plot.areaY(points, { x: "time", y: "far", fill: "#3b7dd8", fillOpacity: 0.18 }),
      Plot.lineY(points, { x: "time", y: "far", stroke: "#3b7dd8", strokeWidth: 1.6 }),
      Plot.ruleX([times[at.pointed]], { stroke: "currentColor", strokeOpacity: 0.6 }),
      Plot.dot([points[at.pointed]], { x: "time", y: "far", r: 4, fill: "currentColor" }),
      Plot.ruleX([times[at.source]], { stroke: "#e4007c", strokeWidth: 3 }),
      Plot.dot([{ time: times[at.source], far: 0 }], {
        x: "time",
        y: "far",
        r: 7,
        fill: "#e4007c",
        stroke: "white",
      }),
      Plot.ruleY([0]),
    ],
  });
  const worth =
    V &&
    Plot.plot({
      ...frame,
      height: 110,
      x: { ...frame.x, label: "frame" },
      y: { label: "value", nice: true, ticks: 3, grid: true },
      ariaLabel: "Values of the frames",
      marks: [
        Plot.lineY(
          times.map((time, i) => ({ time, worth: V[i] })),
          { x: "time", y: "worth", stroke: "#009e73", strokeWidth: 1.4 },
        ),
        Plot.ruleX([times[at.source]], { stroke: "#e4007c", strokeWidth: 2 }),
        Plot.ruleX([times[at.pointed]], { stroke: "currentColor", strokeOpacity: 0.6 }),
      ],
    });
  chart.replaceChildren(line, ...(worth ? [worth] : []));
  scale = line.scale("x");
}

// The frame under the pointer; with a button held, it becomes the source.
let scale = null;
let held = false;

function under(event) {
  const box = chart.firstElementChild.getBoundingClientRect();
  const width = Number(chart.firstElementChild.getAttribute("width"));
  const time = scale.invert(((event.clientX - box.left) * width) / box.width);
  let best = 0;
  times.forEach((each, i) => {
    if (Math.abs(each - time) < Math.abs(times[best] - time)) best = i;
  });
  return best;
}

chart.addEventListener("pointerdown", (event) => {
  held = true;
  chart.setPointerCapture(event.pointerId);
  put({ source: under(event) });
});
chart.addEventListener("pointermove", (event) =>
  put(held ? { source: under(event) } : { pointed: under(event) }),
);
for (const name of ["pointerup", "pointercancel"])
  chart.addEventListener(name, () => (held = false));
window.addEventListener("resize", paint);
paint();
