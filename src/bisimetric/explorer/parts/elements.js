// Create elements; names and numbers become text, never markup.

const SVG = "http://www.w3.org/2000/svg";

/**
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {Record<string, any>} attributes null, undefined and false are left out; `on...` listens
 * @param {...any} children null and undefined are left out
 * @returns {HTMLElementTagNameMap[K]}
 */
export function createElement(tag, attributes = {}, ...children) {
  return fillElement(document.createElement(tag), attributes, children);
}

/**
 * @template {keyof SVGElementTagNameMap} K
 * @param {K} tag
 * @param {Record<string, any>} attributes as in `createElement`
 * @param {...any} children
 * @returns {SVGElementTagNameMap[K]}
 */
export function createSvgElement(tag, attributes = {}, ...children) {
  return fillElement(document.createElementNS(SVG, tag), attributes, children);
}

/**
 * @template {Element} E
 * @param {E} node
 * @param {Record<string, any>} attributes
 * @param {any[]} children
 * @returns {E}
 */
function fillElement(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

// A name; long ones are cut, and complete on hover.
export const createName = (text, kind = "name") =>
  createElement("span", { class: kind, title: text }, text);

// The name of the selected state ("first") or of the second one ("second"), in a frame.
export const createChip = (text, which) => createName(text, `name chip ${which}`);

// Abbreviate a long name in a sentence.
export const abbreviate = (text, length = 60) =>
  text.length > length ? `${text.slice(0, length)}…` : text;

// A chart is an image for screen readers, with a summary.
export function describeChart(chart, summary) {
  const svg = chart.matches("svg") ? chart : chart.querySelector(":scope > svg");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", summary);
  // Plot labels groups, for which ARIA allows no label; the parts of an image are not read anyway.
  for (const part of svg.querySelectorAll("[aria-label]")) {
    part.dataset.part = part.getAttribute("aria-label");
    part.removeAttribute("aria-label");
  }
  return chart;
}

// Text with `code` between backticks.
export const formatCode = (text) =>
  text.split("`").map((part, i) => (i % 2 ? createElement("code", {}, part) : part));

export const readData = () => JSON.parse(document.getElementById("data").textContent);
