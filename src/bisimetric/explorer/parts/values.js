// Differences of values, which distances bound.
import { abbreviate, createElement } from "./elements.js";
import { pluralise, formatNumber, formatCount } from "./numbers.js";
import { binPairs, PairPlot } from "./pair_plot.js";
import { createTerm } from "./tooltips.js";

export class ValuesView {
  constructor(host, page) {
    this.page = page;
    this.card = createElement("section", { class: "card", "aria-label": "differences of values" });
    host.append(this.card);
    this.found = new Map();
  }

  paint(changes) {
    const { data, selection, distances } = this.page;
    const { first, second } = selection;
    const d = distances[selection.distance];
    if (!changes || "distance" in changes) this.draw(d);
    if (!this.plot) return;
    const selectedPairs = data.names
      .map((name, t) => ({
        x: d.at(first, t),
        y: Math.abs(d.V.values[first] - d.V.values[t]),
        t,
        name,
      }))
      .filter(({ t }) => t !== first && d.has(first, t));
    this.plot.drawSelectedPairs(selectedPairs, data.names[first], second);
  }

  // Draw what does not depend on the selection.
  draw(d) {
    this.plot = null;
    this.card.replaceChildren(createElement("h2", {}, "Differences of values"));
    const showMessage = (words) => this.card.append(createElement("p", { class: "quiet" }, words));
    if (!d.V) return showMessage(d.noValues);
    const pairs = this.pairs(d);
    if (!pairs.count) return showMessage("There is no pair of states to compare.");
    const difference = `|${d.V.name}(s) − ${d.V.name}(t)|`;
    this.card.append(
      createElement(
        "p",
        {},
        `Differences of the `,
        createTerm("values", "value"),
        ` of two states, ${difference}, over their `,
        createTerm(d.kindName, d.kindName),
        ". Where the distance is a bound, every pair lies below the diagonal.",
      ),
      createElement(
        "p",
        { id: "verdict", class: pairs.numAbove ? "verdict bad" : "verdict good" },
        this.describeBound(pairs),
      ),
    );
    const { selection, tooltip } = this.page;
    this.plot = new PairPlot(this.card, tooltip, (t) => selection.selectPair(selection.first, t));
    this.plot.draw(pairs.all, {
      x: `${d.symbol}(s, t)`,
      y: difference,
      label: `Scatter plot of differences of values over distances. ${this.describeBound(pairs)}`,
      shade: true,
    });
  }

  describeBound({ count, numAbove, max, tightest }) {
    const name = (s) => abbreviate(this.page.data.names[s]);
    if (numAbove)
      return `${formatCount(numAbove)} of ${pluralise(count, "pair")} lie above the diagonal, by ${formatNumber(max, 3)} at most: this matrix is no bound.`;
    const tightestPair = tightest
      ? ` The tightest: ${name(tightest.s)} and ${name(tightest.t)}, whose values differ by ${formatNumber(100 * tightest.ratio, 3)}% of their distance.`
      : "";
    return `${count === 1 ? "The only pair lies" : `All ${pluralise(count, "pair")} lie`} below the diagonal.${tightestPair}`;
  }

  // All pairs, computed once per distance. Excesses up to the error are rounding.
  pairs(d) {
    if (this.found.has(d)) return this.found.get(d);
    const tolerance = 2 * (d.V.error + d.matrix.step) + (d.error ?? 0) + 1e-9 * d.matrix.largest;
    const points = new Float32Array(d.matrix.n * (d.matrix.n - 1));
    const found = { count: 0, numAbove: 0, max: 0, tightest: null };
    for (let s = 1; s < d.matrix.n; s++)
      for (let t = 0; t < s; t++) {
        if (!d.has(s, t)) continue;
        const [x, y] = [d.at(s, t), Math.abs(d.V.values[s] - d.V.values[t])];
        points[2 * found.count] = x;
        points[2 * found.count + 1] = y;
        found.count += 1;
        if (y > x + tolerance) {
          found.numAbove += 1;
          found.max = Math.max(found.max, y - x);
        }
        if (x > tolerance && (!found.tightest || y / x > found.tightest.ratio))
          found.tightest = { s: t, t: s, ratio: Math.min(1, y / x) };
      }
    found.all = binPairs(points.subarray(0, 2 * found.count));
    this.found.set(d, found);
    return found;
  }
}
