// The menu that saves what is shown: the map as a picture, distances as CSV.
import { formatRowTable, listPairTables } from "./csv.js";
import { SHOWN_MILLISECONDS } from "./clipboard.js";
import { createElement } from "./elements.js";
import { convertToPng, drawMaps } from "./map_drawing.js";

// `listDrawings()` returns the maps of the current view.
export function createSaveMenu({ data, distances, selection, announce }, listDrawings) {
  const base = createFileName(data.title);
  const from = () => `${base}-from-${createFileName(data.names[selection.first])}`;
  const actions = {
    "map as PNG": async () =>
      saveFile(`${base}-map.png`, [await convertToPng(drawMaps(listDrawings()))]),
    "map as SVG": () => saveFile(`${base}-map.svg`, [drawMaps(listDrawings())], "image/svg+xml"),
    "distances from the selected state as CSV": () =>
      saveFile(
        `${from()}.csv`,
        [formatRowTable(data.names, distances, selection.first)],
        "text/csv",
      ),
    "distances of all pairs as CSV": () =>
      saveFile(`${base}-pairs.csv`, [...listPairTables(data.names, distances)], "text/csv"),
  };
  const run = async (words) => {
    close();
    try {
      report("✓ saved", `saved ${await actions[words]()}`);
    } catch {
      report("not saved", `the ${words} could not be saved`);
    }
  };
  const report = (shown, spoken) => {
    announce(spoken);
    summary.textContent = shown;
    setTimeout(() => (summary.textContent = "save"), SHOWN_MILLISECONDS);
  };
  const buttons = Object.keys(actions).map((words) =>
    createElement("button", { type: "button", onclick: () => run(words) }, words),
  );
  const summary = createElement("summary", {}, "save");
  const menu = createElement(
    "details",
    { class: "menu" },
    summary,
    createElement("div", { class: "menu-items" }, ...buttons),
  );
  const close = () => {
    if (menu.contains(document.activeElement)) summary.focus();
    menu.open = false;
  };
  menu.addEventListener("toggle", () => {
    // The tab of values has no map.
    for (const button of buttons.slice(0, 2)) button.disabled = !listDrawings().length;
  });
  menu.addEventListener("keydown", (event) => event.key === "Escape" && close());
  for (const name of ["pointerdown", "focusin"])
    document.addEventListener(name, ({ target }) => {
      if (target instanceof Node && !menu.contains(target)) menu.open = false;
    });
  return menu;
}

export const createFileName = (text) =>
  text
    .replace(/[^\p{L}\p{N}]+/gu, "-")
    .replace(/^-|-$/g, "")
    .slice(0, 60) || "bisimetric";

// Save parts of a file as the browser does with downloads, and return its name.
export function saveFile(name, parts, type = "") {
  const href = URL.createObjectURL(new Blob(parts, { type }));
  createElement("a", { href, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(href), 60_000);
  return name;
}
