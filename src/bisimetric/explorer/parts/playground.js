// The playground: paint a grid, and see distances, explanations and classes change.
import { createChip, createElement, readData } from "./elements.js";
import { readField, writeFields } from "./fragment.js";
import { ExplanationPanel, listPathStates } from "./explanation_panel.js";
import { createNumberFormat, formatNumber, pluralise } from "./numbers.js";
import { PALETTE, createDistanceScale, createScaleBar, createSwatch } from "./scales.js";
import { Selection } from "./selection.js";
import { Tooltip, createTerm } from "./tooltips.js";
import { SINGLETON_COLOUR, assignClassColours } from "./class_colours.js";
import { computeMerges, labelClasses, listThresholds } from "./playground_classes.js";
import { KINDS, MAX_DISCOUNT, SELECT, readBrushKey } from "./playground_controls.js";
import { createDistance } from "./playground_distance.js";
import {
  ARROWS,
  FLOOR,
  buildMdp,
  decodeGrid,
  encodeGrid,
  fillArrows,
  hasArrows,
  paintCells,
  parseGrid,
  removeArrows,
  resizeGrid,
} from "./playground_grid.js";
import { History } from "./playground_history.js";
import { createLayout } from "./playground_layout.js";
import { PlaygroundMap, buildMapData, describeCell } from "./playground_map.js";
import { PRESETS } from "./playground_presets.js";
import { ProofPanel } from "./playground_proof.js";
import { MAX_STATES, SolutionQueue } from "./playground_solutions.js";
import { solve } from "./playground_solver.js";

const PENDING_COLOUR = "#c9ced6";

/** @import { Kind } from "./playground_solver.js" */

const pageData = readData();
const liveRegion = createElement("div", {
  class: "visually-hidden",
  role: "status",
  id: "announcement",
});
const announce = (text) => (liveRegion.textContent = text);
const tooltip = new Tooltip(document.body);
document.body.append(liveRegion);

// What is shown: `grid`, `kind`, `discount`, `view` ("distances" or "classes") and `threshold`.
/** @type {{ grid: import("./playground_grid.js").Grid, kind: Kind, discount: number, view: string, threshold: number, preset: import("./playground_presets.js").Preset | null }} */
const model = readModel();
model.grid = completeArrows(model.grid);
let mdp = buildMdp(model.grid);
let mapData = buildMapData(model.grid, mdp);
let d = null; // the distance of this grid, or null while it is computed
let merges = null;
let coloursByCell = new Map();
const pair = new Selection(0);
const history = new History(takeSnapshot());

function readModel() {
  const preset = PRESETS[pageData.preset] ?? PRESETS["two-rooms"];
  const kinds = /** @type {Kind[]} */ (Object.keys(KINDS));
  const kind = kinds.find((each) => KINDS[each].link === readField("distance"));
  const discount = Number(readField("discount") ?? "x");
  const grid = decodeGrid(readField("grid") ?? "");
  const isDefault = grid === null && pageData.grid === null;
  const initial = grid ?? parseGrid(pageData.grid ?? preset.text);
  return {
    grid: initial,
    kind: kind ?? (hasArrows(initial) ? "on_policy" : preset.kind),
    discount: discount >= 0 && discount <= MAX_DISCOUNT ? discount : preset.discount,
    view: readField("view") === "classes" ? "classes" : "distances",
    threshold: Math.max(0, Number(readField("threshold")) || 0),
    preset: isDefault ? preset : null,
  };
}

function takeSnapshot() {
  const { grid, kind, discount } = model;
  return { grid, kind, discount };
}

// The state of a cell that is given as "row,column", or undefined.
const findState = (name) => {
  const state = mdp.names.indexOf(name);
  return state < 0 ? undefined : state;
};

