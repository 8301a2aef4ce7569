// A box that finds states by name or number: a combobox with a list of matches.
import { createElement } from "./elements.js";

const MAX_FOUND_STATES = 8;

// The states that match a query, best first: their number or name, a name that begins with it, a word
// of a name that does, a name that contains it. `ids` are the numbers of states, null for 0, 1, ...
export function findStates(query, names, ids = null, limit = MAX_FOUND_STATES) {
  const wanted = query.trim().toLowerCase();
  if (!wanted) return [];
  const number = wanted.replace(/^#\s*/, "");
  const rate = (name, s) => {
    if (name === wanted) return 0;
    if (String(ids ? ids[s] : s) === number) return 1;
    if (name.startsWith(wanted)) return 2;
    const at = name.indexOf(wanted);
    if (at < 0) return null;
    return /[\p{L}\p{N}]/u.test(name[at - 1]) ? 4 : 3;
  };
  return names
    .map((name, s) => ({ s, rank: rate(name.trim().toLowerCase(), s) }))
    .filter(({ rank }) => rank !== null)
    .sort((one, two) => one.rank - two.rank || one.s - two.s)
    .slice(0, limit)
    .map(({ s }) => s);
}

export class StateSearch {
  // `select(state)` is called with the chosen state; `announce(text)` is for screen readers.
  constructor({ names, ids }, { select, announce }) {
    this.names = names;
    this.ids = ids;
    this.select = select;
    this.announce = announce;
    this.active = 0;
    this.matches = [];
    this.list = createElement("ul", {
      id: "found-states",
      role: "listbox",
      "aria-label": "states that match",
      hidden: true,
    });
    this.input = createElement("input", {
      type: "text",
      id: "find-state",
      role: "combobox",
      placeholder: "find a state",
      autocomplete: "off",
      spellcheck: "false",
      "aria-label": "find a state by name or number",
      "aria-autocomplete": "list",
      "aria-expanded": "false",
      "aria-controls": "found-states",
      oninput: () => this.update(),
      onkeydown: (event) => this.handleKey(event),
      onblur: () => this.close(),
    });
    this.element = createElement("div", { class: "search" }, this.input, this.list);
  }

  update() {
    this.matches = findStates(this.input.value, this.names, this.ids);
    this.active = 0;
    const isEmpty = !this.input.value.trim();
    this.list.replaceChildren(
      ...this.matches.map((s, i) => this.createOption(s, i)),
      ...(this.matches.length || isEmpty
        ? []
        : [
            createElement(
              "li",
              { class: "quiet", role: "option", "aria-disabled": "true" },
              "no such state",
            ),
          ]),
    );
    this.list.hidden = isEmpty;
    this.input.setAttribute("aria-expanded", String(!isEmpty));
    this.activate(0);
    if (!isEmpty && !this.matches.length) this.announce("no such state");
  }

  createOption(s, i) {
    const number = String(this.ids ? this.ids[s] : s);
    return createElement(
      "li",
      {
        role: "option",
        id: `found-state-${i}`,
        // Before the box loses the focus, which closes the list.
        onpointerdown: (event) => {
          event.preventDefault();
          this.choose(i);
        },
      },
      createElement("span", { class: "name" }, this.names[s]),
      number === this.names[s] ? null : createElement("span", { class: "number" }, `#${number}`),
    );
  }

  activate(i) {
    this.active = i;
    [...this.list.children].forEach((option, k) =>
      option.setAttribute("aria-selected", String(k === i && this.matches.length > 0)),
    );
    if (this.matches.length) this.input.setAttribute("aria-activedescendant", `found-state-${i}`);
    else this.input.removeAttribute("aria-activedescendant");
    this.list.children[i]?.scrollIntoView({ block: "nearest" });
  }

  handleKey(event) {
    const count = this.matches.length;
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && count) this.activate((this.active + step + count) % count);
    else if (event.key === "Enter" && count) this.choose(this.active);
    else if (event.key === "Escape") {
      this.input.value = "";
      this.close();
    } else return;
    event.preventDefault();
  }

  choose(i) {
    const state = this.matches[i];
    this.input.value = "";
    this.close();
    this.select(state);
  }

  close() {
    this.matches = [];
    this.list.replaceChildren();
    this.list.hidden = true;
    this.input.setAttribute("aria-expanded", "false");
    this.input.removeAttribute("aria-activedescendant");
  }
}
