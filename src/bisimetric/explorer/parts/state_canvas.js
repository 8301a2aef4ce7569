// The colours of states, on a canvas: restyling 2,000 elements would be too slow.
import { createElement } from "./elements.js";

export const FAINT_OPACITY = 0.16;
const MIN_BORDER_PIXELS = 6; // smaller cells have no border

export class StateCanvas {
  constructor(layout) {
    this.layout = layout;
    this.canvas = createElement("canvas", { "aria-hidden": "true" });
  }

  // Set the width of the drawing, in pixels of the window.
  resize(pixels) {
    const { width, height } = this.layout;
    this.scale = (pixels * window.devicePixelRatio) / width;
    this.canvas.width = Math.round(width * this.scale);
    this.canvas.height = Math.round(height * this.scale);
  }

  // Draw colours (n,) of all but the unknown states; those outside of `highlighted` are faint.
  draw(colours, unknown, highlighted) {
    const context = this.canvas.getContext("2d");
    context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    context.lineWidth = (this.layout.hasCells ? 0.7 : 1) * window.devicePixelRatio;
    for (let s = 0; s < colours.length; s++) {
      if (unknown.has(s)) continue;
      context.globalAlpha = highlighted && !highlighted.has(s) ? FAINT_OPACITY : 1;
      context.fillStyle = colours[s];
      if (this.layout.hasCells) this.drawCell(context, s);
      else this.drawPoint(context, s);
    }
  }

  // Rounded to pixels, so that neighbouring cells leave no gap.
  drawCell(context, s) {
    const { layout, scale } = this;
    const [left, right] = [-0.5, 0.5].map((side) => Math.round((layout.x[s] + side) * scale));
    const [top, bottom] = [-0.5, 0.5].map((side) => Math.round((layout.y[s] + side) * scale));
    context.fillRect(left, top, right - left, bottom - top);
    if (scale < MIN_BORDER_PIXELS * window.devicePixelRatio) return;
    context.strokeStyle = scale < 4 * MIN_BORDER_PIXELS ? "rgb(0 0 0 / 0.1)" : "rgb(0 0 0 / 0.25)";
    context.strokeRect(left, top, right - left, bottom - top);
  }

  drawPoint(context, s) {
    const { layout, scale } = this;
    context.beginPath();
    context.arc(
      layout.x[s] * scale,
      layout.y[s] * scale,
      (layout.size / 2) * scale,
      0,
      2 * Math.PI,
    );
    context.fill();
    context.strokeStyle = "#767676"; // contrast above 3 to 1 with light and dark cards
    context.stroke();
  }
}
