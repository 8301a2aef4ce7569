// The steps of an explanation as tables.
import { abbreviate, createElement, createName } from "./elements.js";
import { formatNumber } from "./numbers.js";
import { createTerm } from "./tooltips.js";

export const SHOWN_STEPS = 60;
const SHOWN_MATCHES = 10;

export function createTable(name, head, rows) {
  return createElement(
    "table",
    { class: name },
    createElement(
      "thead",
      {},
      createElement("tr", {}, ...head.map((cell) => createElement("th", { scope: "col" }, cell))),
    ),
    createElement("tbody", {}, ...rows),
  );
}

function formatActions(panel, { actions }) {
  if (actions === null) return "mixed";
  const [a, b] = actions.map((action) => panel.d.transitions.actions[action]);
  return a === b ? a : `${a} / ${b}`;
}

// Four decimals; fewer for large sums.
function createSumFormat(total) {
  const decimals = 5 - Math.floor(Math.log10(Math.max(10, total)));
  return (x) => x.toFixed(Math.max(0, decimals));
}

// A path: one row per step.
export function createStepTable(panel) {
  const { steps, total } = panel.explanation;
  const formatDistance = createSumFormat(total);
  let cumulative = 0;
  const rows = steps.slice(0, SHOWN_STEPS).map((step, k) => {
    cumulative += step.contribution;
    const cells = [
      String(k),
      ...step.states.map((s) => createName(panel.name(s))),
      createName(formatActions(panel, step)),
      formatNumber(step.rewardGap, 4),
      formatDistance(step.contribution),
      formatDistance(cumulative),
    ];
    return createElement(
      "tr",
      { "data-step": k, onclick: () => panel.goTo(k + 1) },
      ...cells.map((text) => createElement("td", {}, text)),
    );
  });
  const head = [
    "step",
    "first",
    "second",
    "action",
    createTerm("gap", "reward gap"),
    createTerm("term", "contribution"),
    "sum",
  ];
  const more =
    steps.length > SHOWN_STEPS
      ? createElement("p", { class: "quiet" }, `… and ${steps.length - SHOWN_STEPS} more steps`)
      : null;
  return createElement("div", { class: "scroll" }, createTable("steps", head, rows), more);
}

// A step with stochastic transitions: one row per match.
export function createMatchTable(panel, step) {
  const moved = step.coupling.filter(
    ({ states }) => panel.d.kind === "mico" || states[0] !== states[1],
  );
  const shared = step.coupling.filter((match) => !moved.includes(match));
  const mass = (matches) => matches.reduce((sum, match) => sum + match.mass, 0);
  const cells = (...texts) =>
    createElement("tr", {}, ...texts.map((text) => createElement("td", {}, text)));
  const total = step.rewardGap + step.coupling.reduce((sum, match) => sum + match.contribution, 0);
  const formatDistance = createSumFormat(total);
  const rows = [cells("", createTerm("reward gap"), "", "", formatNumber(step.rewardGap, 4))];
  for (const match of moved.slice(0, SHOWN_MATCHES))
    rows.push(
      cells(
        match.mass.toFixed(3),
        ...match.states.map((s) => createName(panel.name(s))),
        formatNumber(match.distance, 5),
        formatDistance(match.contribution),
      ),
    );
  const rest = moved.slice(SHOWN_MATCHES);
  if (rest.length)
    rows.push(
      cells(
        mass(rest).toFixed(3),
        `${rest.length} more`,
        "",
        "",
        formatDistance(rest.reduce((sum, match) => sum + match.contribution, 0)),
      ),
    );
  if (shared.length)
    rows.push(
      cells(
        mass(shared).toFixed(3),
        "both to",
        shared.length === 1
          ? createName(panel.name(shared[0].states[0]))
          : `one of ${shared.length}`,
        "0",
        formatDistance(0),
      ),
    );
  rows.push(cells("", "total", "", "", formatDistance(total)));
  const [s, t] = step.states.map((state) => abbreviate(panel.name(state)));
  const who = s === t ? `two copies of ${s}` : `${s} and ${t}`;
  const what = step.actions === null ? "follow the policy" : `take ${formatActions(panel, step)}`;
  return createElement(
    "div",
    {},
    createElement(
      "p",
      {},
      createElement("strong", {}, `Step ${panel.explanation.steps.indexOf(step)}: `),
      `${who} ${what}. The `,
      createTerm("coupling"),
      " of their successors, dotted on the map:",
    ),
    createTable(
      "matches",
      [
        createTerm("mass"),
        "first",
        "second",
        createTerm("distance"),
        createTerm("term", "contribution"),
      ],
      rows,
    ),
  );
}
