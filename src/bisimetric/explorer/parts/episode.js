// The page of an episode: distances from one frame, which can be dragged, to all others.
import { Curves } from "./curves.js";
import { createElement, readData } from "./elements.js";
import { createLinkButton, readIndex, writeFields } from "./fragment.js";
import {
  pluralise,
  formatNumber,
  decodeFloat64,
  createNumberFormat,
  DistanceMatrix,
} from "./numbers.js";
import { createThemeButton } from "./theme.js";
import { createTerm, Tooltip } from "./tooltips.js";

const NUM_THUMBNAILS = 6;
const episode = readData();
const { frames, times } = episode;
const last = frames.length - 1;
const minGap = Math.max(1, Math.round(frames.length / 30)); // in time, between frames shown
const matrix = new DistanceMatrix(frames.length, episode.values);
const formatDistance = createNumberFormat(matrix.largest);
const V = episode.V && decodeFloat64(episode.V);
new Tooltip(document.body);
const source = readIndex("source", frames.length) ?? episode.source;
const selected = {
  source,
  compared: readIndex("compared", frames.length) ?? (source === last ? 0 : last),
};

const curve = createElement("div", { class: "curve", id: "curve" });
const { events, distanceName } = episode;
const curves = new Curves(curve, { times, events, distanceName, matrix, V });
const eventsByFrame = new Map();
for (const event of events) {
  const frame = curves.findFrameAt(event.time);
  eventsByFrame.set(frame, [...(eventsByFrame.get(frame) ?? []), event.text]);
}

const createImage = (frame) =>
  createElement("img", {
    src: frames[frame],
    alt: [`screen of frame ${times[frame]}`, ...describeFrame(frame)].join(", "),
    width: episode.shape[1],
    height: episode.shape[0],
  });

function createSlider(name, words) {
  const range = createElement("input", {
    type: "range",
    id: name,
    min: 0,
    max: last,
    oninput: () => update({ [name]: Number(range.value) }),
  });
  return createElement("label", { for: name }, words, range);
}

const fitAxis = createElement("input", { type: "checkbox", id: "fit-axis", onchange: paint });

const createCard = (label, ...parts) =>
  createElement("section", { class: "card", "aria-label": label }, ...parts);
const figures = {
  source: createElement("figure", { class: "screen source" }),
  compared: createElement("figure", { class: "screen" }),
};
const strips = {
  nearest: createElement("div", { class: "strip", id: "nearest" }),
  furthest: createElement("div", { class: "strip", id: "furthest" }),
};

// Events as buttons, for keyboards and screen readers.
const eventButtons = [...eventsByFrame].map(([frame, words]) =>
  createElement(
    "button",
    { type: "button", "data-frame": frame, onclick: () => update({ compared: frame }) },
    `${times[frame]} ${words.join(", ")}`,
  ),
);

// Read aloud by screen readers.
const announcement = createElement("div", {
  class: "visually-hidden",
  role: "status",
  id: "announcement",
});
document.body.append(announcement);
document.body.prepend(
  createElement(
    "header",
    {},
    createElement(
      "div",
      { class: "top" },
      createElement("h1", {}, episode.title),
      createElement(
        "div",
        { class: "tools" },
        createLinkButton((text) => (announcement.textContent = text)),
        createThemeButton(paint),
      ),
    ),
    createElement(
      "p",
      { class: "facts-line" },
      createElement("span", {}, pluralise(frames.length, "frame")),
      createElement("span", {}, createTerm(distanceName, "distance")),
      V ? createElement("span", {}, createTerm("value", "agent's value"), " of the agent") : null,
    ),
    ...episode.notes.map((note) => createElement("p", { class: "note", role: "note" }, note)),
  ),
  createElement(
    "main",
    { class: episode.shape[1] < 120 ? "coarse" : null },
    createElement(
      "div",
      { class: "two episode" },
      createCard(
        "curve",
        createElement("h2", {}, `${distanceName} from the source frame`),
        curve,
        createElement("p", { class: "legend" }, ...curves.createLegend()),
        createElement(
          "label",
          { class: "option", for: "fit-axis" },
          fitAxis,
          "start the axis at the smallest distance",
        ),
        createSlider("source", "source frame"),
        createSlider("compared", "frame to compare"),
        createElement(
          "p",
          { class: "quiet" },
          "Drag the source along the curve; hover over a frame to see it.",
        ),
      ),
      createCard(
        "frames",
        createElement("div", { class: "halves" }, figures.source, figures.compared),
        eventButtons.length ? createElement("h3", {}, "Events, by frame") : null,
        eventButtons.length
          ? createElement("div", { class: "events", id: "events" }, ...eventButtons)
          : null,
      ),
    ),
    createCard("nearest", createElement("h2", {}, "Nearest"), strips.nearest),
    createCard("furthest", createElement("h2", {}, "Furthest"), strips.furthest),
    createElement(
      "footer",
      {},
      createElement(
        "p",
        { class: "quiet" },
        "Hover over a frame to see it beside the source; click it to make it the source.",
        minGap > 1
          ? ` Consecutive frames are similar: of frames within ${times[minGap] - times[0]} of each other, or of the source, one is shown.`
          : "",
      ),
      createElement("p", { class: "quiet" }, `generated by ${episode.generator}`),
    ),
  ),
);

