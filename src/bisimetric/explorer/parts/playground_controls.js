// The controls of the playground: brushes, distance, discount, presets, size and history.
import { createElement } from "./elements.js";
import { ARROWS, FLOOR, GOAL, MAX_COLUMNS, MAX_ROWS, TRAP, WALL } from "./playground_grid.js";
import { PRESETS } from "./playground_presets.js";

export const SELECT = "select";
export const KINDS = {
  bisimulation: { symbol: "d~", name: "bisimulation distance", link: "d" },
  on_policy: { symbol: "d^π", name: "on-policy distance", link: "pi" },
  lax: { symbol: "d_lax", name: "lax bisimulation distance", link: "lax" },
};
export const MAX_DISCOUNT = 0.999;

// Brushes: what they paint, their icon, name and key.
const BRUSHES = [
  [SELECT, "➚", "select", "Enter"],
  [WALL, "■", "wall", "w"],
  [FLOOR, "□", "floor", "space"],
  [GOAL, "★", "goal", "g"],
  ["5", ".5", "reward", "1–9"],
  [TRAP, "●", "trap", "x"],
];
const ARROW_BRUSHES = ["up", "down", "left", "right"].map((name, action) => [
  ARROWS[action],
  "↑↓←→"[action],
  name,
  ARROWS[action],
]);

// The character that a key paints, or null.
export function readBrushKey(key) {
  if (key === "w" || key === WALL) return WALL;
  if (key === " " || key === "f") return FLOOR;
  return /^[gx1-9^v<>]$/.test(key) ? key : null;
}

// A group of brushes; `onSelect(brush)` is called with the character of the selected one.
export class Palette {
  constructor(onSelect) {
    this.onSelect = onSelect;
    this.brush = WALL;
    this.reward = "5";
    this.buttons = createElement("div", {
      class: "brushes",
      role: "radiogroup",
      "aria-label": "brush",
      onkeydown: (event) => this.onKeyDown(event),
    });
    this.slider = createElement("input", {
      type: "range",
      id: "reward",
      min: 1,
      max: 9,
      value: 5,
      oninput: () => {
        this.reward = this.slider.value;
        this.select(this.reward);
      },
    });
    this.rewardLabel = createElement("span", { class: "number" });
    this.rewardOption = createElement(
      "label",
      { class: "reward-option", for: "reward" },
      "reward for entering ",
      this.slider,
      this.rewardLabel,
    );
    this.node = createElement("div", { class: "palette" }, this.buttons, this.rewardOption);
    this.setArrows(false);
  }

  // Offer the arrows of a policy too, or not.
  setArrows(hasArrows) {
    if (hasArrows === this.hasArrows) return;
    this.hasArrows = hasArrows;
    const brushes = [...BRUSHES, ...(hasArrows ? ARROW_BRUSHES : [])];
    this.buttons.replaceChildren(
      ...brushes.map(([brush, icon, name, key]) =>
        createElement(
          "button",
          {
            type: "button",
            role: "radio",
            "data-brush": brush,
            title: `${name}: ${key}`,
            onclick: () => this.select(brush === "5" ? this.reward : brush),
          },
          createElement("span", { class: "icon", "aria-hidden": "true" }, icon),
          ` ${name}`,
        ),
      ),
    );
    if (!hasArrows && ARROWS.includes(this.brush)) this.brush = WALL;
    this.select(this.brush);
  }

  select(brush) {
    this.brush = brush;
    const isReward = /[1-9]/.test(brush);
    for (const button of this.listButtons()) {
      const isOn = button.dataset.brush === (isReward ? "5" : brush);
      button.setAttribute("aria-checked", String(isOn));
      button.tabIndex = isOn ? 0 : -1;
    }
    this.rewardOption.hidden = !isReward;
    if (isReward) this.reward = this.slider.value = brush;
    this.rewardLabel.textContent = `0.${this.reward}`;
    this.onSelect(brush);
  }

  listButtons = () => [...this.buttons.querySelectorAll("button")];

  onKeyDown(event) {
    const buttons = this.listButtons();
    const at = buttons.findIndex((button) => button === document.activeElement);
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!step || at < 0) return;
    event.preventDefault();
    const next = buttons[(at + step + buttons.length) % buttons.length];
    next.click();
    next.focus();
  }
}

export const createButton = (label, onclick, attributes = {}) =>
  createElement("button", { type: "button", onclick, ...attributes }, label);

// A labelled select; `options` are pairs of value and words.
export function createSelect(id, label, options, onChange) {
  const select = createElement(
    "select",
    { id, onchange: () => onChange(select.value) },
    ...options.map(([value, words]) => createElement("option", { value }, words)),
  );
  return { select, label: createElement("label", { for: id }, `${label} `, select) };
}

// Buttons that show a preset; that of the current one is pressed.
export class PresetButtons {
  constructor(onSelect) {
    this.buttons = Object.values(PRESETS).map((preset) => ({
      preset,
      button: createButton(preset.name, () => onSelect(preset), { class: "preset" }),
    }));
    this.node = createElement(
      "div",
      { class: "presets", role: "group", "aria-label": "start from" },
      createElement("span", {}, "start from "),
      ...this.buttons.map(({ button }) => button),
    );
  }

  set(current) {
    for (const { preset, button } of this.buttons)
      button.setAttribute("aria-pressed", String(preset === current));
  }
}

// A slider and a number; `onInput(discount, isFinal)`.
export class DiscountControl {
  constructor(onInput) {
    const create = (attributes) =>
      createElement("input", {
        min: 0,
        oninput: (event) => this.read(event.target, false, onInput),
        onchange: (event) => this.read(event.target, true, onInput),
        ...attributes,
      });
    this.slider = create({ type: "range", id: "discount", max: 0.99, step: 0.01 });
    this.number = create({
      type: "number",
      max: MAX_DISCOUNT,
      step: "any",
      "aria-label": "discount, as a number",
    });
    this.node = createElement(
      "div",
      { class: "discount" },
      createElement("label", { for: "discount" }, "discount"),
      this.slider,
      this.number,
    );
  }

  read(input, isFinal, onInput) {
    const discount = Number(input.value);
    const isValid = input.value !== "" && discount >= 0 && discount <= MAX_DISCOUNT;
    this.number.setAttribute("aria-invalid", String(!isValid));
    if (isValid) onInput(discount, isFinal);
  }

  set(discount) {
    this.slider.value = discount;
    if (Number(this.number.value) !== discount || this.number.value === "")
      this.number.value = discount;
    this.number.removeAttribute("aria-invalid");
  }
}

// The numbers of rows and columns; `onChange(rows, columns)`.
export class SizeControl {
  constructor(onChange) {
    const create = (label, max) =>
      createElement("input", {
        type: "number",
        min: 1,
        max,
        "aria-label": label,
        onchange: () => {
          const [rows, columns] = [this.rows, this.columns].map((input) =>
            Math.round(Math.min(Number(input.max), Math.max(1, Number(input.value) || 1))),
          );
          onChange(rows, columns);
        },
      });
    this.rows = create("rows", MAX_ROWS);
    this.columns = create("columns", MAX_COLUMNS);
    this.node = createElement("span", { class: "size" }, "size ", this.rows, " × ", this.columns);
  }

  set(rows, columns) {
    [this.rows.value, this.columns.value] = [rows, columns];
  }
}
