// The states, as the cells of a map or as points: painted, hovered, picked, walked on.
import { drawing, element } from "./elements.js";
import { ink } from "./scales.js";

const MOST_NUMBERED = 24; // cells in a row of which the numbers are written
const TURNS = { ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] };

export class StateMap {
  // `on` has pick(state), move(state), clear() and hover(state or null, x, y).
  constructor(host, data, on, label) {
    this.data = data;
    this.on = on;
    this.names = data.names;
    this.cells = data.map !== null;
    this.place();
    this.layers = Object.fromEntries(
      ["ground", "states", "numbers", "marks", "paths", "picked"].map((name) => [
        name,
        drawing("g", { class: name }),
      ]),
    );
    this.svg = drawing(
      "svg",
      {
        class: this.cells ? "states-map" : "states-map points",
        viewBox: `0 0 ${this.width} ${this.height}`,
        style: `aspect-ratio: ${this.width} / ${this.height}; --ratio: ${this.width / this.height}`,
        tabindex: 0,
        role: "application",
        "aria-roledescription": "map of states",
        "aria-label": `${label}. Arrow keys move, Enter picks a state, Escape clears.`,
      },
      Object.values(this.layers),
    );
    host.append(this.svg);
    this.ground();
    this.draw();
    this.listen();
    this.svg.classList.toggle("dense", this.cells && this.width > 2 * MOST_NUMBERED);
    this.numbered = this.cells && Math.max(this.width, this.height) <= MOST_NUMBERED;
    if (this.numbered) new ResizeObserver(() => this.fit()).observe(this.svg);
  }

  // Where the states are: x, y, in cells or in hundredths of the width.
  place() {
    const { map, points } = this.data;
    if (this.cells) {
      [this.width, this.height] = [map.width, map.height];
      this.x = map.columns.map((column) => column + 0.5);
      this.y = map.rows.map((row) => row + 0.5);
      this.size = 1;
      return;
    }
    const [xs, ys] = [points.map((point) => point[0]), points.map((point) => -point[1])];
    const [left, top] = [Math.min(...xs), Math.min(...ys)];
    const [wide, tall] = [Math.max(...xs) - left, Math.max(...ys) - top];
    this.size = Math.max(1.1, Math.min(4, 30 / Math.sqrt(points.length)));
    const margin = 3 + this.size;
    this.width = 100 + 2 * margin;
    this.height = Math.max(45, 100 * tall) + 2 * margin;
    const [dx, dy] = [margin + 50 * (1 - wide), (this.height - 100 * tall) / 2];
    this.x = xs.map((x) => dx + 100 * (x - left));
    this.y = ys.map((y) => dy + 100 * (y - top));
  }

  ground() {
    const { map, goals, parts } = this.data;
    const { ground, marks } = this.layers;
    ground.append(
      drawing("rect", {
        class: "wall",
        width: this.width,
        height: this.height,
        rx: this.cells ? 0.15 : 2,
      }),
    );
    for (const [row, column] of this.cells ? map.others : [])
      ground.append(
        drawing("rect", { class: "other", x: column, y: row, width: 1.02, height: 1.02 }),
      );
    const small = this.cells && this.units(18) > 1;
    const [far, size] = this.cells
      ? [small ? 0 : 0.33, Math.max(0.3, this.units(10))]
      : [0, this.size * 1.1];
    for (const goal of goals)
      marks.append(
        drawing(
          "text",
          {
            class: "goal",
            x: this.x[goal] - far,
            y: this.y[goal] - far,
            "font-size": size,
            "aria-hidden": true,
          },
          "★",
        ),
      );
    for (const part of parts)
      marks.append(
        drawing(
          "text",
          { class: "part", x: part.column + 0.5, y: part.row + 0.5, "font-size": 0.6 },
          part.name,
        ),
      );
  }

  draw() {
    this.shapes = this.names.map((_, s) => {
      const [x, y] = [this.x[s], this.y[s]];
      const shape = this.cells
        ? drawing("rect", { x: x - 0.5, y: y - 0.5, width: 1, height: 1, "data-state": s })
        : drawing("circle", { cx: x, cy: y, r: this.size / 2, "data-state": s });
      return shape;
    });
    this.layers.states.append(...this.shapes);
  }

  listen() {
    const stateOf = (event) => {
      const found = event.target.dataset?.state;
      return found === undefined ? null : Number(found);
    };
    this.svg.addEventListener("pointermove", (event) => {
      // A finger would stay on what it shows.
      if (event.pointerType !== "touch")
        this.on.hover(stateOf(event), event.clientX, event.clientY);
    });
    this.svg.addEventListener("pointerleave", () => this.on.hover(null));
    this.svg.addEventListener("click", (event) => {
      const state = stateOf(event);
      if (state !== null) this.on.pick(state);
    });
    this.svg.addEventListener("keydown", (event) => {
      if (event.key in TURNS) this.on.move(this.beside(this.cursor ?? 0, ...TURNS[event.key]));
      else if (event.key === "Enter" || event.key === " ") this.on.pick(this.cursor ?? 0);
      else if (event.key === "Escape") this.on.clear();
      else return;
      event.preventDefault();
    });
  }

