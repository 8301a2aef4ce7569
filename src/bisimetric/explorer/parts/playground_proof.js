// What proves the numbers of the playground: the grid as a file, and the command.
import { createCopyButton } from "./clipboard.js";
import { createElement } from "./elements.js";
import { createButton } from "./playground_controls.js";
import { formatGrid, hasArrows, parseGrid } from "./playground_grid.js";
import { saveFile } from "./save_menu.js";

const COMMANDS = { bisimulation: "bisimulation", on_policy: "on-policy", lax: "lax" };

/**
 * The command that computes a distance of a grid file, with a proven error.
 * @param {object} model
 * @param {import("./playground_solver.js").Kind} model.kind
 * @param {number} model.discount
 * @param {import("./playground_grid.js").Grid} model.grid
 * @param {string} first the state that distances are shown from
 */
export function formatCommand({ kind, discount, grid }, first) {
  const policy = kind === "on_policy" && !hasArrows(grid) ? " --policy policy.txt" : "";
  const from = first ? ` --from ${first}` : "";
  return `bisimetric exact ${COMMANDS[kind]} grid.txt --discount ${discount}${policy}${from} -o d.npz`;
}

export class ProofPanel {
  /**
   * @param {HTMLElement} host
   * @param {(text: string) => void} announce for screen readers
   * @param {(grid: import("./playground_grid.js").Grid) => void} onGrid a grid was typed or opened
   */
  constructor(host, announce, onGrid) {
    this.onGrid = onGrid;
    /** @type {import("./playground_grid.js").Grid | null} */
    this.grid = null;
    /** @type {ArrayLike<number> | null} */
    this.policy = null;
    this.command = createElement("code", { id: "command" });
    const copy = createCopyButton("copy", {
      name: "copy-command",
      getText: () => {
        // Selected, for browsers that do not allow pages to copy.
        window.getSelection().selectAllChildren(this.command);
        return this.command.textContent;
      },
      announce,
      what: "command",
      failed: "selected",
    });
    const download = (name, getText) =>
      createButton(`⤓ ${name}`, () => saveFile(name, [getText()], "text/plain"), {
        "data-file": name,
      });
    this.policyButton = download("policy.txt", () => `${Array.from(this.policy).join("\n")}\n`);
    this.text = createElement("textarea", {
      id: "grid-text",
      rows: 9,
      spellcheck: "false",
      "aria-label": "text of the grid",
      "aria-describedby": "grid-error",
    });
    this.error = createElement("p", { id: "grid-error", class: "verdict bad", role: "alert" });
    this.file = createElement("input", {
      type: "file",
      accept: ".txt,text/plain",
      "aria-label": "open a grid file",
      onchange: () => this.openFile(),
    });
    host.append(
      createElement("h2", {}, "Prove it"),
      createElement(
        "p",
        {},
        createElement("strong", {}, "Computed in your browser, not proven."),
        " Save the grid, then run the command, which proves a bound on the error:",
      ),
      createElement("div", { class: "command" }, this.command, copy),
      createElement(
        "p",
        { class: "files" },
        download("grid.txt", () => `${formatGrid(this.grid)}\n`),
        this.policyButton,
      ),
      createElement(
        "details",
        {},
        createElement("summary", {}, "The grid as text"),
        this.text,
        createElement(
          "p",
          { class: "files" },
          createButton("use this text", () => this.readText(this.text.value)),
          this.file,
        ),
        this.error,
      ),
    );
  }

  async openFile() {
    const [file] = this.file.files;
    if (file) this.readText(await file.text());
    this.file.value = "";
  }

  readText(text) {
    try {
      const grid = parseGrid(text);
      this.error.textContent = "";
      this.onGrid(grid);
    } catch (error) {
      this.error.textContent = error.message;
    }
  }

  /**
   * @param {any} model
   * @param {string} first
   * @param {ArrayLike<number> | null} policy of d^pi, if no arrows of the grid define it
   */
  show(model, first, policy) {
    this.grid = model.grid;
    this.policy = policy;
    this.command.textContent = formatCommand(model, first);
    this.policyButton.hidden = policy === null;
    if (document.activeElement !== this.text) this.text.value = formatGrid(model.grid);
  }
}
