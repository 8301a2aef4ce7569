// The states, as the cells of a map or as points, with hovering and selection.
import { createSvgElement, createElement } from "./elements.js";
import {
  drawMatches,
  drawOutline,
  drawPointNames,
  drawPath,
  drawGoals,
  drawHoles,
  drawLandmarks,
  drawUnknown,
} from "./overlays.js";
import { StateCanvas } from "./state_canvas.js";
import { StateLayout } from "./state_layout.js";
import { contrastColour } from "./scales.js";

const MAX_NUMBERED_CELLS = 24; // cells per row; in larger maps no numbers are written
const HOVER_RADIUS = 9; // pixels
const DIRECTIONS = { ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] };
const LAYERS = [
  "unsampled",
  "unknown",
  "paths",
  "numbers",
  "marks",
  "selected",
  "path-heads",
  "hovered",
];

export class StateMap {
  // `handlers`: select(state), move(state), clear() and hover(state or null, x, y).
  constructor(host, data, handlers, label) {
    this.data = data;
    this.handlers = handlers;
    this.hovered = null;
    this.selected = [null, null];
    this.pathStates = [[], [], []];
    this.layout = new StateLayout(data);
    this.stateCanvas = new StateCanvas(this.layout);
    const { hasCells, width, height } = this.layout;
    this.hasNumbers = hasCells && Math.max(width, height) <= MAX_NUMBERED_CELLS;
    this.layers = Object.fromEntries(
      LAYERS.map((name) => [name, createSvgElement("g", { class: name })]),
    );
    this.svg = createSvgElement(
      "svg",
      {
        class: "states-map",
        viewBox: `0 0 ${width} ${height}`,
        tabindex: 0,
        role: "application",
        "aria-roledescription": "map of states",
        "aria-label": `${label}. Arrow keys move, Enter selects a state, Escape clears.`,
      },
      Object.values(this.layers),
    );
    this.frame = createElement(
      "div",
      {
        class: [
          "map",
          hasCells ? "cells" : "points",
          width > 2 * MAX_NUMBERED_CELLS ? "dense" : "",
        ].join(" "),
        style: `aspect-ratio: ${width} / ${height}; --ratio: ${width / height}`,
      },
      this.stateCanvas.canvas,
      this.svg,
    );
    host.append(this.frame);
    this.layers.unsampled.append(
      ...(data.map?.unsampledCells ?? []).map(([row, column]) =>
        createSvgElement("rect", { x: column, y: row, width: 1.02, height: 1.02 }),
      ),
    );
    this.resize();
    new ResizeObserver(() => this.resize()).observe(this.frame);
    this.listen();
  }

  // The width on the screen is read once per size: reading it restyles the document.
  resize() {
    const pixels = this.frame.clientWidth;
    if (!pixels || pixels === this.pixels) return;
    this.pixels = pixels;
    this.stateCanvas.resize(pixels);
    this.drawMarks();
    if (this.lastPaint) this.paint(...this.lastPaint);
    this.select(...this.selected);
    this.drawPaths(...this.pathStates);
  }

  // Convert pixels to units of the drawing.
  toUnits = (pixels) => (pixels * this.layout.width) / (this.pixels || 600);

  drawMarks() {
    const { goals, holes, map, names, parts } = this.data;
    this.layers.marks.replaceChildren(
      ...drawPointNames(this.layout, names, this.toUnits),
      ...(map ? drawLandmarks(this.layout, map, this.toUnits) : []),
      ...drawHoles(this.layout, holes, this.toUnits),
      ...drawGoals(this.layout, goals, this.toUnits),
      ...parts.map((part) =>
        createSvgElement(
          "text",
          { class: "part", x: part.column + 0.5, y: part.row + 0.5, "font-size": 0.6 },
          part.name,
        ),
      ),
    );
  }