function update(changes) {
  const moved = "source" in changes && changes.source !== selected.source;
  Object.assign(selected, changes);
  if (moved) paint();
  else updateCompared();
  writeFields(selected);
}

function updateFigure(name, words, more = null) {
  const frame = selected[name];
  const range = /** @type {HTMLInputElement} */ (document.getElementById(name));
  range.value = String(frame);
  range.setAttribute(
    "aria-valuetext",
    [`frame ${times[frame]}`, ...describeFrame(frame)].join(", "),
  );
  figures[name].replaceChildren(
    createImage(frame),
    createElement(
      "figcaption",
      {},
      createElement("strong", {}, `${words} ${times[frame]}`),
      ...describeFrame(frame).map((line) => createElement("div", {}, line)),
      more,
    ),
  );
}

// The value and events of a frame.
function describeFrame(frame) {
  const value = V ? [`value ${formatNumber(V[frame], 3)}`] : [];
  return [...value, ...(eventsByFrame.get(frame) ?? [])];
}

// The first frames of an order that are apart in time from the source and each other.
function selectDistinct(order) {
  const found = [];
  for (const frame of order) {
    if ([selected.source, ...found].every((other) => Math.abs(other - frame) >= minGap))
      found.push(frame);
    if (found.length === NUM_THUMBNAILS) break;
  }
  return found;
}

// The buttons stay, and so does the focus; their frames change.
function updateThumbnails(name, order, row) {
  const shown = selectDistinct(order);
  const buttons = strips[name].children;
  while (buttons.length < shown.length) strips[name].append(createThumbnail());
  while (buttons.length > shown.length) buttons[shown.length].remove();
  shown.forEach((frame, i) => {
    buttons[i].dataset.frame = frame;
    buttons[i].replaceChildren(
      createImage(frame),
      createElement("span", {}, `frame ${times[frame]}`),
      createElement("span", { class: "number" }, formatDistance(row[frame])),
    );
  });
}

function createThumbnail() {
  const compare = () => update({ compared: Number(button.dataset.frame) });
  const button = createElement("button", {
    type: "button",
    title: "make it the source frame",
    onclick: () => {
      update({ source: Number(button.dataset.frame) });
      compare();
      announcement.textContent = `source frame ${times[selected.source]}, compared with frame ${times[selected.compared]}`;
    },
    onpointerenter: compare,
    onfocus: compare,
  });
  return button;
}

// Redraw what depends on the source frame, then what depends on the compared frame.
function paint() {
  const row = matrix.row(selected.source);
  const others = row.filter((_, frame) => Math.abs(frame - selected.source) >= minGap);
  curves.draw(selected.source, fitAxis.checked && others.length ? Math.min(...others) : 0);
  const order = [...row.keys()].sort((s, t) => row[s] - row[t] || s - t);
  updateFigure("source", "source frame");
  updateThumbnails("nearest", order, row);
  updateThumbnails("furthest", order.reverse(), row);
  updateCompared();
}

function updateCompared() {
  const text = `${distanceName} ${formatDistance(curves.row[selected.compared])}`;
  updateFigure(
    "compared",
    "frame",
    createElement("div", { class: "number", id: "frame-distance" }, text),
  );
  curves.movePointer(selected.compared);
  for (const button of eventButtons)
    button.setAttribute("aria-pressed", String(Number(button.dataset.frame) === selected.compared));
}

// Hovering compares a frame; dragging selects the source.
let isDragging = false;
curve.addEventListener("pointerdown", (event) => {
  isDragging = true;
  curve.setPointerCapture(event.pointerId);
  update({ source: curves.findFrame(event) });
});
curve.addEventListener("pointermove", (event) =>
  update(isDragging ? { source: curves.findFrame(event) } : { compared: curves.findFrame(event) }),
);
for (const name of ["pointerup", "pointercancel"])
  curve.addEventListener(name, () => (isDragging = false));
window.addEventListener("resize", paint);
paint();
