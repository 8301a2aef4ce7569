// Two distances of the same states, side by side: their difference, and the pairs that differ most.
import { element, named } from "./elements.js";
import { StateMap } from "./map.js";
import { counted, digits, format, half, whole } from "./numbers.js";
import { gathered, PairPlot } from "./pairs.js";
import { differenceScale, distanceScale, scaleBar } from "./scales.js";
import { table } from "./steps.js";
import { term } from "./tips.js";

const SHOWN_PAIRS = 12;

export class CompareView {
  constructor(host, page) {
    this.page = page;
    const choice = (which, words) => {
      const options = page.tables.map((each, i) =>
        element("option", { value: i }, `${each.label}: ${each.words}`),
      );
      const select = element(
        "select",
        {
          id: `choose-${which}`,
          onchange: () => page.selection.set({ [which]: Number(select.value) }),
        },
        ...options,
      );
      this[which] = select;
      return element("label", { for: `choose-${which}` }, words, select);
    };
    host.append(
      element(
        "div",
        { class: "card choices" },
        choice("table", "first "),
        choice("other", "second "),
        (this.summary = element("p", { id: "summary" })),
      ),
    );
    const maps = element("div", { class: "three" });
    host.append(maps);
    this.cards = ["one", "two", "difference"].map((name) => {
      const [title, holder, below] = [
        element("h2", { class: "map-title" }),
        element("div", { class: "map-holder" }),
        element("div", {}),
      ];
      maps.append(element("section", { class: "card", "aria-label": name }, title, holder, below));
      return {
        title,
        below,
        map: new StateMap(
          holder,
          page.data,
          page.hovering(() => this.tables),
          name,
        ),
      };
    });
    this.pairs = element("div", {});
    const against = element(
      "section",
      { class: "card", "aria-label": "one against the other" },
      element("h2", {}, "One against the other"),
    );
    this.plot = new PairPlot(against, page.tip, (t) =>
      page.selection.choose(page.selection.first, t),
    );
    host.append(
      element(
        "div",
        { class: "two even" },
        element(
          "section",
          { class: "card", "aria-label": "worst pairs" },
          element("h2", {}, "The pairs that differ most"),
          this.pairs,
        ),
        against,
      ),
      page.picture() ?? "",
    );
  }

  get tables() {
    const { table, other } = this.page.selection;
    return [this.page.tables[table], this.page.tables[other]];
  }

  paint(changes) {
    const { data, selection } = this.page;
    const [d, e] = this.tables;
    this.table.value = selection.table;
    this.other.value = selection.other;
    const rows = [d, e].map((each) => each.table.row(selection.first));
    const apart = rows[0].map((x, t) => rows[1][t] - x);
    const lost = [d, e].some((each) => each.veiled.has(selection.first));
    const veiled = new Set(lost ? data.names.keys() : [...d.veiled, ...e.veiled]);
    for (const s of veiled) apart[s] = 0;
    // One scale for both, so that equal colours are equal distances.
    const both = distanceScale(
      [...rows[0], ...rows[1]],
      data.colours,
      Math.max(d.error ?? 0, e.error ?? 0),
    );
    const scales = [both, both, differenceScale(apart)];
    const written = format(Math.max(d.table.largest, e.table.largest));
    [...rows, apart].forEach((numbers, i) => {
      const { title, below, map } = this.cards[i];
      map.paint(
        Array.from(numbers, scales[i].colour),
        Array.from(numbers, written),
        i === 2 ? veiled : this.tables[i].veiled,
      );
      map.select(selection.first, selection.second);
      const words =
        i === 2
          ? [term("difference"), `: ${e.label} − ${d.label}`]
          : [this.tables[i].label, ": ", term(this.tables[i].words, this.tables[i].words)];
      title.replaceChildren(...words);
      below.replaceChildren(
        scaleBar(scales[i], { unknown: veiled.size > 0, goals: data.goals.length > 0 }),
      );
    });
    if (!changes || "table" in changes || "other" in changes) this.compareAll(d, e);
    this.listPairs(d, e, written);
    this.plot.mark(this.ownPairs(d, e), data.names[selection.first], selection.second);
  }

  // All pairs: how far the two are apart, and where most.
  compareAll(d, e) {
    const { n } = d.table;
    const worst = [];
    // Closer than that they may be equal, and be rounded to two sides.
    const loose = d.table.step + e.table.step;
    let [sum, most, pairs, above] = [0, 0, 0, 0];
    const dots = new Float32Array(n * (n - 1));
    for (let s = 1; s < n; s++)
      for (let t = 0; t < s; t++) {
        if (!d.has(s, t) || !e.has(s, t)) continue;
        const [x, y] = [d.table.values[half(s, t)], e.table.values[half(s, t)]];
        const apart = Math.abs(y - x);
        pairs += 1;
        sum += apart;
        most = Math.max(most, apart);
        if (y - x > loose) above += 1;
        if (worst.length < SHOWN_PAIRS || apart > worst[worst.length - 1].apart) {
          worst.push({ s: t, t: s, x, y, apart });
          worst.sort((one, two) => two.apart - one.apart);
          worst.length = Math.min(worst.length, SHOWN_PAIRS);
        }
        dots[2 * pairs - 2] = x;
        dots[2 * pairs - 1] = y;
      }
    this.worst = worst;
    const share = pairs ? sum / pairs : 0;
    const larger = above === pairs ? "all" : above ? whole(above) : "none";
    this.summary.textContent = `Over ${counted(pairs, "pair")} of states the two differ by ${digits(share, 4)} in the mean and by ${digits(most, 4)} at most; the second is the larger one for ${larger} of them.`;
    this.plot.draw(gathered(dots.subarray(0, 2 * pairs)), {
      x: `${d.label}: ${d.words}`,
      y: `${e.label}: ${e.words}`,
      label: "One distance against the other; on the diagonal they are equal",
    });
  }

  listPairs(d, e, written) {
    const { data, selection } = this.page;
    const rows = this.worst.map(({ s, t, x, y }) => {
      const on = selection.first === s && selection.second === t;
      const choose = () => selection.choose(s, t);
      const go = element("button", { type: "button", onclick: choose }, named(data.names[s]));
      const cells = [go, named(data.names[t]), written(x), written(y), written(y - x)];
      return element(
        "tr",
        { class: on ? "on" : null, onclick: choose },
        ...cells.map((cell) => element("td", {}, cell)),
      );
    });
    const head = ["first", "second", named(d.label), named(e.label), term("difference")];
    this.pairs.replaceChildren(table("pairs", head, rows));
  }

  ownPairs(d, e) {
    const { first } = this.page.selection;
    return this.page.data.names
      .map((name, t) => ({ x: d.at(first, t), y: e.at(first, t), t, name }))
      .filter(({ t }) => t !== first && d.has(first, t) && e.has(first, t));
  }
}
