// The page: views that share one selection.
import { CompareView } from "./compare.js";
import { DistancesView } from "./distances.js";
import { createElement } from "./elements.js";
import { ClassesView } from "./classes.js";
import {
  createLinkButton,
  isOpenedAfresh,
  readField,
  readIndex,
  readIndices,
  writeFields,
} from "./fragment.js";
import { pluralise, formatNumber, formatCount } from "./numbers.js";
import { createPage } from "./create_page.js";
import { Guide } from "./guide.js";
import { createSaveMenu } from "./save_menu.js";
import { NORMS } from "./scales.js";
import { StateSearch } from "./state_search.js";
import { drawSumChart } from "./sum_chart.js";
import { createThemeButton } from "./theme.js";
import { createTerm } from "./tooltips.js";
import { ValuesView } from "./values.js";

const page = createPage();
const { data, selection, distances, views } = page;
const hasSeveral = distances.length > 1;
const VIEWS = {
  distances: ["Distances", (host) => new DistancesView(host, page, drawSumChart)],
  ...(hasSeveral && { compare: ["Compare", (host) => new CompareView(host, page)] }),
  values: ["Values", (host) => new ValuesView(host, page)],
  classes: ["Classes", (host) => new ClassesView(host, page, readIndex("threshold", 1000))],
};
const names = Object.keys(VIEWS);
let current = names.includes(readField("view")) ? readField("view") : names[0];
restoreSelection();
if (Object.hasOwn(NORMS, readField("scale") ?? "")) page.norm = readField("scale");
let guide = null;

// Select what the address says.
function restoreSelection() {
  for (const name of ["distance", "comparison"])
    selection.set({ [name]: readIndex(name, distances.length) ?? selection[name] });
  const [first, second = null] = readIndices("states", data.names.length);
  if (second !== null) selection.selectPair(first, second);
  else if (first !== undefined) selection.select(first);
}

// Write what is shown into the address.
page.save = () => {
  if (guide?.isShown) return; // it selects states itself
  const { first, second, hasSource, distance, comparison } = selection;
  const panel = views.get("distances")?.explanationPanel;
  writeFields({
    view: current,
    states: hasSource ? [first, second].filter((s) => s !== null).join() : null,
    step: panel?.explanation?.steps.length ? panel.step : null,
    scale: page.norm === "auto" ? null : page.norm,
    ...(hasSeveral && { distance, comparison }),
    ...(views.has("classes") && { threshold: views.get("classes").range.value }),
  });
};

// Facts about the MDP and the distance, in a line.
function createFacts() {
  const d = distances[selection.distance];
  const numStates = pluralise(data.numStates, "state");
  /** @type {(string | HTMLElement)[][]} */
  const parts = [
    [
      data.names.length < data.numStates
        ? `${formatCount(data.names.length)} of ${numStates}`
        : numStates,
    ],
  ];
  if (data.discount !== null)
    parts.push(
      [pluralise(data.numActions, "action")],
      [data.deterministic ? "deterministic" : "stochastic"],
      [createTerm("discount"), ` ${data.discount}`],
    );
  parts.push([createTerm(d.kindName, d.kindName), `: ${d.accuracy}`]);
  if (d.matrix.step) parts.push([`rounded to ${formatNumber(d.matrix.step, 1)}`]);
  return createElement(
    "p",
    { class: "facts-line" },
    ...parts.map((part) => createElement("span", {}, ...part)),
  );
}

function showView(shown) {
  current = shown;
  if (shown !== "distances" && guide?.isShown) guide.end();
  for (const name of names) {
    const tab = document.getElementById(`tab-${name}`);
    tab.setAttribute("aria-selected", String(name === shown));
    tab.tabIndex = name === shown ? 0 : -1;
    document.getElementById(`view-${name}`).hidden = name !== shown;
  }
  document.querySelector(".distance-select")?.toggleAttribute("hidden", shown === "compare");
  document.getElementById("hint").hidden = shown === "values";
  if (!views.has(shown))
    views.set(shown, VIEWS[shown][1](document.getElementById(`view-${shown}`)));
  views.get(shown).paint();
  page.save();
}

