// The page: its views, one at a time, over one selection.
import { CompareView } from "./compare.js";
import { DistancesView } from "./distances.js";
import { read, element, term, Tip } from "./elements.js";
import { GroupsView } from "./groups.js";
import { announcer } from "./map.js";
import { counted, digits } from "./numbers.js";
import { Distances } from "./reasons.js";
import { Selection } from "./selection.js";
import { sumChart } from "./sums.js";
import { themeButton } from "./theme.js";
import { ValuesView } from "./values.js";

const data = read();
const tip = new Tip(document.body);
const said = announcer();
const firstKnown = data.names.findIndex((_, s) => !data.tables[0].unknown.includes(s));
const page = {
  data,
  selection: new Selection(Math.max(0, firstKnown)),
  tables: data.tables.map((about) => new Distances(data.names.length, about)),
  hovering,
  picture,
};

// What a map tells of what happens on it; `of` are the tables to be asked for a state's distance.
function hovering(of, more = () => []) {
  const { selection } = page;
  return {
    pick: (state) => selection.pick(state),
    move: (state) => selection.move(state),
    clear: () => selection.clear(),
    hover(state, x, y) {
      if (state === null) return tip.hide();
      tip.show(
        [element("strong", {}, data.names[state]), ...told([of()].flat(), state), ...more(state)],
        x + 14,
        y + 16,
      );
    },
  };
}

// The distance of a state from the picked one, in each table.
function told(tables, state) {
  const { first } = page.selection;
  const lines = tables.map((d) => {
    const is = d.isBelow(first, state) ? "≥" : "=";
    const number = d.has(first, state) ? `${is} ${digits(d.at(first, state), 6)}` : "not known";
    return `${tables.length > 1 ? d.label : d.symbol} ${number}${first === state ? ", the picked state" : ""}`;
  });
  const { V } = tables[0];
  return V ? [...lines, `${V.name} = ${digits(V.values[state], 5)}`] : lines;
}

// What is to be known of the picture.
function picture() {
  if (data.map) return null;
  return element(
    "p",
    { class: "quiet" },
    "The world has no map: states are points, near where they behave alike. ",
    term("Stress", "stress"),
    ` ${digits(data.stress, 2)}.`,
  );
}

function facts() {
  const d = page.tables[page.selection.table];
  const shown =
    data.names.length < data.total
      ? `${data.names.length.toLocaleString("en-GB")} of ${counted(data.total, "state")}`
      : counted(data.total, "state");
  const parts = [[shown], [term(d.words, d.words), `: ${d.sure}`]];
  if (data.discount !== null)
    parts.splice(
      1,
      0,
      [counted(data.actions, "action")],
      [data.deterministic ? "deterministic" : "stochastic"],
      [term("discount"), ` ${data.discount}`],
    );
  if (d.table.step) parts.push([`numbers to ${digits(d.table.step, 1)}`]);
  return element(
    "p",
    { class: "facts-line" },
    ...parts.map((part) => element("span", {}, ...part)),
  );
}

const VIEWS = [
  ["distances", "Distances", (host) => new DistancesView(host, page, sumChart)],
  ["values", "Values", (host) => new ValuesView(host, page)],
  ["groups", "Classes", (host) => new GroupsView(host, page)],
];
if (page.tables.length > 1)
  VIEWS.splice(1, 0, ["compare", "Compare", (host) => new CompareView(host, page)]);

const built = new Map();
let current = null;

function show(name) {
  current = name;
  for (const [each] of VIEWS) {
    document.getElementById(`tab-${each}`).setAttribute("aria-selected", each === name);
    document.getElementById(`tab-${each}`).tabIndex = each === name ? 0 : -1;
    document.getElementById(`view-${each}`).hidden = each !== name;
  }
  const select = document.querySelector(".chooser");
  if (select) select.hidden = name === "compare";
  if (!built.has(name))
    built.set(
      name,
      VIEWS.find(([each]) => each === name)[2](document.getElementById(`view-${name}`)),
    );
  built.get(name).paint();
}

function tabs() {
  const turned = (event) => {
    const names = VIEWS.map(([name]) => name);
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by) return;
    const next = names[(names.indexOf(current) + by + names.length) % names.length];
    show(next);
    document.getElementById(`tab-${next}`).focus();
  };
  return element(
    "nav",
    { role: "tablist", "aria-label": "views", onkeydown: turned },
    ...VIEWS.map(([name, words]) =>
      element(
        "button",
        {
          type: "button",
          role: "tab",
          id: `tab-${name}`,
          "aria-controls": `view-${name}`,
          onclick: () => show(name),
        },
        words,
      ),
    ),
  );
}

function chooser() {
  if (page.tables.length < 2) return null;
  const select = element(
    "select",
    { id: "table", onchange: () => page.selection.set({ table: Number(select.value) }) },
    ...page.tables.map((d, i) => element("option", { value: i }, `${d.label}: ${d.words}`)),
  );
  page.selection.listen(() => (select.value = page.selection.table));
  return element("label", { class: "chooser", for: "table" }, "table ", select);
}

const line = element("div", {});
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
    ...VIEWS.map(([name]) =>
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
        {},
        "Click a state to look from it, a second one to see why; arrow keys, Enter and Escape do the same.",
      ),
      element("p", { class: "quiet" }, `made by ${data.made}`),
    ),
  ),
  said,
);

page.selection.listen((changes) => {
  line.replaceChildren(facts());
  built.get(current).paint(changes);
  const [state] = [page.selection.cursor];
  said.textContent = [data.names[state], ...told([page.tables[page.selection.table]], state)].join(
    ", ",
  );
});
let windowWidth = window.innerWidth;
window.addEventListener("resize", () => {
  if (window.innerWidth === windowWidth) return;
  windowWidth = window.innerWidth;
  const view = built.get(current);
  if (view.resize) view.resize();
  else view.paint();
});
line.replaceChildren(facts());
show("distances");
// For tests, and for those who are curious in the console.
window.bisimetric = page;
