// The colours of states, on a canvas: 2,000 nodes of a document would take too long to restyle.
import { element } from "./elements.js";

const FAINT = 0.16;
const LINED = 6; // pixels of a cell from which on its border is drawn

export class Painting {
  constructor(places) {
    this.places = places;
    this.canvas = element("canvas", { "aria-hidden": "true" });
  }

  // So many pixels of the window are the width of the drawing.
  resize(pixels) {
    const { width, height } = this.places;
    this.scale = (pixels * window.devicePixelRatio) / width;
    this.canvas.width = Math.round(width * this.scale);
    this.canvas.height = Math.round(height * this.scale);
  }

  // Colours (n,), but not of the `veiled` states; all but `alone` are faint, where that is given.
  draw(colours, veiled, alone) {
    const pen = this.canvas.getContext("2d");
    pen.clearRect(0, 0, this.canvas.width, this.canvas.height);
    pen.lineWidth = (this.places.cells ? 0.7 : 1) * window.devicePixelRatio;
    for (let s = 0; s < colours.length; s++) {
      if (veiled.has(s)) continue;
      pen.globalAlpha = alone && !alone.has(s) ? FAINT : 1;
      pen.fillStyle = colours[s];
      if (this.places.cells) this.cell(pen, s);
      else this.point(pen, s);
    }
  }

  // Its sides are where those of its neighbours are, to the pixel.
  cell(pen, s) {
    const { places, scale } = this;
    const [left, right] = [-0.5, 0.5].map((side) => Math.round((places.x[s] + side) * scale));
    const [top, bottom] = [-0.5, 0.5].map((side) => Math.round((places.y[s] + side) * scale));
    pen.fillRect(left, top, right - left, bottom - top);
    if (scale < LINED * window.devicePixelRatio) return;
    pen.strokeStyle = scale < 4 * LINED ? "rgb(0 0 0 / 0.1)" : "rgb(0 0 0 / 0.25)";
    pen.strokeRect(left, top, right - left, bottom - top);
  }

  point(pen, s) {
    const { places, scale } = this;
    pen.beginPath();
    pen.arc(places.x[s] * scale, places.y[s] * scale, (places.size / 2) * scale, 0, 2 * Math.PI);
    pen.fill();
    pen.strokeStyle = "rgb(128 128 128 / 0.8)";
    pen.stroke();
  }
}
