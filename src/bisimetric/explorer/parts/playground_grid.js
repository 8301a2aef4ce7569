// Text grids and their MDPs, as `worlds.grid` in Python reads them; tests compare both.

export const [WALL, FLOOR, GOAL, TRAP, ARROWS] = ["*", " ", "g", "x", "^v<>"];
export const ACTIONS = ["up", "down", "left", "right"];
export const MOVES = [
  [-1, 0],
  [1, 0],
  [0, -1],
  [0, 1],
];
const DOWN = 1;
const LINK_CHARACTERS = { " ": ".", "^": "u", v: "d", "<": "l", ">": "r" };
const TEXT_CHARACTERS = Object.fromEntries(
  Object.entries(LINK_CHARACTERS).map(([text, link]) => [link, text]),
);
export const MAX_ROWS = 30;
export const MAX_COLUMNS = 40;

/**
 * A grid: the characters of its cells, row by row.
 * @typedef {{ rows: number, columns: number, cells: string }} Grid
 */

/**
 * The deterministic MDP of a grid. `next` and `R` are (states, 4), row by row.
 * @typedef {object} GridMdp
 * @property {number} numStates
 * @property {Int32Array} next the successor per state and action
 * @property {Float64Array} R the reward per state and action
 * @property {Int32Array} cells the cell of each state
 * @property {Int32Array} states the state of each cell, -1 for a wall
 * @property {string[]} names
 * @property {Int32Array | null} policy the actions of the arrows, if there are any
 */

/**
 * What it pays to enter a cell.
 * @param {string} character
 * @returns {number}
 */
export function getReward(character) {
  if (character === GOAL) return 1;
  if (character === TRAP) return -1;
  return /^[1-9]$/.test(character) ? Number(character) / 10 : 0;
}

/**
 * Whether a cell is floor, with or without an arrow.
 * @param {string} character
 */
export const isFloor = (character) => character === FLOOR || ARROWS.includes(character);

/** @param {Grid} grid */
export const hasArrows = (grid) => [...ARROWS].some((arrow) => grid.cells.includes(arrow));

/** @param {Grid} grid */
export const countStates = (grid) => grid.cells.length - grid.cells.split(WALL).length + 1;

/**
 * Parse the text of a grid. Empty lines before and after it are ignored.
 * @param {string} text
 * @returns {Grid}
 * @throws {Error} in one sentence, if the text is no grid.
 */
export function parseGrid(text) {
  const lines = text.replace(/\r\n/g, "\n").split("\n");
  while (lines.length && !lines[0]) lines.shift();
  while (lines.length && !lines[lines.length - 1]) lines.pop();
  if (!lines.length) throw new Error("The grid is empty; draw walls with * and floor with spaces.");
  const columns = lines[0].length;
  lines.forEach((line, row) => {
    if (line.length !== columns)
      throw new Error(
        `Line ${row + 1} has ${line.length} characters and line 1 has ${columns}; all lines must be equally long, spaces at their ends included.`,
      );
    const unknown = line.search(/[^* gx1-9^v<>]/);
    if (unknown >= 0)
      throw new Error(
        `Line ${row + 1}, column ${unknown + 1} is “${line[unknown]}”; allowed are * wall, space floor, g goal, 1 to 9 reward, x trap, and ^ v < > a policy.`,
      );
  });
  if (lines.length > MAX_ROWS || columns > MAX_COLUMNS)
    throw new Error(
      `The grid has ${lines.length} rows and ${columns} columns; this page paints up to ${MAX_ROWS} rows and ${MAX_COLUMNS} columns.`,
    );
  return { rows: lines.length, columns, cells: lines.join("") };
}

/**
 * @param {Grid} grid
 * @returns {string} its lines
 */
export function formatGrid({ rows, columns, cells }) {
  return Array.from({ length: rows }, (_, row) =>
    cells.slice(row * columns, (row + 1) * columns),
  ).join("\n");
}

/**
 * Encode a grid for an address: rows between underscores, without spaces and arrows.
 * @param {Grid} grid
 */
export const encodeGrid = (grid) =>
  formatGrid(grid)
    .replace(/[ ^v<>]/g, (character) => LINK_CHARACTERS[character])
    .replace(/\n/g, "_");

/**
 * @param {string} text of `encodeGrid`
 * @returns {Grid | null} null if it is no grid
 */
export function decodeGrid(text) {
  try {
    return parseGrid(
      text.replace(/[.udlr]/g, (character) => TEXT_CHARACTERS[character]).replace(/_/g, "\n"),
    );
  } catch {
    return null;
  }
}