function createTabs() {
  const onKeyDown = (event) => {
    const at = names.indexOf(current);
    const places = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: names.length - 1 };
    if (!(event.key in places)) return;
    event.preventDefault();
    const next = names[(places[event.key] + names.length) % names.length];
    showView(next);
    document.getElementById(`tab-${next}`).focus();
  };
  const tab = (name) =>
    createElement(
      "button",
      {
        type: "button",
        role: "tab",
        id: `tab-${name}`,
        "aria-controls": `view-${name}`,
        onclick: () => showView(name),
      },
      VIEWS[name][0],
    );
  return createElement(
    "nav",
    { role: "tablist", "aria-label": "views", onkeydown: onKeyDown },
    ...names.map(tab),
  );
}

function createDistanceSelect() {
  if (!hasSeveral) return null;
  const select = createElement(
    "select",
    { id: "distance-select", onchange: () => selection.set({ distance: Number(select.value) }) },
    ...distances.map((d, i) => createElement("option", { value: i }, `${d.label}: ${d.kindName}`)),
  );
  select.value = String(selection.distance);
  selection.listen(() => (select.value = String(selection.distance)));
  return createElement(
    "label",
    { class: "distance-select", for: "distance-select" },
    "distance ",
    select,
  );
}

function startGuide() {
  showView("distances");
  if (!guide) {
    guide = new Guide(page, views.get("distances"), page.save);
    document.querySelector("main").prepend(guide.element);
  }
  if (!guide.start()) page.announce("no pair of states is at a positive distance");
}

const search = new StateSearch(data, {
  announce: page.announce,
  select: (state) => selection.select(state),
});
const factsHost = createElement("div", {}, createFacts());
document.body.prepend(
  createElement(
    "header",
    {},
    createElement(
      "div",
      { class: "top" },
      createElement("h1", {}, data.title),
      createDistanceSelect(),
      search.element,
      createElement(
        "div",
        { class: "tools" },
        createSaveMenu(page, () => views.get(current).listDrawings?.() ?? []),
        createLinkButton(page.announce, () => guide?.isShown && guide.end()),
        createElement(
          "button",
          { type: "button", class: "show-guide", onclick: startGuide },
          "guide",
        ),
        createThemeButton(() => showView(current)),
      ),
    ),
    factsHost,
    ...data.notes.map((note) => createElement("p", { class: "note", role: "note" }, note)),
    createTabs(),
  ),
  createElement(
    "main",
    {},
    ...names.map((name) =>
      createElement("div", {
        role: "tabpanel",
        id: `view-${name}`,
        "aria-labelledby": `tab-${name}`,
        hidden: true,
      }),
    ),
    createElement(
      "footer",
      {},
      createElement(
        "p",
        { id: "hint" },
        "Click a state to see the distances from it, and a second one to see the explanation of their distance; or use the arrow keys, Enter and Escape.",
      ),
      createElement("p", { class: "quiet" }, `generated by ${data.generator}`),
    ),
  ),
);

selection.listen((changes) => {
  if ("distance" in changes) factsHost.replaceChildren(createFacts());
  const view = views.get(current);
  view.paint(changes);
  page.save();
  const state = selection.cursor;
  const description = page.describeState([distances[selection.distance]], state);
  page.announce(
    [data.names[state], ...description, ...(view.describeState?.(state) ?? [])].join(", "),
  );
});
let windowWidth = window.innerWidth;
window.addEventListener("resize", () => {
  if (window.innerWidth === windowWidth) return;
  windowWidth = window.innerWidth;
  const view = views.get(current);
  if (view.resize) view.resize();
  else view.paint();
});
const initialStep = readIndex("step", 10_001);
showView(current);
const { explanationPanel } = views.get("distances") ?? {};
if (initialStep !== null && initialStep <= explanationPanel?.explanation?.steps.length)
  explanationPanel.goTo(initialStep);
if (isOpenedAfresh && !Guide.isOff()) startGuide();
// For tests and the console.
window.bisimetric = page;
