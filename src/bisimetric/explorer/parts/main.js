// The page: its views, one at a time, over one selection.
import { CompareView } from "./compare.js";
import { DistancesView } from "./distances.js";
import { element } from "./elements.js";
import { GroupsView } from "./groups.js";
import { counted, digits, whole } from "./numbers.js";
import { opened } from "./opening.js";
import { sumChart } from "./sums.js";
import { themeButton } from "./theme.js";
import { term } from "./tips.js";
import { ValuesView } from "./values.js";

const page = opened();
const { data, selection, tables, views } = page;
const several = tables.length > 1;
const VIEWS = {
  distances: ["Distances", (host) => new DistancesView(host, page, sumChart)],
  ...(several && { compare: ["Compare", (host) => new CompareView(host, page)] }),
  values: ["Values", (host) => new ValuesView(host, page)],
  groups: ["Classes", (host) => new GroupsView(host, page)],
};
const names = Object.keys(VIEWS);
let current = names[0];

// What is known of the world and of the table, in a line.
function facts() {
  const d = tables[selection.table];
  const all = counted(data.total, "state");
  const parts = [[data.names.length < data.total ? `${whole(data.names.length)} of ${all}` : all]];
  if (data.discount !== null)
    parts.push(
      [counted(data.actions, "action")],
      [data.deterministic ? "deterministic" : "stochastic"],
      [term("discount"), ` ${data.discount}`],
    );
  parts.push([term(d.words, d.words), `: ${d.sure}`]);
  if (d.table.step) parts.push([`numbers to ${digits(d.table.step, 1)}`]);
  return element(
    "p",
    { class: "facts-line" },
    ...parts.map((part) => element("span", {}, ...part)),
  );
}

function show(shown) {
  current = shown;
  for (const name of names) {
    const tab = document.getElementById(`tab-${name}`);
    tab.setAttribute("aria-selected", name === shown);
    tab.tabIndex = name === shown ? 0 : -1;
    document.getElementById(`view-${name}`).hidden = name !== shown;
  }
  document.querySelector(".chooser")?.toggleAttribute("hidden", shown === "compare");
  document.getElementById("hint").hidden = shown === "values";
  if (!views.has(shown))
    views.set(shown, VIEWS[shown][1](document.getElementById(`view-${shown}`)));
  views.get(shown).paint();
}

function tabs() {
  const turned = (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by) return;
    const next = names[(names.indexOf(current) + by + names.length) % names.length];
    show(next);
    document.getElementById(`tab-${next}`).focus();
  };
  const tab = (name) =>
    element(
      "button",
      {
        type: "button",
        role: "tab",
        id: `tab-${name}`,
        "aria-controls": `view-${name}`,
        onclick: () => show(name),
      },
      VIEWS[name][0],
    );
  return element(
    "nav",
    { role: "tablist", "aria-label": "views", onkeydown: turned },
    ...names.map(tab),
  );
}

function chooser() {
  if (!several) return null;
  const select = element(
    "select",
    { id: "table", onchange: () => selection.set({ table: Number(select.value) }) },
    ...tables.map((d, i) => element("option", { value: i }, `${d.label}: ${d.words}`)),
  );
  selection.listen(() => (select.value = selection.table));
  return element("label", { class: "chooser", for: "table" }, "table ", select);
}

const line = element("div", {}, facts());
// Says a line to those who listen in place of looking.
const said = element("div", { class: "unseen", "aria-live": "polite", id: "said" });
document.body.prepend(
  element(
    "header",
    {},
    element(
      "div",
      { class: "top" },
      element("h1", {}, data.title),
      chooser(),
      themeButton(() => show(current)),
    ),
    line,
    ...data.notes.map((note) => element("p", { class: "note", role: "note" }, note)),
    tabs(),
  ),
  element(
    "main",
    {},
    ...names.map((name) =>
      element("div", {
        role: "tabpanel",
        id: `view-${name}`,
        "aria-labelledby": `tab-${name}`,
        hidden: true,
      }),
    ),
    element(
      "footer",
      {},
      element(
        "p",
        { id: "hint" },
        "Click a state to look from it, a second one to see why; arrow keys, Enter and Escape do the same.",
      ),
      element("p", { class: "quiet" }, `made by ${data.made}`),
    ),
  ),
  said,
);

selection.listen((changes) => {
  if ("table" in changes) line.replaceChildren(facts());
  const view = views.get(current);
  view.paint(changes);
  const state = selection.cursor;
  const told = page.told([tables[selection.table]], state);
  said.textContent = [data.names[state], ...told, ...(view.said?.(state) ?? [])].join(", ");
});
let windowWidth = window.innerWidth;
window.addEventListener("resize", () => {
  if (window.innerWidth === windowWidth) return;
  windowWidth = window.innerWidth;
  const view = views.get(current);
  if (view.resize) view.resize();
  else view.paint();
});
show(current);
// For tests, and for those who are curious in the console.
window.bisimetric = page;
