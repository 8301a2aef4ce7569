// What the pages use of Observable Plot. It is a bundle of its own, which changes only with Plot.
export {
  areaY,
  dot,
  line,
  lineY,
  plot,
  pointerX,
  rect,
  rectY,
  ruleX,
  ruleY,
  tickY,
  tip,
} from "@observablehq/plot";
