// The small page of a notebook: the map, and why two states differ.
import { DistancesView } from "./distances.js";
import { element } from "./elements.js";
import { opened } from "./opening.js";

const page = opened();
const host = element("main", { class: "small" });
document.body.prepend(host);
host.append(...page.data.notes.map((note) => element("p", { class: "note" }, note)));
const view = new DistancesView(host, page, null);
page.views.set("distances", view);
page.selection.listen(() => view.paint());
view.paint();
window.bisimetric = page;
