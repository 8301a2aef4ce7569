// The sum that builds up to a distance, as a chart.
import { brief } from "./elements.js";
import { digits } from "./numbers.js";

const MOST_BARS = 80;
const MOST_POINTS = 2000;
const INK = { whole: "#e4007c", done: "#3b7dd8", ahead: "#9aa3ad" };

// What adds up: bars that stand on each other; or a curve, where steps repeat for ever.
export function sumChart(host, why, step) {
  const { steps, loop } = why.reasons;
  const branching = steps[0].coupling.length > 0;
  if (!branching && (loop !== null || steps.length > MOST_BARS))
    host.replaceChildren(curve(host, why, step));
  else
    host.replaceChildren(
      bars(host, why, branching ? matchedParts(why, step) : pathParts(why, step), branching, step),
    );
}

const frame = (host, whole) => ({
  width: Math.max(280, host.clientWidth),
  height: 178,
  marginLeft: 48,
  marginBottom: 46,
  style: { background: "none", fontSize: "12px" },
  ariaLabel: `The sum builds up to ${digits(whole, 6)}`,
});

function bars(host, why, parts, branching, step) {
  const whole = parts[parts.length - 1].to;
  const ink = (part) => (part.on ? INK.done : INK.ahead);
  const some = Math.ceil(parts.length / 14);
  const ticks = parts.filter((_, k) => k % some === 0).map((part) => part.label);
  const first = Math.min(step, why.reasons.steps.length - 1);
  return Plot.plot({
    ...frame(host, whole),
    x: {
      type: "band",
      domain: parts.map((part) => part.label),
      ticks,
      label: branching ? "reward gap and matches" : "step",
      padding: 0.12,
    },
    y: {
      label: branching ? `adds up to, in step ${first}` : "so far",
      grid: true,
      nice: true,
      ticks: 4,
    },
    marks: [
      Plot.rectY(parts, {
        x: "label",
        y1: "from",
        y2: "to",
        fill: ink,
        title: (part) => `${part.words}: ${digits(part.to - part.from, 5)}`,
        tip: true,
      }),
      Plot.tickY(parts, { x: "label", y: "to", stroke: ink, strokeWidth: 2 }),
      Plot.ruleY([0]),
      Plot.ruleY([whole], { stroke: INK.whole, strokeDasharray: "4 3" }),
    ],
  });
}

// The steps, and those that repeat until almost all is added.
function curve(host, why, step) {
  const { steps, loop, total } = why.reasons;
  const { discount } = why.d.steps;
  const points = [{ step: 0, sum: 0 }];
  let sum = 0;
  const most = Math.min(
    MOST_POINTS,
    Math.max(steps.length, Math.ceil(Math.log(0.005) / Math.log(discount || 1e-9))),
  );
  for (let k = 0; k < (loop === null ? steps.length : most); k++) {
    const each = steps[k < steps.length ? k : loop + ((k - loop) % (steps.length - loop))];
    sum += discount ** k * each.gap;
    points.push({ step: k + 1, sum });
  }
  const shown = { x: "step", y: "sum", curve: "step-before" };
  const done = points.slice(0, step + 1);
  return Plot.plot({
    ...frame(host, total),
    x: { label: "steps", ticks: 6, tickFormat: "d" },
    y: { label: "so far", grid: true, nice: true, ticks: 4, domain: [0, total] },
    marks: [
      Plot.areaY(points, { ...shown, fill: INK.ahead, fillOpacity: 0.35 }),
      Plot.lineY(points, { ...shown, stroke: INK.ahead, strokeWidth: 1.5 }),
      Plot.areaY(done, { ...shown, fill: INK.done, fillOpacity: 0.6 }),
      Plot.dot([points[step]], { x: "step", y: "sum", r: 4.5, fill: INK.done, stroke: "white" }),
      Plot.ruleY([0]),
      Plot.ruleY([total], { stroke: INK.whole, strokeDasharray: "4 3" }),
      Plot.tip(
        points,
        Plot.pointerX({
          x: "step",
          y: "sum",
          title: (point) => `after ${point.step} steps: ${digits(point.sum, 5)}`,
        }),
      ),
    ],
  });
}

function pathParts(why, step) {
  const { steps, total } = why.reasons;
  const parts = [];
  let from = 0;
  steps.forEach((each, k) => {
    parts.push({ label: String(k), words: `step ${k}`, from, to: from + each.adds, on: k < step });
    from += each.adds;
  });
  if (total - from > 1e-9 * total)
    parts.push({ label: "rest", words: "the rest", from, to: total, on: step === steps.length });
  return parts;
}

function matchedParts(why, step) {
  const each = why.reasons.steps[Math.min(step, why.reasons.steps.length - 1)];
  const parts = [{ label: "gap", words: "reward gap", from: 0, to: each.gap, on: true }];
  let from = each.gap;
  each.coupling
    .filter((match) => match.adds > 0)
    .slice(0, 12)
    .forEach((match, k) => {
      const words = match.states.map((s) => brief(why.name(s))).join(" and ");
      parts.push({ label: String(k + 1), words, from, to: from + match.adds, on: true });
      from += match.adds;
    });
  const all = each.gap + each.coupling.reduce((sum, match) => sum + match.adds, 0);
  if (all - from > 1e-9 * all)
    parts.push({ label: "others", words: "all other matches", from, to: all, on: true });
  return parts;
}
