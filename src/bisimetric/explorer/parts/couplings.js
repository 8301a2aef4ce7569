// Couplings of two distributions of successors.

/** @import { MatchedMass } from "./types.d.ts" */

const NEGLIGIBLE_MASS = 1e-12;

// The coupling of two distributions (Maps of state to mass) with the smallest mean distance. Mass
// that both have in a state is matched there, which is optimal by the triangle inequality.
export function computeOptimalCoupling(first, second, distance) {
  /** @type {MatchedMass[]} */
  const plan = [];
  const [surplus, deficit] = [new Map(first), new Map(second)];
  for (const [x, mass] of first) {
    const shared = Math.min(mass, second.get(x) ?? 0);
    if (shared <= 0) continue;
    plan.push({ states: [x, x], mass: shared });
    surplus.set(x, mass - shared);
    deficit.set(x, second.get(x) - shared);
  }
  const selectPositive = (side) => [...side].filter(([, mass]) => mass > NEGLIGIBLE_MASS);
  return plan.concat(
    computeTransportPlan(selectPositive(surplus), selectPositive(deficit), distance),
  );
}

// The independent coupling.
export function computeIndependentCoupling(first, second) {
  /** @type {MatchedMass[]} */
  const plan = [];
  for (const [x, p] of first)
    for (const [y, q] of second) plan.push({ states: [x, y], mass: p * q });
  return plan;
}

// An optimal transport plan by shortest augmenting paths: Dijkstra with reduced costs.
function computeTransportPlan(sources, sinks, distance) {
  const [n, m] = [sources.length, sinks.length];
  const supply = sources.map(([, mass]) => mass);
  const demand = sinks.map(([, mass]) => mass);
  const cost = sources.map(([x]) => sinks.map(([y]) => distance(x, y)));
  const flow = sources.map(() => new Float64Array(m));
  const potential = new Float64Array(n + m);
  while (
    supply.some((mass) => mass > NEGLIGIBLE_MASS) &&
    demand.some((mass) => mass > NEGLIGIBLE_MASS)
  ) {
    const { distances, predecessors, end } = findShortestPath(
      supply,
      demand,
      cost,
      flow,
      potential,
    );
    if (end < 0) break;
    for (let i = 0; i < n + m; i++) potential[i] += Math.min(distances[i], distances[end]);
    const path = [];
    for (let at = end; predecessors[at] >= 0; at = predecessors[at])
      path.push([predecessors[at], at]);
    const start = path.length ? path[path.length - 1][0] : end;
    let mass = Math.min(supply[start], demand[end - n]);
    for (const [from, to] of path) if (from >= n) mass = Math.min(mass, flow[to][from - n]);
    for (const [from, to] of path) {
      if (from < n) flow[from][to - n] += mass;
      else flow[to][from - n] -= mass;
    }
    supply[start] -= mass;
    demand[end - n] -= mass;
  }
  /** @type {MatchedMass[]} */
  const plan = [];
  for (let i = 0; i < n; i++)
    for (let j = 0; j < m; j++)
      if (flow[i][j] > NEGLIGIBLE_MASS)
        plan.push({ states: [sources[i][0], sinks[j][0]], mass: flow[i][j] });
  return plan;
}

// Distances of all nodes from the sources with supply, and the nearest sink with demand.
function findShortestPath(supply, demand, cost, flow, potential) {
  const [n, m] = [supply.length, demand.length];
  const distances = new Float64Array(n + m).fill(Infinity);
  const predecessors = new Int32Array(n + m).fill(-1);
  const done = new Uint8Array(n + m);
  for (let i = 0; i < n; i++) if (supply[i] > NEGLIGIBLE_MASS) distances[i] = 0;
  for (;;) {
    let at = -1;
    for (let i = 0; i < n + m; i++)
      if (!done[i] && distances[i] < Infinity && (at < 0 || distances[i] < distances[at])) at = i;
    if (at < 0) return { distances, predecessors, end: -1 };
    if (at >= n && demand[at - n] > NEGLIGIBLE_MASS) return { distances, predecessors, end: at };
    done[at] = 1;
    const [low, high] = at < n ? [n, n + m] : [0, n];
    for (let to = low; to < high; to++) {
      if (done[to] || (at >= n && flow[to][at - n] <= NEGLIGIBLE_MASS)) continue;
      const arcCost = at < n ? cost[at][to - n] : -cost[to][at - n];
      const candidate = distances[at] + Math.max(0, arcCost + potential[at] - potential[to]);
      if (candidate < distances[to]) [distances[to], predecessors[to]] = [candidate, at];
    }
  }
}
