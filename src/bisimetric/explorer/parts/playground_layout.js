// The elements of the playground.
import { createElement } from "./elements.js";
import { createLinkButton } from "./fragment.js";
import {
  DiscountControl,
  KINDS,
  Palette,
  PresetButtons,
  SELECT,
  SizeControl,
  createButton,
  createSelect,
} from "./playground_controls.js";
import { createThemeButton } from "./theme.js";
import { createTerm } from "./tooltips.js";

const HINTS = {
  [SELECT]: "Click a cell to measure from it, and a second one to see why they differ.",
  other: "Drag over the grid to paint. A stroke that starts on its own kind erases.",
};

/**
 * Build the page; `actions` are called by its controls.
 * @param {object} actions
 * @param {(brush: string) => void} actions.setBrush
 * @param {(discount: number, isFinal: boolean) => void} actions.setDiscount
 * @param {(rows: number, columns: number) => void} actions.resize
 * @param {(kind: string) => void} actions.setKind
 * @param {(policy: string) => void} actions.setPolicy
 * @param {(view: string) => void} actions.setView
 * @param {(index: number) => void} actions.setThreshold
 * @param {(preset: import("./playground_presets.js").Preset) => void} actions.setPreset
 * @param {() => void} actions.undo
 * @param {() => void} actions.redo
 * @param {(text: string) => void} announce for screen readers
 * @param {string} generator
 */
export function createLayout(actions, announce, generator) {
  const hint = createElement("p", { class: "quiet hint" });
  const layout = {
    palette: new Palette((brush) => {
      hint.textContent = brush === SELECT ? HINTS[SELECT] : HINTS.other;
      actions.setBrush(brush);
    }),
    discount: new DiscountControl(actions.setDiscount),
    size: new SizeControl(actions.resize),
    presets: new PresetButtons(actions.setPreset),
    kind: createSelect(
      "distance-select",
      "distance",
      Object.entries(KINDS).map(([kind, { symbol, name }]) => [kind, `${symbol}: ${name}`]),
      actions.setKind,
    ),
    policy: createSelect(
      "policy",
      "policy",
      [
        ["optimal", "optimal"],
        ["painted", "painted arrows"],
      ],
      actions.setPolicy,
    ),
    view: createSelect(
      "view",
      "colours",
      [
        ["distances", "distances from a cell"],
        ["classes", "classes of similar cells"],
      ],
      actions.setView,
    ),
    undo: createButton("↶ undo", actions.undo, { id: "undo", title: "Ctrl+Z" }),
    redo: createButton("↷ redo", actions.redo, { id: "redo", title: "Ctrl+Shift+Z" }),
    facts: createElement("p", { class: "facts-line", id: "facts" }),
    note: createElement("p", { class: "note", role: "note", id: "preset-note" }),
    mapTitle: createElement("h2", { class: "map-title" }),
    mapHolder: createElement("div", { class: "map-holder" }),
    scale: createElement("div", {}),
    threshold: createElement("input", { type: "range", id: "threshold", min: 0 }),
    classes: createElement("output", { class: "number", id: "classes", for: "threshold" }),
    panel: createElement("section", { class: "card explanation", "aria-label": "explanation" }),
    proof: createElement("section", { class: "card", "aria-label": "proof" }),
    thresholdRow: createElement("div", { class: "threshold" }),
  };
  layout.threshold.addEventListener("input", () =>
    actions.setThreshold(Number(layout.threshold.value)),
  );
  layout.thresholdRow.append(
    createElement("label", { for: "threshold" }, createTerm("threshold")),
    layout.threshold,
    layout.classes,
  );
  document.body.classList.add("playground");
  document.body.prepend(
    createHeader(layout, announce),
    createElement(
      "main",
      {},
      createElement(
        "div",
        { class: "controls card" },
        layout.presets.node,
        layout.kind.label,
        layout.policy.label,
        layout.discount.node,
      ),
      createElement(
        "div",
        { class: "two" },
        createElement(
          "section",
          { class: "card", "aria-label": "grid" },
          createElement(
            "div",
            { class: "strip" },
            layout.palette.node,
            createElement("span", { class: "history" }, layout.undo, layout.redo),
          ),
          hint,
          layout.mapTitle,
          layout.mapHolder,
          layout.scale,
          createElement("div", { class: "strip below" }, layout.view.label, layout.size.node),
          layout.thresholdRow,
        ),
        createElement("div", {}, layout.note, layout.panel, layout.proof),
      ),
      createFooter(generator),
    ),
  );
  return layout;
}

function createHeader({ facts }, announce) {
  return createElement(
    "header",
    {},
    createElement(
      "div",
      { class: "top" },
      createElement("h1", {}, "Playground"),
      createElement(
        "div",
        { class: "tools" },
        createLinkButton(announce),
        createThemeButton(() => {}),
      ),
    ),
    createElement(
      "p",
      { class: "lead" },
      "Paint a grid: which cells behave alike, and why do the others differ?",
    ),
    facts,
  );
}

function createFooter(generator) {
  const keys =
    "Keys on the grid: arrows move the cursor, w paints a wall, space floor, g a goal, 1 to 9 a reward, x a trap; Enter selects, Escape clears, Ctrl+Z undoes.";
  return createElement(
    "footer",
    {},
    createElement(
      "p",
      {},
      "Four actions move one cell. Moving into a wall pays −1 and stays; entering a goal pays 1, a reward its number, a trap −1.",
    ),
    createElement("p", {}, keys),
    createElement("p", { class: "quiet" }, `generated by ${generator}`),
  );
}