  // The state that one meets from another one in a direction: near, and straight ahead.
  beside(state, dx, dy) {
    let [best, least] = [state, Infinity];
    for (let t = 0; t < this.names.length; t++) {
      const [x, y] = [this.x[t] - this.x[state], this.y[t] - this.y[state]];
      const [ahead, aside] = [x * dx + y * dy, Math.abs(x * dy) + Math.abs(y * dx)];
      if (ahead <= 1e-9 || aside > 2 * ahead) continue;
      const cost = ahead + 3 * aside;
      if (cost < least) [best, least] = [t, cost];
    }
    return best;
  }

  // Pairs of states whose cells touch.
  borders() {
    if (!this.cells) return [];
    const place = new Map(this.names.map((_, s) => [`${this.x[s]},${this.y[s]}`, s]));
    const found = [];
    for (const s of place.values())
      for (const [dx, dy] of [
        [1, 0],
        [0, 1],
        [1, 1],
        [1, -1],
      ]) {
        const t = place.get(`${this.x[s] + dx},${this.y[s] + dy}`);
        if (t !== undefined) found.push([s, t]);
      }
    return found;
  }

  // Colours (n,) and, where there is room, words (n,).
  paint(colours, words = null, veiled = new Set()) {
    for (let s = 0; s < this.shapes.length; s++) {
      const shape = this.shapes[s];
      shape.setAttribute("fill", colours[s]);
      if (veiled.has(s) !== shape.classList.contains("veil"))
        shape.classList.toggle("veil", veiled.has(s));
    }
    if (!this.numbered) return;
    if (!this.texts) {
      this.texts = this.names.map((_, s) => drawing("text", { x: this.x[s], y: this.y[s] + 0.04 }));
      this.layers.numbers.append(...this.texts);
    }
    this.texts.forEach((text, s) => {
      text.textContent = veiled.has(s) || !words ? "" : words[s];
      text.setAttribute("fill", ink(colours[s]));
    });
    this.fit();
  }

  // Numbers are written where a cell is wide enough to read them.
  fit() {
    if (!this.texts) return;
    const pixels = this.svg.clientWidth / this.width;
    const longest = Math.max(1, ...this.texts.map((text) => text.textContent.length));
    const size = Math.min(0.32, 1.38 / longest);
    this.layers.numbers.setAttribute("font-size", size);
    this.layers.numbers.toggleAttribute("hidden", size * pixels < 7.5);
  }

  // Outlines of the first and the second state.
  select(first, second, cursor) {
    this.cursor = cursor ?? second ?? first;
    const outlined = (state, name) => (state === null ? null : this.outline(state, name));
    this.layers.picked.replaceChildren(
      ...[outlined(second, "second"), outlined(first, "first")].filter(Boolean).flat(),
    );
  }

  // How many units of the drawing so many pixels are.
  units(pixels) {
    return (pixels * this.width) / (this.svg.clientWidth || 600);
  }

  outline(state, name) {
    const [x, y] = [this.x[state], this.y[state]];
    // Inside of a large cell, around a small one.
    const far = this.units(18) < 1 ? 0.46 : 0.5 + this.units(2);
    return ["halo", name].map((kind) =>
      this.cells
        ? drawing("rect", {
            class: kind,
            x: x - far,
            y: y - far,
            width: 2 * far,
            height: 2 * far,
            rx: 0.06,
          })
        : drawing("circle", { class: kind, cx: x, cy: y, r: this.size / 2 + 0.7 }),
    );
  }

  // Lines between matched states, and two paths side by side: lists of states.
  paths(first = [], second = [], matches = []) {
    const gap = this.cells ? 0.13 : this.size * 0.18;
    const drawn = [];
    for (const { states, mass } of matches)
      for (const kind of ["match under", "match"])
        drawn.push(
          drawing("line", {
            class: kind,
            x1: this.x[states[0]],
            y1: this.y[states[0]],
            x2: this.x[states[1]],
            y2: this.y[states[1]],
            "stroke-opacity": 0.3 + 0.7 * mass,
          }),
        );
    for (const [name, states, side] of [
      ["second", second, gap],
      ["first", first, -gap],
    ]) {
      if (!states.length) continue;
      const points = states.map((s) => [this.x[s] + side, this.y[s] + side]);
      const line = points.map((point) => point.map((x) => x.toFixed(3)).join(",")).join(" ");
      drawn.push(
        drawing("polyline", { class: "halo", points: line }),
        drawing("polyline", { class: name, points: line }),
      );
      const [x, y] = points[points.length - 1];
      const radius = Math.max(this.cells ? 0.2 : this.size * 0.5, this.units(7));
      drawn.push(
        drawing("circle", { class: `walker ${name}`, cx: x, cy: y, r: radius }),
        drawing(
          "text",
          { class: "walker", x, y, "font-size": 1.35 * radius },
          name === "first" ? "1" : "2",
        ),
      );
    }
    this.layers.paths.replaceChildren(...drawn);
    this.svg.classList.toggle("walked", drawn.length > 0);
  }
}

// Says a line to those who listen in place of looking.
export const announcer = () =>
  element("div", { class: "unseen", "aria-live": "polite", id: "said" });