/** @type {PlaygroundMap | null} */
let map = null;
const layout = createLayout(
  {
    setBrush: (brush) => map?.setPainting(brush !== SELECT), // there is no map at first
    setDiscount: (discount, isFinal) => change({ discount }, isFinal),
    resize: (rows, columns) => change({ grid: resizeGrid(model.grid, rows, columns) }),
    setKind: (kind) => change({ kind }),
    setPolicy: (policy) =>
      change({ grid: policy === "painted" ? paintPolicy() : removeArrows(model.grid) }),
    setView(view) {
      model.view = view;
      paintModel();
    },
    setThreshold(index) {
      model.threshold = listThresholds(merges)[index];
      paintModel();
    },
    setPreset: applyPreset,
    undo: () => restore(history.undo()),
    redo: () => restore(history.redo()),
  },
  announce,
  pageData.generator,
);
map = new PlaygroundMap(layout.mapHolder, mapData, {
  select: (state) => pair.select(state),
  clear: () => pair.clear(),
  hover(state, x, y) {
    if (state === null) return tooltip.hide();
    tooltip.show(
      [createElement("strong", {}, mdp.names[state]), ...describeState(state)],
      x + 14,
      y + 16,
    );
  },
  visit(cell) {
    const state = mdp.states[cell];
    announce([describePlace(cell), ...(state < 0 ? [] : describeState(state).slice(1))].join(", "));
  },
  paint: paintStroke,
  finish: () => commit(),
  type(cell, key) {
    const brush = readBrushKey(key);
    if (brush === null) return false;
    if (ARROWS.includes(brush) && !hasArrows(model.grid)) return false;
    updateModel({ grid: completeArrows(paintCells(model.grid, [cell], brush)) });
    commit();
    announce(`${describePlace(cell)}. ${describeSolution()}`);
    return true;
  },
});
const pairPanel = new ExplanationPanel(layout.panel, mapData, pair, {
  chart: null,
  announce,
  show: (explanation, step) => map.drawPaths(...listPathStates(explanation, step)),
});
const proofPanel = new ProofPanel(layout.proof, announce, (grid) =>
  change({ grid: completeArrows(grid) }),
);
const queue = new SolutionQueue(pageData.worker, showSolution);

const describePlace = (cell) => {
  const { columns, cells } = model.grid;
  return `${Math.floor(cell / columns)},${cell % columns} ${describeCell(cells[cell])}`;
};

function describeState(state) {
  const character = model.grid.cells[mdp.cells[state]];
  const lines = [describeCell(character)];
  if (!d) return lines;
  const { first } = pair;
  lines.push(
    `${d.symbol} = ${formatNumber(d.at(first, state), 6)}${first === state ? ", the selected cell" : ""}`,
  );
  return [...lines, `${d.V.name} = ${formatNumber(d.V.values[state], 5)}`];
}

function describeSolution() {
  if (!mdp.numStates) return "Walls only.";
  if (!d) return `${pluralise(mdp.numStates, "state")}.`;
  const numClasses = Math.max(...d.labels) + 1;
  const text = `${pluralise(mdp.numStates, "state")}, ${pluralise(numClasses, "class", "classes")} at distance 0`;
  const { first, second } = pair;
  return second === null
    ? `${text}.`
    : `${text}; ${d.symbol} of the pair ${formatNumber(d.at(first, second), 6)}.`;
}

// A stroke starts on a cell; if that has the brush already, the stroke erases.
let strokeCharacter = FLOOR;
function paintStroke(cells, isStart) {
  const { brush } = layout.palette;
  if (isStart) strokeCharacter = model.grid.cells[cells[0]] === brush ? FLOOR : brush;
  const painted = paintCells(model.grid, cells, strokeCharacter);
  updateModel({ grid: completeArrows(painted) });
}

// The policy of a grid whose arrows are incomplete: the optimal one, where there is no arrow.
function completeArrows(grid) {
  return hasArrows(grid) && grid.cells.includes(FLOOR)
    ? fillArrows(grid, computePolicy(grid))
    : grid;
}

const paintPolicy = () => fillArrows(model.grid, computePolicy(model.grid));

function computePolicy(grid) {
  const { numStates, next, R } = buildMdp(grid);
  const { discount } = model;
  return solve({ kind: "on_policy", numStates, next, R, discount, policy: null }).policy;
}

// Change what is shown, and remember what was shown before.
function change(changes, isFinal = true) {
  updateModel(changes);
  if (isFinal) commit();
}

function commit() {
  history.push(takeSnapshot());
  updateButtons();
}

function restore(snapshot) {
  if (snapshot === null) return;
  updateModel(snapshot);
  updateButtons();
  announce(`restored. ${describeSolution()}`);
}

function updateButtons() {
  // A button that has the focus keeps it.
  layout.undo.setAttribute("aria-disabled", String(!history.canUndo));
  layout.redo.setAttribute("aria-disabled", String(!history.canRedo));
}

function applyPreset(preset) {
  model.preset = preset;
  updateModel({ grid: parseGrid(preset.text), kind: preset.kind, discount: preset.discount });
  const [first, second] = preset.states.map(findState);
  pair.selectPair(first, second);
  commit();
  announce(`${preset.name}. ${preset.note}`);
}

