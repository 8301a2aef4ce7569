// The steps of an explanation as tables.
import { brief, element, named } from "./elements.js";
import { digits } from "./numbers.js";
import { term } from "./tips.js";

export const SHOWN_STEPS = 60;
const SHOWN_MATCHES = 10;

export function table(name, head, rows) {
  return element(
    "table",
    { class: name },
    element(
      "thead",
      {},
      element("tr", {}, ...head.map((cell) => element("th", { scope: "col" }, cell))),
    ),
    element("tbody", {}, ...rows),
  );
}

function acting(why, { actions }) {
  if (actions === null) return "mixed";
  const [a, b] = actions.map((action) => why.d.steps.actions[action]);
  return a === b ? a : `${a} / ${b}`;
}

// Four decimals, of large sums fewer.
function summed(total) {
  const decimals = 5 - Math.floor(Math.log10(Math.max(10, total)));
  return (x) => x.toFixed(Math.max(0, decimals));
}

// A path: one row a step.
export function stepTable(why) {
  const { steps, total } = why.reasons;
  const written = summed(total);
  let soFar = 0;
  const rows = steps.slice(0, SHOWN_STEPS).map((step, k) => {
    soFar += step.adds;
    const cells = [
      String(k),
      ...step.states.map((s) => named(why.name(s))),
      named(acting(why, step)),
      digits(step.gap, 4),
      written(step.adds),
      written(soFar),
    ];
    return element(
      "tr",
      { "data-step": k, onclick: () => why.go(k + 1) },
      ...cells.map((text) => element("td", {}, text)),
    );
  });
  const head = [
    "step",
    "first",
    "second",
    "action",
    term("gap", "reward gap"),
    term("adds"),
    "so far",
  ];
  const more =
    steps.length > SHOWN_STEPS
      ? element("p", { class: "quiet" }, `… and ${steps.length - SHOWN_STEPS} more steps`)
      : null;
  return element("div", { class: "scroll" }, table("steps", head, rows), more);
}

// A step whose ends branch: one row a match.
export function matchTable(why, step) {
  const moved = step.coupling.filter(
    ({ states }) => why.d.kind === "mico" || states[0] !== states[1],
  );
  const shared = step.coupling.filter((match) => !moved.includes(match));
  const mass = (matches) => matches.reduce((sum, match) => sum + match.mass, 0);
  const cells = (...texts) => element("tr", {}, ...texts.map((text) => element("td", {}, text)));
  const all = step.gap + step.coupling.reduce((sum, match) => sum + match.adds, 0);
  const written = summed(all);
  const rows = [cells("", term("reward gap"), "", "", digits(step.gap, 4))];
  for (const match of moved.slice(0, SHOWN_MATCHES))
    rows.push(
      cells(
        match.mass.toFixed(3),
        ...match.states.map((s) => named(why.name(s))),
        digits(match.distance, 5),
        written(match.adds),
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
        written(rest.reduce((sum, match) => sum + match.adds, 0)),
      ),
    );
  if (shared.length)
    rows.push(
      cells(
        mass(shared).toFixed(3),
        "both in",
        shared.length === 1 ? named(why.name(shared[0].states[0])) : `one of ${shared.length}`,
        "0",
        written(0),
      ),
    );
  rows.push(cells("", "in all", "", "", written(all)));
  const [s, t] = step.states.map((state) => brief(why.name(state)));
  const who = s === t ? `two copies of ${s}` : `${s} and ${t}`;
  const what = step.actions === null ? "follow the policy" : `take ${acting(why, step)}`;
  return element(
    "div",
    {},
    element(
      "p",
      {},
      element("strong", {}, `Step ${why.reasons.steps.indexOf(step)}: `),
      `${who} ${what}. The `,
      term("coupling"),
      " of where they end, dotted on the map:",
    ),
    table("matches", [term("mass"), "first", "second", term("distance"), "adds"], rows),
  );
}
