// The map of the playground: the explorer's map of states, whose cells are painted.
import { createSvgElement } from "./elements.js";
import { StateMap } from "./map.js";
import { drawGoals, drawHoles } from "./overlays.js";
import { ARROWS, GOAL, MOVES, TRAP, WALL, listCellsBetween } from "./playground_grid.js";
import { StateLayout } from "./state_layout.js";

const GLYPHS = ["↑", "↓", "←", "→"];
const ARROW_KEYS = ["ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight"];

/**
 * The data of a map, in the form that the explorer's pages have.
 * @param {import("./playground_grid.js").Grid} grid
 * @param {import("./playground_grid.js").GridMdp} mdp
 */
export function buildMapData(grid, mdp) {
  const select = (/** @type {string} */ character) =>
    [...mdp.cells.keys()].filter((s) => grid.cells[mdp.cells[s]] === character);
  return {
    names: mdp.names,
    map: {
      width: grid.columns,
      height: grid.rows,
      rows: Array.from(mdp.cells, (cell) => Math.floor(cell / grid.columns)),
      columns: Array.from(mdp.cells, (cell) => cell % grid.columns),
      unsampledCells: [],
      walls: [],
      stands: [],
      headings: [],
      places: [],
    },
    points: null,
    parts: [],
    goals: select(GOAL),
    holes: select(TRAP),
    grid,
    mdp,
  };
}

export class PlaygroundMap extends StateMap {
  /**
   * @param {HTMLElement} host
   * @param {ReturnType<typeof buildMapData>} data
   * @param {any} handlers those of `StateMap`, and paint(cells, isStart, startCell), finish() and
   *   type(cell, key), which returns whether a key paints
   */
  constructor(host, data, handlers) {
    super(host, data, handlers, "Grid");
    this.svg.setAttribute(
      "aria-label",
      "Grid. Arrow keys move the cursor; w or * paints a wall, space floor, g a goal, 1 to 9 a reward, x a trap; Enter selects a cell, Escape clears the selection.",
    );
    this.setSize();
    this.cursorLayer = createSvgElement("g", { class: "cursor" });
    this.svg.append(this.cursorLayer);
    this.cursorCell = data.mdp.cells[0] ?? 0;
    this.arrows = null;
    this.isPainting = false;
  }

  // Show another grid; its size may differ.
  setData(data) {
    const { width, height } = data.map;
    const isResized = width !== this.layout.width || height !== this.layout.height;
    this.data = data;
    this.layout = new StateLayout(data);
    this.stateCanvas.layout = this.layout;
    this.hasNumbers = Math.max(width, height) <= 24;
    this.texts = null;
    this.lastPaint = null;
    // States of the previous grid.
    this.select(null, null);
    this.drawPaths([], [], []);
    this.layers.numbers.replaceChildren();
    this.hover(null);
    if (isResized) {
      this.setSize();
      this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
      this.frame.style.aspectRatio = `${width} / ${height}`;
      this.frame.style.setProperty("--ratio", String(width / height));
      this.frame.classList.toggle("dense", width > 48);
      this.cursorCell = Math.min(this.cursorCell, width * height - 1);
      this.pixels = null;
      this.resize();
    }
    this.drawMarks();
    this.drawCursor();
  }

  // For the lines between the cells.
  setSize() {
    this.frame.style.setProperty("--columns", String(this.data.grid.columns));
    this.frame.style.setProperty("--rows", String(this.data.grid.rows));
  }

  // Show the arrows of a policy (n,), or null.
  setArrows(arrows) {
    this.arrows = arrows;
    this.drawMarks();
  }

  drawMarks() {
    const { goals, holes, grid, mdp } = this.data;
    const { layout, toUnits } = this;
    // In the corner of a cell that also has room for a number.
    const isSmall = toUnits(18) > 1;
    const size = Math.max(0.26, toUnits(11));
    const offset = isSmall ? 0 : 0.41 - size / 2;
    const drawText = (name, s, side, text) =>
      createSvgElement(
        "text",
        {
          class: name,
          x: layout.x[s] + side * offset,
          y: layout.y[s] - offset,
          "font-size": size,
        },
        text,
      );
    const rewards = [...mdp.cells.keys()].filter((s) => /[1-9]/.test(grid.cells[mdp.cells[s]]));
    this.layers.marks.replaceChildren(
      ...drawHoles(layout, holes, toUnits),
      ...drawGoals(layout, goals, toUnits),
      ...rewards.map((s) => drawText("reward", s, -0.9, `.${grid.cells[mdp.cells[s]]}`)),
      ...Array.from(this.arrows ?? [], (action, s) =>
        s < mdp.numStates ? drawText("arrow", s, 1, GLYPHS[action]) : "",
      ).filter(Boolean),
    );
  }

