// Two distances of the same states, their difference, and the pairs that differ most.
import { abbreviate, createElement, createName } from "./elements.js";
import { StateMap } from "./map.js";
import { pluralise, formatNumber, createNumberFormat, pairIndex, formatCount } from "./numbers.js";
import { binPairs, PairPlot } from "./pair_plot.js";
import {
  createDifferenceScale,
  createDistanceScale,
  createMarkEntries,
  createScaleBar,
} from "./scales.js";
import { createTable } from "./step_tables.js";
import { createTerm } from "./tooltips.js";

const SHOWN_PAIRS = 12;

export class CompareView {
  constructor(host, page) {
    this.page = page;
    const createSelect = (which, words) => {
      const options = page.distances.map((each, i) =>
        createElement("option", { value: i }, `${each.label}: ${each.kindName}`),
      );
      const select = createElement(
        "select",
        {
          id: `select-${which}`,
          onchange: () => page.selection.set({ [which]: Number(select.value) }),
        },
        ...options,
      );
      return { select, label: createElement("label", { for: `select-${which}` }, words, select) };
    };
    const [first, second] = [
      createSelect("distance", "first "),
      createSelect("comparison", "second "),
    ];
    this.distanceSelect = first.select;
    this.comparisonSelect = second.select;
    this.summary = createElement("p", { id: "summary" });
    host.append(
      createElement("div", { class: "card choices" }, first.label, second.label, this.summary),
    );
    const maps = createElement("div", { class: "three" });
    host.append(maps);
    this.cards = ["first distance", "second distance", "difference"].map((name) => {
      const [title, holder, below] = [
        createElement("h2", { class: "map-title" }),
        createElement("div", { class: "map-holder" }),
        createElement("div", {}),
      ];
      maps.append(
        createElement("section", { class: "card", "aria-label": name }, title, holder, below),
      );
      return {
        title,
        below,
        map: new StateMap(
          holder,
          page.data,
          page.createHandlers(() => this.distances),
          name,
        ),
      };
    });
    this.pairs = createElement("div", {});
    const plotCard = createElement(
      "section",
      { class: "card", "aria-label": "scatter plot" },
      createElement("h2", {}, "Scatter plot of both distances"),
    );
    this.plot = new PairPlot(plotCard, page.tooltip, (t) =>
      page.selection.selectPair(page.selection.first, t),
    );
    host.append(
      createElement(
        "div",
        { class: "two even" },
        createElement(
          "section",
          { class: "card", "aria-label": "worst pairs" },
          createElement("h2", {}, "The pairs that differ most"),
          this.pairs,
        ),
        plotCard,
      ),
      page.createEmbeddingNote() ?? "",
    );
  }

  get distances() {
    const { distance, comparison } = this.page.selection;
    return [this.page.distances[distance], this.page.distances[comparison]];
  }

  paint(changes) {
    const { data, selection } = this.page;
    const [d, e] = this.distances;
    this.distanceSelect.value = selection.distance;
    this.comparisonSelect.value = selection.comparison;
    const rows = [d, e].map((each) => each.matrix.row(selection.first));
    const difference = rows[0].map((x, t) => rows[1][t] - x);
    const isUnknown = [d, e].some((each) => each.unknown.has(selection.first));
    const unknown = new Set(isUnknown ? data.names.keys() : [...d.unknown, ...e.unknown]);
    for (const s of unknown) difference[s] = 0;
    // A shared scale: equal colours are equal distances.
    const both = createDistanceScale(
      [...rows[0], ...rows[1]],
      data.colours,
      Math.max(d.error ?? 0, e.error ?? 0),
      this.page.norm,
    );
    const scales = [both, both, createDifferenceScale(difference)];
    this.scales = scales;
    const formatDistance = createNumberFormat(Math.max(d.matrix.largest, e.matrix.largest));
    [...rows, difference].forEach((numbers, i) => {
      const { title, below, map } = this.cards[i];
      map.paint(
        Array.from(numbers, scales[i].colour),
        Array.from(numbers, formatDistance),
        i === 2 ? unknown : this.distances[i].unknown,
      );
      map.select(selection.first, selection.second);
      const words =
        i === 2
          ? [createTerm("difference"), `: ${e.label} − ${d.label}`]
          : [
              this.distances[i].label,
              ": ",
              createTerm(this.distances[i].kindName, this.distances[i].kindName),
            ];
      title.replaceChildren(...words);
      below.replaceChildren(createScaleBar(scales[i], createMarkEntries(data, unknown.size > 0)));
    });
    if (!changes || "distance" in changes || "comparison" in changes) {
      this.compareAll(d, e);
      this.listPairs(d, e, formatDistance);
    }
    // The rows stay, and so does the focus of a button.
    this.worst.forEach(({ s, t }, i) =>
      this.rows[i].classList.toggle("current", selection.first === s && selection.second === t),
    );
    this.plot.drawSelectedPairs(
      this.listSelectedPairs(d, e),
      data.names[selection.first],
      selection.second,
    );
  }

