// The page of a notebook: the map and the explanation of a distance.
import { DistancesView } from "./distances.js";
import { createElement } from "./elements.js";
import { createPage } from "./create_page.js";

const page = createPage();
const host = createElement("main", { class: "small" });
document.body.prepend(host);
host.append(...page.data.notes.map((note) => createElement("p", { class: "note" }, note)));
const view = new DistancesView(host, page, null);
page.views.set("distances", view);
page.selection.listen((changes) => view.paint(changes));
view.paint();
window.bisimetric = page;
