// The page of an episode: distances from one frame, which can be dragged, to all others.
import { Curves } from "./curves.js";
import { element, read } from "./elements.js";
import { counted, digits, float64s, format, Table } from "./numbers.js";
import { themeButton } from "./theme.js";
import { term, Tip } from "./tips.js";

const THUMBNAILS = 6;
const data = read();
const { frames, times } = data;
const last = frames.length - 1;
const apart = Math.max(1, Math.round(frames.length / 30)); // frames closer in time look alike
const table = new Table(frames.length, data.values);
const written = format(table.largest);
const V = data.V && float64s(data.V);
new Tip(document.body);
const at = { source: data.source, pointed: data.source === last ? 0 : last };

const host = element("div", { class: "curve", id: "curve" });
const { marks, words } = data;
const curves = new Curves(host, { times, marks, words, table, V });
const happened = new Map();
for (const mark of marks) {
  const frame = curves.at(mark.at);
  happened.set(frame, [...(happened.get(frame) ?? []), mark.words]);
}

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
    oninput: () => put({ [name]: Number(range.value) }),
  });
  return element("label", { for: name }, words, range);
}

const stretched = element("input", { type: "checkbox", id: "stretched", onchange: paint });

const card = (label, ...parts) =>
  element("section", { class: "card", "aria-label": label }, ...parts);
const shown = {
  source: element("figure", { class: "screen source" }),
  pointed: element("figure", { class: "screen" }),
};
const strips = {
  nearest: element("div", { class: "strip", id: "nearest" }),
  furthest: element("div", { class: "strip", id: "furthest" }),
};

// What happened, as buttons: marks are read and reached without a pointer too.
const events = [...happened].map(([frame, words]) =>
  element(
    "button",
    { type: "button", "data-frame": frame, onclick: () => put({ pointed: frame }) },
    `${times[frame]} ${words.join(", ")}`,
  ),
);

document.body.prepend(
  element(
    "header",
    {},
    element("div", { class: "top" }, element("h1", {}, data.title), themeButton(paint)),
    element(
      "p",
      { class: "facts-line" },
      element("span", {}, counted(frames.length, "frame")),
      element("span", {}, term(words, "distance")),
      V ? element("span", {}, term("value", "worth"), " to the agent") : null,
    ),
    ...data.notes.map((note) => element("p", { class: "note", role: "note" }, note)),
  ),
  element(
    "main",
    { class: data.shape[1] < 120 ? "coarse" : null },
    element(
      "div",
      { class: "two episode" },
      card(
        "curve",
        element("h2", {}, `${words} from the source frame`),
        host,
        element("p", { class: "legend" }, ...curves.legend()),
        element("label", { class: "option", for: "stretched" }, stretched, "stretch the axis"),
        slider("source", "source frame"),
        slider("pointed", "frame to compare"),
        element(
          "p",
          { class: "quiet" },
          "Drag the source along the curve; point at a frame to see it.",
        ),
      ),
      card(
        "frames",
        element("div", { class: "halves" }, shown.source, shown.pointed),
        events.length ? element("h3", {}, "what happened, and in which frame") : null,
        events.length ? element("div", { class: "events", id: "events" }, ...events) : null,
      ),
    ),
    card("nearest", element("h2", {}, "Nearest"), strips.nearest),
    card("furthest", element("h2", {}, "Furthest"), strips.furthest),
    element(
      "footer",
      {},
      element(
        "p",
        { class: "quiet" },
        "Point at a frame to see it beside the source; click it to look from it.",
        apart > 1
          ? ` Frames in a row look alike: of those within ${times[apart] - times[0]} of each other, or of the source, one is shown.`
          : "",
      ),
      element("p", { class: "quiet" }, `made by ${data.made}`),
    ),
  ),
);

function put(changes) {
  const moved = "source" in changes && changes.source !== at.source;
  Object.assign(at, changes);
  if (moved) paint();
  else point();
}

function caption(name, words, more = null) {
  const frame = at[name];
  const range = document.getElementById(name);
  range.value = frame;
  range.setAttribute("aria-valuetext", [`frame ${times[frame]}`, ...said(frame)].join(", "));
  shown[name].replaceChildren(
    image(frame),
    element(
      "figcaption",
      {},
      element("strong", {}, `${words} ${times[frame]}`),
      ...said(frame).map((line) => element("div", {}, line)),
      more,
    ),
  );
}

// What is known of a frame.
function said(frame) {
  const worth = V ? [`value ${digits(V[frame], 3)}`] : [];
  return [...worth, ...(happened.get(frame) ?? [])];
}

// Frames in an order, none of them close in time to the source or to one before.
function picked(order) {
  const found = [];
  for (const frame of order) {
    if ([at.source, ...found].every((other) => Math.abs(other - frame) >= apart)) found.push(frame);
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
        title: "look from here",
        onclick: () => put({ source: frame }),
        onpointerenter: () => put({ pointed: frame }),
        onfocus: () => put({ pointed: frame }),
      },
      image(frame),
      element("span", {}, `frame ${times[frame]}`),
      element("span", { class: "number" }, written(row[frame])),
    ),
  );
  strips[name].replaceChildren(...buttons);
}

// All that hangs on the source; then what hangs on the other frame.
function paint() {
  const row = table.row(at.source);
  const others = row.filter((_, frame) => Math.abs(frame - at.source) >= apart);
  curves.draw(at.source, stretched.checked && others.length ? Math.min(...others) : 0);
  const order = [...row.keys()].sort((s, t) => row[s] - row[t] || s - t);
  caption("source", "source frame");
  thumbnails("nearest", order, row);
  thumbnails("furthest", order.reverse(), row);
  point();
}

function point() {
  const far = `${words} ${written(curves.row[at.pointed])}`;
  caption("pointed", "frame", element("div", { class: "number", id: "apart" }, far));
  curves.point(at.pointed);
  for (const button of events)
    button.setAttribute("aria-pressed", Number(button.dataset.frame) === at.pointed);
}

// The frame under the pointer; with a button held, it becomes the source.
let held = false;
host.addEventListener("pointerdown", (event) => {
  held = true;
  host.setPointerCapture(event.pointerId);
  put({ source: curves.under(event) });
});
host.addEventListener("pointermove", (event) =>
  put(held ? { source: curves.under(event) } : { pointed: curves.under(event) }),
);
for (const name of ["pointerup", "pointercancel"])
  host.addEventListener(name, () => (held = false));
window.addEventListener("resize", paint);
paint();