  // The maps to save.
  listDrawings() {
    return this.cards.map(({ map, title }, i) => ({
      map,
      title: title.textContent,
      scale: this.scales[i],
    }));
  }

  // Compare all pairs.
  compareAll(d, e) {
    const { n } = d.matrix;
    const worst = [];
    // Smaller differences may be due to rounding.
    const tolerance = d.matrix.step + e.matrix.step;
    let [sum, max, pairs, numLarger] = [0, 0, 0, 0];
    const points = new Float32Array(n * (n - 1));
    for (let s = 1; s < n; s++)
      for (let t = 0; t < s; t++) {
        if (!d.has(s, t) || !e.has(s, t)) continue;
        const [x, y] = [d.matrix.values[pairIndex(s, t)], e.matrix.values[pairIndex(s, t)]];
        const difference = Math.abs(y - x);
        pairs += 1;
        sum += difference;
        max = Math.max(max, difference);
        if (y - x > tolerance) numLarger += 1;
        if (worst.length < SHOWN_PAIRS || difference > worst[worst.length - 1].difference) {
          worst.push({ s: t, t: s, x, y, difference });
          worst.sort((one, two) => two.difference - one.difference);
          worst.length = Math.min(worst.length, SHOWN_PAIRS);
        }
        points[2 * pairs - 2] = x;
        points[2 * pairs - 1] = y;
      }
    this.worst = worst;
    const mean = pairs ? sum / pairs : 0;
    const larger = numLarger === pairs ? "all" : numLarger ? formatCount(numLarger) : "none";
    this.summary.textContent = `Over ${pluralise(pairs, "pair")} of states the two differ by ${formatNumber(mean, 4)} on average and by ${formatNumber(max, 4)} at most; the second is larger for ${larger} of them.`;
    this.plot.draw(binPairs(points.subarray(0, 2 * pairs)), {
      x: `${abbreviate(d.label, 24)}: ${d.kindName}`,
      y: `${abbreviate(e.label, 24)}: ${e.kindName}`,
      label: `Scatter plot of both distances of each pair. ${this.summary.textContent}`,
    });
  }

  listPairs(d, e, formatDistance) {
    const { data, selection } = this.page;
    this.rows = this.worst.map(({ s, t, x, y }) => {
      const choose = () => selection.selectPair(s, t);
      const go = createElement("button", { type: "button" }, createName(data.names[s]));
      const cells = [
        go,
        createName(data.names[t]),
        formatDistance(x),
        formatDistance(y),
        formatDistance(y - x),
      ];
      return createElement(
        "tr",
        { onclick: choose },
        ...cells.map((cell) => createElement("td", {}, cell)),
      );
    });
    const head = [
      "first",
      "second",
      createName(d.label),
      createName(e.label),
      createTerm("difference"),
    ];
    this.pairs.replaceChildren(createTable("pairs", head, this.rows));
  }

  listSelectedPairs(d, e) {
    const { first } = this.page.selection;
    return this.page.data.names
      .map((name, t) => ({ x: d.at(first, t), y: e.at(first, t), t, name }))
      .filter(({ t }) => t !== first && d.has(first, t) && e.has(first, t));
  }
}