// Apply changes of the model and solve it.
function updateModel(changes) {
  if (changes.grid && changes.grid !== model.grid && !("kind" in changes)) model.preset = null;
  Object.assign(model, changes);
  const cells = [pair.first, pair.second].map((s) => (s === null ? null : mdp.cells[s]));
  const oldColumns = mapData.grid.columns;
  if (model.grid !== mapData.grid) {
    mdp = buildMdp(model.grid);
    mapData = buildMapData(model.grid, mdp);
    map.setData(mapData);
    pairPanel.data = mapData;
    const [first, second] = cells.map((cell) => moveState(cell, oldColumns));
    Object.assign(pair, { first: first ?? findNearestState(cells[0]), second });
    if (second === null) pair.hasSecond = false;
  }
  solveModel();
}

// The state at the place of a cell of the previous grid, or null.
function moveState(cell, oldColumns) {
  if (cell === null || cell === undefined) return null;
  const [row, column] = [Math.floor(cell / oldColumns), cell % oldColumns];
  return findState(`${row},${column}`) ?? null;
}

// The state nearest to a cell that became a wall.
function findNearestState(cell) {
  const { columns } = model.grid;
  const measure = (other) =>
    Math.abs(Math.floor(other / columns) - Math.floor(cell / columns)) +
    Math.abs((other % columns) - (cell % columns));
  let best = 0;
  mdp.cells.forEach((other, s) => {
    if (measure(other) < measure(mdp.cells[best])) best = s;
  });
  return best;
}

function solveModel() {
  const { kind, discount } = model;
  d = null;
  merges = null;
  if (mdp.numStates === 0 || mdp.numStates > MAX_STATES) return paintModel();
  const { numStates, next, R } = mdp;
  const policy = kind === "on_policy" ? mdp.policy : null;
  const start = createStart();
  if (!queue.solve({ kind, numStates, next, R, discount, policy, start })) paintModel();
}

// The last solution: its strategies are nearly optimal after a stroke.
let lastStart = null;

function createStart() {
  const { kind, grid } = model;
  if (lastStart?.kind !== kind || lastStart.columns !== grid.columns) return null;
  const states = Int32Array.from(mdp.cells, (cell) => lastStart.states[cell] ?? -1);
  return { strategies: lastStart.strategies, labels: lastStart.labels, states };
}

function showSolution(problem, solution, timing) {
  // The grid may have changed while the Worker was busy.
  if (problem.next !== mdp.next) return;
  d = createDistance(problem, solution);
  const { strategies, labels } = solution;
  lastStart = {
    kind: problem.kind,
    columns: model.grid.columns,
    states: mdp.states,
    strategies,
    labels,
  };
  api.lastSolution = { ...timing, iterations: solution.iterations };
  paintModel();
}

function paintModel() {
  paintControls();
  if (d && mdp.numStates) {
    if (model.view === "classes") paintClasses();
    else paintDistances();
    map.setArrows(model.kind === "on_policy" ? d.policy : mdp.policy);
    map.select(pair.first, pair.second);
    pairPanel.paint(d);
  } else paintPending();
  writeFields({
    grid: encodeGrid(model.grid),
    distance: KINDS[model.kind].link,
    discount: model.discount,
    states: [pair.first, pair.second].filter((s) => s !== null).join(),
    view: model.view === "classes" ? "classes" : null,
    threshold: model.view === "classes" ? model.threshold : null,
  });
}

function paintControls() {
  const { grid, kind, discount, view } = model;
  layout.kind.select.value = kind;
  layout.discount.set(discount);
  layout.size.set(grid.rows, grid.columns);
  layout.presets.set(model.preset);
  layout.policy.label.hidden = kind !== "on_policy";
  layout.policy.select.value = hasArrows(grid) ? "painted" : "optimal";
  layout.palette.setArrows(hasArrows(grid));
  layout.view.select.value = view;
  layout.thresholdRow.hidden = view !== "classes";
  layout.note.hidden = !model.preset;
  layout.note.textContent = model.preset?.note ?? "";
  const numClasses = d && Math.max(...d.labels) + 1;
  const parts = [
    pluralise(mdp.numStates, "state"),
    d
      ? `${pluralise(numClasses, "class", "classes")} at distance 0`
      : mdp.numStates > MAX_STATES
        ? `more than the ${MAX_STATES} of this page`
        : "computing …",
    "computed in your browser, not proven",
  ];
  layout.facts.replaceChildren(...parts.map((part) => createElement("span", {}, part)));
  const policy = kind === "on_policy" && !hasArrows(grid) && d ? d.policy : null;
  proofPanel.show(model, mdp.names[pair.first], policy);
}

function rememberColours(colours) {
  coloursByCell = new Map(colours.map((colour, s) => [mdp.cells[s], colour]));
}

