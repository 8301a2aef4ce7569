// The page of a notebook: the map and the explanation of a distance.
import { DistancesView } from "./distances.js";
import { createElement } from "./elements.js";
import { createPage } from "./create_page.js";

const notebook = createPage();
const main = createElement("main", { class: "small" });
document.body.prepend(main);
main.append(...notebook.data.notes.map((note) => createElement("p", { class: "note" }, note)));
const view = new DistancesView(main, notebook, null);
notebook.views.set("distances", view);
notebook.selection.listen((changes) => view.paint(changes));
view.paint();
window.bisimetric = notebook;
