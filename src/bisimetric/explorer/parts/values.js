// Values under the bound: no two differ by more than the distance of their states.
import { element, term } from "./elements.js";
import { counted, digits } from "./numbers.js";
import { densePlot, gathered } from "./pairs.js";

export class ValuesView {
  constructor(host, page) {
    this.page = page;
    this.card = element("section", { class: "card", "aria-label": "values under the bound" });
    host.append(this.card);
    this.found = new Map();
  }

  paint() {
    const { data, selection, tables } = this.page;
    const d = tables[selection.table];
    this.card.replaceChildren(element("h2", {}, "Values under the bound"));
    if (!d.V) {
      this.card.append(element("p", { class: "quiet" }, d.noValues));
      return;
    }
    const pairs = this.pairs(d);
    const apart = `|${d.V.name}(s) − ${d.V.name}(t)|`;
    this.card.append(
      element(
        "p",
        {},
        `How far the `,
        term("values", "value"),
        ` of two states differ, ${apart}, against their `,
        term(d.words, d.words),
        ". Where the distance keeps its promise, every pair lies under the diagonal.",
      ),
    );
    this.card.append(
      element(
        "p",
        { id: "verdict", class: pairs.above ? "verdict bad" : "verdict good" },
        this.verdict(d, pairs),
      ),
    );
    const { first } = selection;
    const own = data.names
      .map((name, t) => ({
        x: d.at(first, t),
        y: Math.abs(d.V.values[first] - d.V.values[t]),
        t,
        name,
      }))
      .filter(({ t }) => t !== first && d.has(first, t));
    densePlot(this.card, pairs.all, {
      x: `${d.symbol}(s, t)`,
      y: apart,
      own,
      label: "Differences of values against distances",
      shade: true,
    });
    this.card.append(
      element(
        "p",
        { class: "quiet" },
        element("span", { class: "dot" }),
        ` pairs with ${data.names[first]}, the state that is picked`,
      ),
    );
  }

  verdict(d, { count, above, most, tightest }) {
    const { names } = this.page.data;
    if (above)
      return `${above.toLocaleString("en-GB")} of ${counted(count, "pair")} lie above the diagonal, by ${digits(most, 3)} at most: this table is no bound.`;
    const close = tightest
      ? ` The tightest: ${names[tightest.s]} and ${names[tightest.t]}, whose values differ by ${digits(100 * tightest.share, 3)}% of their distance.`
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