// While a Worker computes: the colours of the last solution, without numbers.
function paintPending() {
  const isTooLarge = mdp.numStates > MAX_STATES;
  const colours = Array.from(mdp.cells, (cell) =>
    isTooLarge ? PENDING_COLOUR : (coloursByCell.get(cell) ?? PENDING_COLOUR),
  );
  map.setArrows(mdp.policy);
  map.drawPaths([], [], []);
  map.select(mdp.numStates ? pair.first : null, pair.second);
  map.paint(
    colours,
    colours.map(() => ""),
  );
  let message = "Computing …";
  if (!mdp.numStates) message = "There are walls only. Paint floor, and the cells become states.";
  if (isTooLarge)
    message = `This grid has ${mdp.numStates} states, and the page computes up to ${MAX_STATES}. Paint walls, or use the command below.`;
  layout.mapTitle.textContent = message;
  layout.panel.replaceChildren(createElement("p", { class: "quiet" }, message));
}

function paintDistances() {
  const row = d.matrix.row(pair.first);
  const scale = createDistanceScale(row, pageData.colours, 0);
  const formatDistance = createNumberFormat(d.matrix.largest);
  const colours = Array.from(row, scale.colour);
  rememberColours(colours);
  map.paint(colours, Array.from(row, formatDistance));
  layout.mapTitle.replaceChildren(
    createTerm(d.kindName, d.kindName),
    " from ",
    createChip(mdp.names[pair.first], "first"),
  );
  layout.scale.replaceChildren(createScaleBar(scale, []));
}

function paintClasses() {
  merges ??= computeMerges(d.matrix.values, mdp.numStates);
  const thresholds = listThresholds(merges);
  let index = 0;
  while (index + 1 < thresholds.length && thresholds[index + 1] <= model.threshold) index++;
  layout.threshold.max = String(thresholds.length - 1);
  layout.threshold.value = String(index);
  const threshold = thresholds[index];
  // At threshold 0, exactly the classes of the relation.
  const labels = index === 0 ? d.labels : labelClasses(merges, threshold, mdp.numStates);
  const sizes = new Map();
  labels.forEach((label) => sizes.set(label, (sizes.get(label) ?? 0) + 1));
  const chosen = assignClassColours(map.layout, labels, sizes);
  const colours = Array.from(labels, (label) =>
    chosen.has(label) ? PALETTE[chosen.get(label)] : SINGLETON_COLOUR,
  );
  rememberColours(colours);
  map.paint(colours, Array.from(labels, String));
  const words = `${pluralise(sizes.size, "class", "classes")} of ${pluralise(mdp.numStates, "state")}, at most ${formatNumber(threshold, 5)} apart`;
  layout.classes.textContent = words;
  layout.threshold.setAttribute("aria-valuetext", words);
  layout.mapTitle.textContent = index
    ? "Classes of similar cells"
    : "Classes of cells at distance 0";
  layout.scale.replaceChildren(
    createElement("div", { class: "legend" }, createSwatch(SINGLETON_COLOUR, "singleton class")),
  );
}

pair.listen(() => {
  if (d) paintModel();
  const state = pair.cursor;
  announce([mdp.names[state], ...describeState(state)].join(", "));
});
document.addEventListener("keydown", (event) => {
  const isCommand = event.ctrlKey || event.metaKey;
  const isText = document.activeElement?.matches("textarea, input[type=number]");
  if (!isCommand || event.altKey || isText) return;
  const isRedo = event.key === "y" || (event.key.toLowerCase() === "z" && event.shiftKey);
  if (!isRedo && event.key !== "z") return;
  event.preventDefault();
  restore(isRedo ? history.redo() : history.undo());
});

function selectInitialStates() {
  const names = model.preset && readField("states") === null ? model.preset.states : null;
  const states = names
    ? names.map(findState)
    : /^\d{1,4}(,\d{1,4})?$/.test(readField("states") ?? "")
      ? readField("states").split(",").map(Number)
      : [0];
  const [first, second = null] = states;
  if (states.some((s) => s === undefined || s >= mdp.numStates)) return;
  Object.assign(pair, {
    first,
    second,
    hasSource: second !== null,
    hasSecond: second !== null,
  });
}

// For tests and the console.
const api = {
  model,
  selection: pair,
  history,
  map,
  explanationPanel: pairPanel,
  lastSolution: null,
  change,
  get mdp() {
    return mdp;
  },
  get distance() {
    return d;
  },
};
window.bisimetric = api;
map.setPainting(layout.palette.brush !== SELECT);
selectInitialStates();
updateButtons();
solveModel();
