// The small page of a notebook: the map, and why two states differ.
import { read, element, Tip } from "./elements.js";
import { DistancesView } from "./distances.js";
import { digits } from "./numbers.js";
import { Distances } from "./reasons.js";
import { Selection } from "./selection.js";

const data = read();
const tip = new Tip(document.body);
const d = new Distances(data.names.length, data.tables[0]);
const firstKnown = data.names.findIndex((_, s) => !d.veiled.has(s));
const selection = new Selection(Math.max(0, firstKnown));
const page = {
  data,
  selection,
  tables: [d],
  picture: () => null,
  hovering: () => ({
    pick: (state) => selection.pick(state),
    move: (state) => selection.move(state),
    clear: () => selection.clear(),
    hover(state, x, y) {
      if (state === null) return tip.hide();
      const number = d.has(selection.first, state)
        ? digits(d.at(selection.first, state))
        : "not known";
      tip.show([element("strong", {}, data.names[state]), `${d.symbol} ${number}`], x + 14, y + 16);
    },
  }),
};
const host = element("main", { class: "small" });
document.body.prepend(host);
host.append(...data.notes.map((note) => element("p", { class: "note" }, note)));
const view = new DistancesView(host, page, null);
selection.listen(() => view.paint());
view.paint();
