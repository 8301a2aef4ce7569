// How the ends of one step are matched with those of another: plans of the least cost.

const NOTHING = 1e-12;

// The coupling of two distributions (Maps of state to mass) with the least mean distance. Mass that
// both have in a state stays there: by the triangle inequality nothing is gained by moving it.
export function best(first, second, distance) {
  const plan = [];
  const [more, less] = [new Map(first), new Map(second)];
  for (const [x, mass] of first) {
    const shared = Math.min(mass, second.get(x) ?? 0);
    if (shared <= 0) continue;
    plan.push({ states: [x, x], mass: shared });
    more.set(x, mass - shared);
    less.set(x, second.get(x) - shared);
  }
  const left = (side) => [...side].filter(([, mass]) => mass > NOTHING);
  return plan.concat(transported(left(more), left(less), distance));
}

// The coupling in which the two know nothing of each other.
export function independent(first, second) {
  const plan = [];
  for (const [x, p] of first)
    for (const [y, q] of second) plan.push({ states: [x, y], mass: p * q });
  return plan;
}

// A transport plan by shortest augmenting paths: Dijkstra on costs that potentials keep above 0.
function transported(sources, sinks, distance) {
  const [n, m] = [sources.length, sinks.length];
  const supply = sources.map(([, mass]) => mass);
  const demand = sinks.map(([, mass]) => mass);
  const cost = sources.map(([x]) => sinks.map(([y]) => distance(x, y)));
  const flow = sources.map(() => new Float64Array(m));
  const potential = new Float64Array(n + m);
  while (supply.some((mass) => mass > NOTHING) && demand.some((mass) => mass > NOTHING)) {
    const { far, before, end } = shortest(supply, demand, cost, flow, potential);
    if (end < 0) break;
    for (let i = 0; i < n + m; i++) potential[i] += Math.min(far[i], far[end]);
    const way = [];
    for (let at = end; before[at] >= 0; at = before[at]) way.push([before[at], at]);
    const start = way.length ? way[way.length - 1][0] : end;
    let mass = Math.min(supply[start], demand[end - n]);
    for (const [from, to] of way) if (from >= n) mass = Math.min(mass, flow[to][from - n]);
    for (const [from, to] of way) {
      if (from < n) flow[from][to - n] += mass;
      else flow[to][from - n] -= mass;
    }
    supply[start] -= mass;
    demand[end - n] -= mass;
  }
  const plan = [];
  for (let i = 0; i < n; i++)
    for (let j = 0; j < m; j++)
      if (flow[i][j] > NOTHING)
        plan.push({ states: [sources[i][0], sinks[j][0]], mass: flow[i][j] });
  return plan;
}

// How far each source and sink is from the sources that have mass left, and the nearest open sink.
function shortest(supply, demand, cost, flow, potential) {
  const [n, m] = [supply.length, demand.length];
  const far = new Float64Array(n + m).fill(Infinity);
  const before = new Int32Array(n + m).fill(-1);
  const done = new Uint8Array(n + m);
  for (let i = 0; i < n; i++) if (supply[i] > NOTHING) far[i] = 0;
  for (;;) {
    let at = -1;
    for (let i = 0; i < n + m; i++)
      if (!done[i] && far[i] < Infinity && (at < 0 || far[i] < far[at])) at = i;
    if (at < 0) return { far, before, end: -1 };
    if (at >= n && demand[at - n] > NOTHING) return { far, before, end: at };
    done[at] = 1;
    const [low, high] = at < n ? [n, n + m] : [0, n];
    for (let to = low; to < high; to++) {
      if (done[to] || (at >= n && flow[to][at - n] <= NOTHING)) continue;
      const price = at < n ? cost[at][to - n] : -cost[to][at - n];
      const reached = far[at] + Math.max(0, price + potential[at] - potential[to]);
      if (reached < far[to]) [far[to], before[to]] = [reached, at];
    }
  }
}
