// Maps as pictures of their own, with title and colour scale: SVG whose styles are attributes, or PNG.
import { abbreviate, createSvgElement } from "./elements.js";
import { createNumberFormat } from "./numbers.js";
import { FAINT_OPACITY } from "./state_canvas.js";

const PICTURE = { width: 900, margin: 24, title: 40, scale: 64 }; // pixels
const PIXEL_RATIO = 2; // of PNG files
// Computed styles that become attributes, with their defaults.
const STYLES = {
  "stroke-linecap": "butt",
  "stroke-linejoin": "miter",
  "font-weight": "400",
  "text-anchor": "start",
  "dominant-baseline": "auto",
  "paint-order": "normal",
};

/**
 * Draw maps side by side, as they are shown.
 * @param {{ map: any, title: string, scale: import("./types.d.ts").ColourScale | null }[]} drawings
 * @returns {string} an SVG file
 */
export function drawMaps(drawings) {
  const width = PICTURE.width / Math.sqrt(drawings.length);
  const ratios = drawings.map(({ map }) => map.layout.height / map.layout.width);
  const mapHeight = Math.min(1.2 * width, width * Math.max(...ratios));
  const hasScale = drawings.some(({ scale }) => scale);
  const fullWidth = drawings.length * (width + PICTURE.margin) + PICTURE.margin;
  const fullHeight = PICTURE.title + mapHeight + (hasScale ? PICTURE.scale : 0) + PICTURE.margin;
  const { backgroundColor, color } = getComputedStyle(drawings[0].map.frame.closest(".card"));
  const svg = createSvgElement(
    "svg",
    {
      xmlns: "http://www.w3.org/2000/svg",
      width: fullWidth,
      height: fullHeight,
      viewBox: `0 0 ${fullWidth} ${fullHeight}`,
      "font-family": "system-ui, Helvetica, Arial, sans-serif",
      "font-size": 14,
      ...splitColour("fill", color),
    },
    createSvgElement("title", {}, drawings.map(({ title }) => title).join("; ")),
    createSvgElement("rect", {
      width: fullWidth,
      height: fullHeight,
      ...splitColour("fill", backgroundColor),
    }),
    drawings.map((drawing, i) => {
      const left = PICTURE.margin + i * (width + PICTURE.margin);
      const zoom = Math.min(
        width / drawing.map.layout.width,
        mapHeight / drawing.map.layout.height,
      );
      const indent = (width - zoom * drawing.map.layout.width) / 2;
      return createSvgElement(
        "g",
        { transform: `translate(${left} 0)` },
        createSvgElement(
          "text",
          { x: 0, y: PICTURE.title - 14, "font-size": 16, "font-weight": 600 },
          abbreviate(drawing.title, Math.floor(width / 9)),
        ),
        createSvgElement(
          "g",
          { transform: `translate(${indent} ${PICTURE.title}) scale(${zoom})` },
          drawStates(drawing.map, zoom),
          [...drawing.map.svg.children].map((layer) => copyLayer(layer, drawing.map.toUnits)),
        ),
        drawing.scale ? drawScale(drawing.scale, width, PICTURE.title + mapHeight + 12, i) : null,
      );
    }),
  );
  // Control characters are no XML.
  const text = new XMLSerializer()
    .serializeToString(svg)
    .replace(/[\p{Cc}\ufffe\uffff]/gu, "\ufffd");
  return text.isWellFormed?.() === false ? text.toWellFormed() : text;
}

// What the canvas of the page shows.
function drawStates({ layout, lastPaint, frame }, zoom) {
  const [colours, , unknown, highlighted] = lastPaint;
  const { x, y, size, width, height, hasCells } = layout;
  const background = splitColour("fill", getComputedStyle(frame).backgroundColor);
  /** @type {SVGElement[]} */
  const found = hasCells ? [createSvgElement("rect", { width, height, ...background })] : [];
  colours.forEach((colour, s) => {
    if (unknown.has(s)) return;
    const style = {
      fill: colour,
      opacity: highlighted && !highlighted.has(s) ? FAINT_OPACITY : null,
      stroke: hasCells ? "#000000" : "#767676",
      "stroke-opacity": hasCells ? 0.25 : null,
      "stroke-width": (hasCells ? 0.7 : 1) / zoom,
    };
    found.push(
      hasCells
        ? createSvgElement("rect", { x: x[s] - 0.5, y: y[s] - 0.5, width: 1, height: 1, ...style })
        : createSvgElement("circle", { cx: x[s], cy: y[s], r: size / 2, ...style }),
    );
  });
  return found;
}

// A layer of the map; widths of lines, which do not scale on the page, in units of the map.
function copyLayer(layer, toUnits) {
  if (layer.hasAttribute("hidden") || layer.classList.contains("hovered")) return null;
  const copy = layer.cloneNode(true);
  const parts = [...layer.querySelectorAll("*")];
  [...copy.querySelectorAll("*")].forEach((part, i) => {
    const style = getComputedStyle(parts[i]);
    const attributes = {
      ...splitColour("fill", style.fill),
      ...splitColour("stroke", style.stroke),
      ...(style.stroke !== "none" && { "stroke-width": toUnits(parseFloat(style.strokeWidth)) }),
    };
    if (style.strokeDasharray !== "none")
      attributes["stroke-dasharray"] = style.strokeDasharray
        .split(", ")
        .map((length) => toUnits(parseFloat(length)))
        .join(" ");
    for (const [name, ordinary] of Object.entries(STYLES)) {
      const value = style.getPropertyValue(name);
      if (value && value !== ordinary) attributes[name] = value;
    }
    for (const [name, value] of Object.entries(attributes)) part.setAttribute(name, String(value));
    for (const name of ["class", "style", "data-state"]) part.removeAttribute(name);
  });
  copy.removeAttribute("class");
  return copy;
}

function drawScale({ low, middle, high, shades, note, zero }, width, top, index) {
  const id = `ramp-${index}`;
  const format = createNumberFormat(Math.max(Math.abs(low), high));
  const notes = [note, zero ? "white: distance 0" : null].filter(Boolean).join("; ");
  const anchors = ["start", "middle", "end"];
  return createSvgElement(
    "g",
    { transform: `translate(0 ${top})` },
    createSvgElement(
      "linearGradient",
      { id },
      shades.map((shade, i) =>
        createSvgElement("stop", { offset: i / (shades.length - 1), "stop-color": shade }),
      ),
    ),
    createSvgElement("rect", { width, height: 12, fill: `url(#${id})`, stroke: "#767676" }),
    [low, middle, high].map((x, i) =>
      createSvgElement("text", { x: (i * width) / 2, y: 28, "text-anchor": anchors[i] }, format(x)),
    ),
    notes ? createSvgElement("text", { x: 0, y: 46, "font-size": 12 }, notes) : null,
  );
}

// A computed colour as attributes that every program reads: opacity apart.
function splitColour(name, colour) {
  const [red, green, blue, alpha = 1] = (colour.match(/[\d.]+/g) ?? []).map(Number);
  if (colour === "none" || red === undefined) return { [name]: colour };
  const opacity = alpha < 1 ? { [`${name}-opacity`]: alpha } : {};
  return { [name]: `rgb(${red}, ${green}, ${blue})`, ...opacity };
}

// Convert an SVG file to a PNG file.
export async function convertToPng(svg) {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  canvas.width = PIXEL_RATIO * image.naturalWidth;
  canvas.height = PIXEL_RATIO * image.naturalHeight;
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve, reject) =>
    canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("no picture"))), "image/png"),
  );
}