  drawCursor() {
    const { columns } = this.data.grid;
    const [row, column] = [Math.floor(this.cursorCell / columns), this.cursorCell % columns];
    this.cursorLayer.replaceChildren(
      ...["halo", "line"].map((name) =>
        createSvgElement("rect", {
          class: name,
          x: column + 0.04,
          y: row + 0.04,
          width: 0.92,
          height: 0.92,
          rx: 0.06,
        }),
      ),
    );
  }

  // Whether dragging paints; otherwise it scrolls, and clicking selects.
  setPainting(isPainting) {
    this.isPainting = isPainting;
    this.svg.classList.toggle("painting", isPainting);
  }

  listen() {
    super.listen();
    let last = null;
    const stop = () => {
      if (last !== null) this.handlers.finish();
      last = null;
    };
    this.svg.addEventListener("pointerdown", (event) => {
      if (!this.isPainting || event.button !== 0) return;
      const cell = this.findCell(event);
      if (cell === null) return;
      this.svg.setPointerCapture(event.pointerId);
      this.cursorCell = last = cell;
      this.drawCursor();
      this.handlers.paint([cell], true);
    });
    this.svg.addEventListener("pointermove", (event) => {
      const cell = last === null ? null : this.findCell(event);
      if (cell === null || cell === last) return;
      const cells = listCellsBetween(this.data.grid, last, cell);
      last = cell;
      this.handlers.paint(cells, false);
    });
    for (const name of ["pointerup", "pointercancel"]) this.svg.addEventListener(name, stop);
    // Before the listeners of `StateMap`, which move between states, not cells.
    this.svg.addEventListener("keydown", (event) => this.onKeyDown(event), { capture: true });
    this.svg.addEventListener(
      "click",
      (event) => {
        if (this.isPainting) event.stopImmediatePropagation();
        else this.moveCursor(this.findCell(event) ?? this.cursorCell);
      },
      { capture: true },
    );
  }

  onKeyDown(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { grid, mdp } = this.data;
    if (ARROW_KEYS.includes(event.key)) {
      const [down, right] = MOVES[ARROW_KEYS.indexOf(event.key)];
      const row = Math.floor(this.cursorCell / grid.columns) + down;
      const column = (this.cursorCell % grid.columns) + right;
      const isInside = row >= 0 && row < grid.rows && column >= 0 && column < grid.columns;
      if (isInside) this.moveCursor(row * grid.columns + column);
    } else if (event.key === "Enter") {
      const state = mdp.states[this.cursorCell];
      if (state >= 0) this.handlers.select(state);
    } else if (event.key === "Escape") this.handlers.clear();
    else if (!this.handlers.type(this.cursorCell, event.key)) return;
    event.preventDefault();
    event.stopImmediatePropagation();
  }

  moveCursor(cell) {
    this.cursorCell = cell;
    this.drawCursor();
    this.handlers.visit(cell);
  }

  // The cell under the pointer, or null.
  findCell({ clientX, clientY }) {
    const { left, top, width } = this.svg.getBoundingClientRect();
    const unit = this.layout.width / width;
    const [column, row] = [(clientX - left) * unit, (clientY - top) * unit].map(Math.floor);
    const { rows, columns } = this.data.grid;
    const isInside = row >= 0 && row < rows && column >= 0 && column < columns;
    return isInside ? row * columns + column : null;
  }
}

/**
 * Describe a cell in words.
 * @param {string} character
 */
export function describeCell(character) {
  const names = { [WALL]: "wall", [GOAL]: "goal", [TRAP]: "trap", " ": "floor" };
  if (ARROWS.includes(character))
    return `floor, arrow ${"up down left right".split(" ")[ARROWS.indexOf(character)]}`;
  return names[character] ?? `reward 0.${character}`;
}
