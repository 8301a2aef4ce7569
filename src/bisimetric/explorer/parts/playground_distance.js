// A solution of the playground as a distance of the explorer, which explains its pairs.
import { PageDistance } from "./explanation.js";
import { KINDS } from "./playground_controls.js";
import { ACTIONS } from "./playground_grid.js";

/**
 * @param {import("./playground_solver.js").Problem} problem
 * @param {import("./playground_solver.js").Solution} solution
 */
export function createDistance(problem, solution) {
  const { kind, numStates, discount } = problem;
  const { labels, policy, V } = solution;
  const isOnPolicy = kind === "on_policy";
  const numActions = isOnPolicy ? 1 : ACTIONS.length;
  // The rows of the transitions that the distance compares.
  const rows = Int32Array.from({ length: numStates * numActions }, (_, i) =>
    isOnPolicy ? ACTIONS.length * i + policy[i] : i,
  );
  const d = new PageDistance(numStates, {
    label: KINDS[kind].symbol,
    kind,
    symbol: KINDS[kind].symbol,
    kindName: KINDS[kind].name,
    accuracy: "computed in your browser, not proven",
    error: null,
    values: { encoding: "float64", step: 0, data: solution.distances },
    unknown: [],
    determined: null,
    V: { name: isOnPolicy ? "V^π" : "V*", error: null, data: V },
    transitions: {
      discount,
      actions: ACTIONS,
      numActions,
      deterministic: true,
      R: Float64Array.from(rows, (row) => problem.R[row]),
      rowStarts: Int32Array.from({ length: rows.length + 1 }, (_, i) => i),
      successors: rows.map((row) => problem.next[row]),
      probabilities: null,
      available: null,
      known: null,
      complete: true,
      policyActions: isOnPolicy ? Array.from(policy) : null,
    },
  });
  return Object.assign(d, {
    labels,
    policy,
    isBisimilar: (s, t) => labels[s] === labels[t],
  });
}