/**
 * Build the MDP: four actions move one cell. Moving into a wall, or off the grid, pays -1 and stays.
 * @param {Grid} grid
 * @returns {GridMdp}
 */
export function buildMdp(grid) {
  const { rows, columns, cells } = grid;
  const found = [...cells].flatMap((character, cell) => (character === WALL ? [] : [cell]));
  const states = new Int32Array(cells.length).fill(-1);
  found.forEach((cell, state) => (states[cell] = state));
  const next = new Int32Array(4 * found.length);
  const R = new Float64Array(4 * found.length);
  found.forEach((cell, state) => {
    const [row, column] = [Math.floor(cell / columns), cell % columns];
    MOVES.forEach(([down, right], action) => {
      const [y, x] = [row + down, column + right];
      const isInside = y >= 0 && y < rows && x >= 0 && x < columns;
      const target = isInside ? states[y * columns + x] : -1;
      next[4 * state + action] = target < 0 ? state : target;
      R[4 * state + action] = target < 0 ? -1 : getReward(cells[y * columns + x]);
    });
  });
  return {
    numStates: found.length,
    next,
    R,
    cells: Int32Array.from(found),
    states,
    names: found.map((cell) => `${Math.floor(cell / columns)},${cell % columns}`),
    policy: hasArrows(grid) ? Int32Array.from(found, (cell) => readAction(cells[cell])) : null,
  };
}

/**
 * The action of an arrow; down where there is none, as at a goal.
 * @param {string} character
 */
function readAction(character) {
  const action = ARROWS.indexOf(character);
  return action < 0 ? DOWN : action;
}

/**
 * Change cells.
 * @param {Grid} grid
 * @param {Iterable<number>} changed
 * @param {string} character
 * @returns {Grid} the same grid if nothing changes
 */
export function paintCells(grid, changed, character) {
  const cells = [...grid.cells];
  for (const cell of changed) cells[cell] = character;
  const joined = cells.join("");
  return joined === grid.cells ? grid : { ...grid, cells: joined };
}

/**
 * Give every floor cell that has none an arrow.
 * @param {Grid} grid
 * @param {ArrayLike<number>} policy an action per state
 * @returns {Grid}
 */
export function fillArrows(grid, policy) {
  let state = -1;
  const cells = [...grid.cells].map((character) => {
    if (character !== WALL) state++;
    return character === FLOOR ? ARROWS[policy[state]] : character;
  });
  return { ...grid, cells: cells.join("") };
}

/**
 * @param {Grid} grid
 * @returns {Grid} with plain floor in place of arrows
 */
export const removeArrows = (grid) => ({ ...grid, cells: grid.cells.replace(/[\^v<>]/g, FLOOR) });

/**
 * Cut or extend a grid at its lower right corner. New cells continue the last row and column that
 * remain, so that a border of walls stays one.
 * @param {Grid} grid
 * @param {number} rows
 * @param {number} columns
 * @returns {Grid}
 */
export function resizeGrid(grid, rows, columns) {
  // A border is moved along: its copy comes from the old last row and column.
  const pick = (at, size, oldSize) => {
    if (at === size - 1) return oldSize - 1;
    return Math.min(at, Math.max(0, oldSize - 2));
  };
  const cells = Array.from({ length: rows * columns }, (_, cell) => {
    const [row, column] = [Math.floor(cell / columns), cell % columns];
    const [fromRow, fromColumn] = [pick(row, rows, grid.rows), pick(column, columns, grid.columns)];
    const character = grid.cells[fromRow * grid.columns + fromColumn];
    const isCopied = row >= grid.rows - 1 || column >= grid.columns - 1;
    const isBorder = row === rows - 1 || column === columns - 1;
    // Goals, rewards and traps are not multiplied.
    if (!isCopied || isBorder || character === WALL || isFloor(character)) return character;
    return FLOOR;
  }).join("");
  return { rows, columns, cells };
}

/**
 * Cells on the straight line between two cells, both included, so that a fast stroke has no holes.
 * @param {Grid} grid
 * @param {number} from
 * @param {number} to
 * @returns {number[]}
 */
export function listCellsBetween({ columns }, from, to) {
  const [y, x] = [Math.floor(from / columns), from % columns];
  const [dy, dx] = [Math.floor(to / columns) - y, (to % columns) - x];
  const steps = Math.max(Math.abs(dy), Math.abs(dx), 1);
  return Array.from(
    { length: steps + 1 },
    (_, k) => (y + Math.round((dy * k) / steps)) * columns + x + Math.round((dx * k) / steps),
  );
}
