// Values under the bound: no two differ by more than the distance of their states.
import { brief, element } from "./elements.js";
import { counted, digits, whole } from "./numbers.js";
import { gathered, PairPlot } from "./pairs.js";
import { term } from "./tips.js";

export class ValuesView {
  constructor(host, page) {
    this.page = page;
    this.card = element("section", { class: "card", "aria-label": "values under the bound" });
    host.append(this.card);
    this.found = new Map();
  }

  paint(changes) {
    const { data, selection, tables } = this.page;
    const { first, second } = selection;
    const d = tables[selection.table];
    if (!changes || "table" in changes) this.draw(d);
    if (!this.plot) return;
    const own = data.names
      .map((name, t) => ({
        x: d.at(first, t),
        y: Math.abs(d.V.values[first] - d.V.values[t]),
        t,
        name,
      }))
      .filter(({ t }) => t !== first && d.has(first, t));
    this.plot.mark(own, data.names[first], second);
  }

  // What does not change with the picked state.
  draw(d) {
    this.plot = null;
    this.card.replaceChildren(element("h2", {}, "Values under the bound"));
    const said = (words) => this.card.append(element("p", { class: "quiet" }, words));
    if (!d.V) return said(d.noValues);
    const pairs = this.pairs(d);
    if (!pairs.count) return said("There is no pair of states to compare.");
    const apart = `|${d.V.name}(s) − ${d.V.name}(t)|`;
    this.card.append(
      element(
        "p",
        {},
        `How far the `,
        term("values", "value"),
        ` of two states differ, ${apart}, against their `,
        term(d.words, d.words),
        ". Where the distance is a bound, every pair lies below the diagonal.",
      ),
      element(
        "p",
        { id: "verdict", class: pairs.above ? "verdict bad" : "verdict good" },
        this.verdict(pairs),
      ),
    );
    const { selection, tip } = this.page;
    this.plot = new PairPlot(this.card, tip, (t) => selection.choose(selection.first, t));
    this.plot.draw(pairs.all, {
      x: `${d.symbol}(s, t)`,
      y: apart,
      label: "Differences of values against distances",
      shade: true,
    });
  }

  verdict({ count, above, most, tightest }) {
    const name = (s) => brief(this.page.data.names[s]);
    if (above)
      return `${whole(above)} of ${counted(count, "pair")} lie above the diagonal, by ${digits(most, 3)} at most: this matrix is no bound.`;
    const close = tightest
      ? ` The tightest: ${name(tightest.s)} and ${name(tightest.t)}, whose values differ by ${digits(100 * tightest.share, 3)}% of their distance.`
      : "";
    return `${count === 1 ? "The only pair lies" : `All ${counted(count, "pair")} lie`} under the diagonal.${close}`;
  }

  // All pairs, worked out once a table. What lies above by no more than the error is rounding.
  pairs(d) {
    if (this.found.has(d)) return this.found.get(d);
    const loose = 2 * (d.V.error + d.table.step) + (d.error ?? 0) + 1e-9 * d.table.largest;
    const points = new Float32Array(d.table.n * (d.table.n - 1));
    const found = { count: 0, above: 0, most: 0, tightest: null };
    for (let s = 1; s < d.table.n; s++)
      for (let t = 0; t < s; t++) {
        if (!d.has(s, t)) continue;
        const [x, y] = [d.at(s, t), Math.abs(d.V.values[s] - d.V.values[t])];
        points[2 * found.count] = x;
        points[2 * found.count + 1] = y;
        found.count += 1;
        if (y > x + loose) {
          found.above += 1;
          found.most = Math.max(found.most, y - x);
        }
        if (x > loose && (!found.tightest || y / x > found.tightest.share))
          found.tightest = { s: t, t: s, share: Math.min(1, y / x) };
      }
    found.all = gathered(points.subarray(0, 2 * found.count));
    this.found.set(d, found);
    return found;
  }
}
