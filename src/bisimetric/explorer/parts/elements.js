// Elements of the page: names and numbers become text, never markup.

const SVG = "http://www.w3.org/2000/svg";

export function element(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

export function drawing(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

// A name, cut where it is very long; all of it shows on hover.
export const named = (text, kind = "name") => element("span", { class: kind, title: text }, text);

// The name of the picked state ("first"), or of the one to compare it with ("second"), in a frame.
export const chip = (text, which) => named(text, `name chip ${which}`);

// In a sentence, the start of a very long name.
export const brief = (text) => (text.length > 60 ? `${text.slice(0, 60)}…` : text);

// Text in which `commands` stand between backticks.
export const coded = (text) =>
  text.split("`").map((part, i) => (i % 2 ? element("code", {}, part) : part));

export const read = () => JSON.parse(document.getElementById("data").textContent);