  listen() {
    this.svg.addEventListener("pointermove", (event) => {
      // On touch, the tooltip would stay.
      if (event.pointerType !== "touch") this.hover(event);
    });
    this.svg.addEventListener("pointerleave", () => this.hover(null));
    this.svg.addEventListener("click", (event) => {
      const state = this.findState(event);
      if (state !== null) this.handlers.select(state);
    });
    this.svg.addEventListener("keydown", (event) => {
      if (event.key in DIRECTIONS)
        this.handlers.move(this.layout.findNeighbour(this.cursor, ...DIRECTIONS[event.key]));
      else if (event.key === "Enter" || event.key === " ") this.handlers.select(this.cursor);
      else if (event.key === "Escape") this.handlers.clear();
      else return;
      event.preventDefault();
    });
  }

  // The state under the pointer, or null.
  findState({ clientX, clientY }) {
    const { left, top, width } = this.svg.getBoundingClientRect();
    const unit = this.layout.width / width;
    return this.layout.findState(
      (clientX - left) * unit,
      (clientY - top) * unit,
      HOVER_RADIUS * unit,
    );
  }

  // The position of a state on the screen.
  centre(state) {
    const { left, top, width } = this.svg.getBoundingClientRect();
    const pixels = width / this.layout.width;
    return [left + this.layout.x[state] * pixels, top + this.layout.y[state] * pixels];
  }

  hover(event) {
    const state = event && this.findState(event);
    if (state !== this.hovered) {
      this.hovered = state;
      this.svg.style.cursor = state === null ? "" : "pointer";
      this.layers.hovered.replaceChildren(
        ...(state === null ? [] : drawOutline(this.layout, state, "hovered", this.toUnits)),
      );
    }
    this.handlers.hover(state, event?.clientX, event?.clientY);
  }

  // Draw colours (n,) and, in small maps, numbers (n,); states outside of `highlighted` are faint.
  paint(colours, numbers, unknown = new Set(), highlighted = null) {
    this.lastPaint = [colours, numbers, unknown, highlighted];
    this.stateCanvas.draw(colours, unknown, highlighted);
    if (unknown !== this.unknown) {
      this.unknown = unknown;
      this.layers.unknown.replaceChildren(...[...unknown].map((s) => drawUnknown(this.layout, s)));
    }
    if (!this.hasNumbers) return;
    if (!this.texts) {
      const { x, y } = this.layout;
      this.texts = this.data.names.map((_, s) =>
        createSvgElement("text", { x: x[s], y: y[s] + 0.04 }),
      );
      this.layers.numbers.append(...this.texts);
    }
    let maxLength = 1;
    this.texts.forEach((text, s) => {
      const number = unknown.has(s) || (highlighted && !highlighted.has(s)) ? "" : numbers[s];
      maxLength = Math.max(maxLength, number.length);
      text.textContent = number;
      text.setAttribute("fill", contrastColour(colours[s]));
      text.setAttribute("stroke", colours[s]);
    });
    // Numbers are hidden in cells too small to read them.
    const size = Math.min(0.32, 1.38 / maxLength);
    this.layers.numbers.setAttribute("font-size", String(size));
    this.layers.numbers.toggleAttribute("hidden", size < this.toUnits(9));
  }

  // Outlines of the first and the second state.
  select(first, second) {
    this.selected = [first, second];
    this.layers.selected.replaceChildren(
      ...[
        [second, "second"],
        [first, "first"],
      ].flatMap(([state, kind]) =>
        state === null ? [] : drawOutline(this.layout, state, kind, this.toUnits),
      ),
    );
  }

  get cursor() {
    return this.selected[1] ?? this.selected[0] ?? 0;
  }

  // Draw two paths, lists of states, and lines between matched states. Lines are below the numbers;
  // the heads of the paths are above all outlines.
  drawPaths(first, second, matches) {
    this.pathStates = [first, second, matches];
    const paths = [
      drawPath(this.layout, second, "second", this.toUnits, this.hasNumbers),
      drawPath(this.layout, first, "first", this.toUnits, this.hasNumbers),
    ];
    this.layers.paths.replaceChildren(
      ...drawMatches(this.layout, matches, this.toUnits, this.hasNumbers),
      ...paths.flatMap((parts) => parts.slice(0, 2)),
    );
    this.layers["path-heads"].replaceChildren(...paths.flatMap((parts) => parts.slice(2)));
    this.svg.classList.toggle("has-paths", first.length > 0);
  }
}
