// The positions of states, as cells of a map or points, and the state at a position.

const NUM_NEAREST_POINTS = 4; // that a point is told apart from by the colours of classes

export class StateLayout {
  constructor({ names, map, points }) {
    this.count = names.length;
    this.adjacentPairs = null; // listed when they are needed
    this.hasCells = map !== null;
    if (this.hasCells) this.placeOnMap(map);
    else this.placeAsPoints(points);
  }

  placeOnMap(map) {
    [this.width, this.height, this.size] = [map.width, map.height, 1];
    this.x = map.columns.map((column) => column + 0.5);
    this.y = map.rows.map((row) => row + 0.5);
    this.states = new Map(this.x.map((_, s) => [this.computeCell(this.x[s], this.y[s]), s]));
  }

  // In hundredths of the width.
  placeAsPoints(points) {
    const [xs, ys] = [points.map((point) => point[0]), points.map((point) => -point[1])];
    const [left, top] = [Math.min(...xs), Math.min(...ys)];
    const [pointsWidth, pointsHeight] = [Math.max(...xs) - left, Math.max(...ys) - top];
    this.size = Math.max(1.1, Math.min(4, 30 / Math.sqrt(points.length)));
    const margin = 3 + this.size;
    this.width = 100 + 2 * margin;
    this.height = Math.max(45, 100 * pointsHeight) + 2 * margin;
    const [dx, dy] = [margin + 50 * (1 - pointsWidth), (this.height - 100 * pointsHeight) / 2];
    this.x = xs.map((x) => dx + 100 * (x - left));
    this.y = ys.map((y) => dy + 100 * (y - top));
    this.rowOrder = orderByBands(this.x, this.y);
    this.columnOrder = orderByBands(this.y, this.x);
  }

  computeCell(x, y) {
    return Math.floor(y) * this.width + Math.floor(x);
  }

  // The state of a cell, or the nearest point within a radius; null if there is none.
  findState(x, y, radius) {
    if (this.hasCells) return this.states.get(this.computeCell(x, y)) ?? null;
    let [best, minDistance] = [null, Math.max(this.size / 2, radius)];
    for (let s = 0; s < this.count; s++) {
      const distance = Math.hypot(this.x[s] - x, this.y[s] - y);
      if (distance <= minDistance) [best, minDistance] = [s, distance];
    }
    return best;
  }

  // The next state in a direction; the opposite direction leads back. Points are ordered in rows, or
  // in columns for up and down, one after the other, so that all of them are reached.
  findNeighbour(state, dx, dy) {
    if (this.hasCells) return this.findNextCell(state, dx, dy);
    const order = dx ? this.rowOrder : this.columnOrder;
    return order[order.indexOf(state) + dx + dy] ?? state;
  }

  // The next state of the row or column; at its end the nearest one, with a penalty for sideways
  // offsets.
  findNextCell(state, dx, dy) {
    let [best, minCost] = [state, Infinity];
    for (let t = 0; t < this.count; t++) {
      const [x, y] = [this.x[t] - this.x[state], this.y[t] - this.y[state]];
      const [along, across] = [x * dx + y * dy, Math.abs(x * dy) + Math.abs(y * dx)];
      if (along <= 1e-9 || across > 2 * along) continue;
      const cost = across ? this.width + this.height + along + 3 * across : along;
      if (cost < minCost) [best, minCost] = [t, cost];
    }
    return best;
  }

  // Pairs of states in adjacent cells, or of points and the nearest ones.
  listAdjacentPairs() {
    this.adjacentPairs ??= this.hasCells ? this.listAdjacentCells() : this.listNearestPoints();
    return this.adjacentPairs;
  }

  listNearestPoints() {
    const found = [];
    const distances = new Float64Array(this.count);
    for (let s = 0; s < this.count; s++) {
      for (let t = 0; t < this.count; t++)
        distances[t] =
          t === s ? Infinity : Math.hypot(this.x[t] - this.x[s], this.y[t] - this.y[s]);
      for (let k = 0; k < Math.min(NUM_NEAREST_POINTS, this.count - 1); k++) {
        let nearest = 0;
        for (let t = 1; t < this.count; t++) if (distances[t] < distances[nearest]) nearest = t;
        found.push([s, nearest]);
        distances[nearest] = Infinity;
      }
    }
    return found;
  }

  listAdjacentCells() {
    const found = [];
    for (const s of this.states.values())
      for (const [dx, dy] of [
        [1, 0],
        [0, 1],
        [1, 1],
        [1, -1],
      ]) {
        const t = this.states.get(this.computeCell(this.x[s] + dx, this.y[s] + dy));
        if (t !== undefined) found.push([s, t]);
      }
    return found;
  }
}

// States in bands of about equal numbers across `y`, each from low to high `x`.
function orderByBands(x, y) {
  const compare = (by) => (s, t) => by[s] - by[t] || s - t;
  const order = [...x.keys()].sort(compare(y));
  const size = Math.ceil(Math.sqrt(order.length));
  const bands = [];
  for (let start = 0; start < order.length; start += size)
    bands.push(order.slice(start, start + size).sort(compare(x)));
  return bands.flat();
}
