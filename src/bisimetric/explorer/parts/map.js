// The states, as the cells of a map or as points: painted, hovered, picked, walked on.
import { drawing, element } from "./elements.js";
import { matchLines, outline, pointNames, route, stars, veil } from "./overlays.js";
import { Painting } from "./painting.js";
import { Places } from "./places.js";
import { ink } from "./scales.js";

const MOST_NUMBERED = 24; // cells in a row of which the numbers are written
const REACH = 9; // pixels from a point that still count as on it
const TURNS = { ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] };
const LAYERS = ["others", "veils", "paths", "numbers", "marks", "picked", "heads", "hovered"];

export class StateMap {
  // `on` has pick(state), move(state), clear() and hover(state or null, x, y).
  constructor(host, data, on, label) {
    Object.assign(this, { data, on, hovered: null, picked: [null, null], walk: [[], [], []] });
    this.places = new Places(data);
    this.painting = new Painting(this.places);
    const { cells, width, height } = this.places;
    this.numbered = cells && Math.max(width, height) <= MOST_NUMBERED;
    this.layers = Object.fromEntries(LAYERS.map((name) => [name, drawing("g", { class: name })]));
    this.svg = drawing(
      "svg",
      {
        class: "states-map",
        viewBox: `0 0 ${width} ${height}`,
        tabindex: 0,
        role: "application",
        "aria-roledescription": "map of states",
        "aria-label": `${label}. Arrow keys move, Enter picks a state, Escape clears.`,
      },
      Object.values(this.layers),
    );
    this.frame = element(
      "div",
      {
        class: ["map", cells ? "cells" : "points", width > 2 * MOST_NUMBERED ? "dense" : ""].join(
          " ",
        ),
        style: `aspect-ratio: ${width} / ${height}; --ratio: ${width / height}`,
      },
      this.painting.canvas,
      this.svg,
    );
    host.append(this.frame);
    this.layers.others.append(
      ...(data.map?.others ?? []).map(([row, column]) =>
        drawing("rect", { x: column, y: row, width: 1.02, height: 1.02 }),
      ),
    );
    this.resize();
    new ResizeObserver(() => this.resize()).observe(this.frame);
    this.listen();
  }

  // How wide the map is on the screen is asked for once a size: asking restyles the document.
  resize() {
    const pixels = this.frame.clientWidth;
    if (!pixels || pixels === this.pixels) return;
    this.pixels = pixels;
    this.painting.resize(pixels);
    this.mark();
    if (this.painted) this.paint(...this.painted);
    this.select(...this.picked);
    this.paths(...this.walk);
  }

  // How many units of the drawing so many pixels are.
  units = (pixels) => (pixels * this.places.width) / (this.pixels || 600);

  mark() {
    const { goals, names, parts } = this.data;
    this.layers.marks.replaceChildren(
      ...pointNames(this.places, names, this.units),
      ...stars(this.places, goals, this.units),
      ...parts.map((part) =>
        drawing(
          "text",
          { class: "part", x: part.column + 0.5, y: part.row + 0.5, "font-size": 0.6 },
          part.name,
        ),
      ),
    );
  }

  listen() {
    this.svg.addEventListener("pointermove", (event) => {
      // A finger would stay on what it shows.
      if (event.pointerType !== "touch") this.hover(event);
    });
    this.svg.addEventListener("pointerleave", () => this.hover(null));
    this.svg.addEventListener("click", (event) => {
      const state = this.under(event);
      if (state !== null) this.on.pick(state);
    });
    this.svg.addEventListener("keydown", (event) => {
      if (event.key in TURNS) this.on.move(this.places.beside(this.cursor, ...TURNS[event.key]));
      else if (event.key === "Enter" || event.key === " ") this.on.pick(this.cursor);
      else if (event.key === "Escape") this.on.clear();
      else return;
      event.preventDefault();
    });
  }

  // The state under the pointer.
  under({ clientX, clientY }) {
    const { left, top, width } = this.svg.getBoundingClientRect();
    const unit = this.places.width / width;
    return this.places.at((clientX - left) * unit, (clientY - top) * unit, REACH * unit);
  }

  // Where a state is on the screen.
  centre(state) {
    const { left, top, width } = this.svg.getBoundingClientRect();
    const pixels = width / this.places.width;
    return [left + this.places.x[state] * pixels, top + this.places.y[state] * pixels];
  }

  hover(event) {
    const state = event && this.under(event);
    if (state !== this.hovered) {
      this.hovered = state;
      this.svg.style.cursor = state === null ? "" : "pointer";
      this.layers.hovered.replaceChildren(
        ...(state === null ? [] : outline(this.places, state, "here", this.units)),
      );
    }
    this.on.hover(state, event?.clientX, event?.clientY);
  }

  // Colours (n,) and, where there is room, words (n,); `alone` are the states that are not faint.
  paint(colours, words, veiled = new Set(), alone = null) {
    this.painted = [colours, words, veiled, alone];
    this.painting.draw(colours, veiled, alone);
    if (veiled !== this.veiled) {
      this.veiled = veiled;
      this.layers.veils.replaceChildren(...[...veiled].map((s) => veil(this.places, s)));
    }
    if (!this.numbered) return;
    if (!this.texts) {
      const { x, y } = this.places;
      this.texts = this.data.names.map((_, s) => drawing("text", { x: x[s], y: y[s] + 0.04 }));
      this.layers.numbers.append(...this.texts);
    }
    let longest = 1;
    this.texts.forEach((text, s) => {
      const word = veiled.has(s) || (alone && !alone.has(s)) ? "" : words[s];
      longest = Math.max(longest, word.length);
      text.textContent = word;
      text.setAttribute("fill", ink(colours[s]));
      text.setAttribute("stroke", colours[s]);
    });
    // Numbers are written where a cell is wide enough to read them.
    const size = Math.min(0.32, 1.38 / longest);
    this.layers.numbers.setAttribute("font-size", size);
    this.layers.numbers.toggleAttribute("hidden", size < this.units(9));
  }

  // Outlines of the first and the second state.
  select(first, second) {
    this.picked = [first, second];
    this.layers.picked.replaceChildren(
      ...[
        [second, "second"],
        [first, "first"],
      ].flatMap(([state, kind]) =>
        state === null ? [] : outline(this.places, state, kind, this.units),
      ),
    );
  }

  get cursor() {
    return this.picked[1] ?? this.picked[0] ?? 0;
  }

  // Two paths side by side, lists of states, and lines between those that are matched.
  paths(first, second, matches) {
    this.walk = [first, second, matches];
    // Lines are below the numbers; the heads of the paths are above all outlines.
    const routes = [
      route(this.places, second, "second", this.units, this.numbered),
      route(this.places, first, "first", this.units, this.numbered),
    ];
    this.layers.paths.replaceChildren(
      ...matchLines(this.places, matches, this.units, this.numbered),
      ...routes.flatMap((parts) => parts.slice(0, 2)),
    );
    this.layers.heads.replaceChildren(...routes.flatMap((parts) => parts.slice(2)));
    this.svg.classList.toggle("walked", first.length > 0);
  }
}
