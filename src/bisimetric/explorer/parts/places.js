// Where states are drawn: the cells of a map, or points; and which of them is at a place.

export class Places {
  constructor({ names, map, points }) {
    this.count = names.length;
    this.cells = map !== null;
    if (this.cells) this.onMap(map);
    else this.asPoints(points);
  }

  onMap(map) {
    [this.width, this.height, this.size] = [map.width, map.height, 1];
    this.x = map.columns.map((column) => column + 0.5);
    this.y = map.rows.map((row) => row + 0.5);
    this.states = new Map(this.x.map((_, s) => [this.cell(this.x[s], this.y[s]), s]));
  }

  // In hundredths of the width.
  asPoints(points) {
    const [xs, ys] = [points.map((point) => point[0]), points.map((point) => -point[1])];
    const [left, top] = [Math.min(...xs), Math.min(...ys)];
    const [wide, tall] = [Math.max(...xs) - left, Math.max(...ys) - top];
    this.size = Math.max(1.1, Math.min(4, 30 / Math.sqrt(points.length)));
    const margin = 3 + this.size;
    this.width = 100 + 2 * margin;
    this.height = Math.max(45, 100 * tall) + 2 * margin;
    const [dx, dy] = [margin + 50 * (1 - wide), (this.height - 100 * tall) / 2];
    this.x = xs.map((x) => dx + 100 * (x - left));
    this.y = ys.map((y) => dy + 100 * (y - top));
  }

  cell(x, y) {
    return Math.floor(y) * this.width + Math.floor(x);
  }

  // The state of a cell, or the nearest point within reach; null where there is none.
  at(x, y, reach) {
    if (this.cells) return this.states.get(this.cell(x, y)) ?? null;
    let [best, least] = [null, Math.max(this.size / 2, reach)];
    for (let s = 0; s < this.count; s++) {
      const far = Math.hypot(this.x[s] - x, this.y[s] - y);
      if (far <= least) [best, least] = [s, far];
    }
    return best;
  }

  // The state that one meets from another one in a direction: near, and straight ahead.
  beside(state, dx, dy) {
    let [best, least] = [state, Infinity];
    for (let t = 0; t < this.count; t++) {
      const [x, y] = [this.x[t] - this.x[state], this.y[t] - this.y[state]];
      const [ahead, aside] = [x * dx + y * dy, Math.abs(x * dy) + Math.abs(y * dx)];
      if (ahead <= 1e-9 || aside > 2 * ahead) continue;
      const cost = ahead + 3 * aside;
      if (cost < least) [best, least] = [t, cost];
    }
    return best;
  }

  // Pairs of states whose cells touch.
  borders() {
    if (!this.cells) return [];
    const found = [];
    for (const s of this.states.values())
      for (const [dx, dy] of [
        [1, 0],
        [0, 1],
        [1, 1],
        [1, -1],
      ]) {
        const t = this.states.get(this.cell(this.x[s] + dx, this.y[s] + dy));
        if (t !== undefined) found.push([s, t]);
      }
    return found;
  }
}
