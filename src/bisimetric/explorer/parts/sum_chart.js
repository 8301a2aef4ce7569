// A chart of the cumulative sum of an explanation.
import * as Plot from "./charts.js";
import { abbreviate, describeChart } from "./elements.js";
import { formatNumber } from "./numbers.js";

const MAX_BARS = 80;
const MAX_POINTS = 2000;
const MAX_SPOKEN_TERMS = 6; // of a summary for screen readers
const CHART_COLOURS = { total: "#e4007c", done: "#3b7dd8", pending: "#7d8791" };

// Stacked bars; or a curve, if the steps repeat infinitely often.
export function drawSumChart(host, panel, step) {
  const { steps, loopStart } = panel.explanation;
  const isStochastic = steps[0].coupling.length > 0;
  const total = `the distance is ${formatNumber(panel.explanation.total, 6)}`;
  if (!isStochastic && (loopStart !== null || steps.length > MAX_BARS)) {
    const summary = `Curve of the cumulative sum over steps; ${panel.describeStep()}; ${total}.`;
    return host.replaceChildren(describeChart(drawCurve(host, panel, step), summary));
  }
  const parts = isStochastic ? listMatchTerms(panel, step) : listPathTerms(panel, step);
  const terms = parts.map((part) => `${part.text} ${formatNumber(part.to - part.from, 4)}`);
  const shown = terms.slice(0, MAX_SPOKEN_TERMS).join(", ");
  const more =
    terms.length > MAX_SPOKEN_TERMS ? ` and ${terms.length - MAX_SPOKEN_TERMS} more` : "";
  const summary = `Bars of a cumulative sum: ${shown}${more}; ${total}.`;
  const chart = drawBars(host, panel, parts, isStochastic, step);
  host.replaceChildren(describeChart(chart, summary));
}

const createChartOptions = (host) => ({
  width: Math.max(280, host.clientWidth),
  height: 178,
  marginLeft: 48,
  marginBottom: 46,
  style: { background: "none", fontSize: "12px" },
});

function drawBars(host, panel, parts, isStochastic, step) {
  const total = parts[parts.length - 1].to;
  const selectColour = (part) => (part.on ? CHART_COLOURS.done : CHART_COLOURS.pending);
  const some = Math.ceil(parts.length / 14);
  const ticks = parts.filter((_, k) => k % some === 0).map((part) => part.label);
  const first = Math.min(step, panel.explanation.steps.length - 1);
  return Plot.plot({
    ...createChartOptions(host),
    x: {
      type: "band",
      domain: parts.map((part) => part.label),
      ticks,
      label: isStochastic ? "reward gap and matches" : "step",
      padding: 0.12,
    },
    y: {
      label: isStochastic ? `cumulative sum, step ${first}` : "cumulative sum",
      grid: true,
      nice: true,
      ticks: 4,
    },
    marks: [
      Plot.rectY(parts, {
        x: "label",
        y1: "from",
        y2: "to",
        fill: selectColour,
        title: (part) => `${part.text}: ${formatNumber(part.to - part.from, 5)}`,
        tip: true,
      }),
      Plot.tickY(parts, { x: "label", y: "to", stroke: selectColour, strokeWidth: 2 }),
      Plot.ruleY([0]),
      Plot.ruleY([total], { stroke: CHART_COLOURS.total, strokeDasharray: "4 3" }),
    ],
  });
}

// The steps, repeated until 99.5% of the distance is reached.
function drawCurve(host, panel, step) {
  const { steps, loopStart, total } = panel.explanation;
  const { discount } = panel.d.transitions;
  const points = [{ step: 0, sum: 0 }];
  let sum = 0;
  const numPoints = Math.min(
    MAX_POINTS,
    Math.max(steps.length, Math.ceil(Math.log(0.005) / Math.log(discount || 1e-9))),
  );
  for (let k = 0; k < (loopStart === null ? steps.length : numPoints); k++) {
    const each =
      steps[k < steps.length ? k : loopStart + ((k - loopStart) % (steps.length - loopStart))];
    sum += discount ** k * each.rewardGap;
    points.push({ step: k + 1, sum });
  }
  const shown = { x: "step", y: "sum", curve: "step-before" };
  const done = points.slice(0, step + 1);
  return Plot.plot({
    ...createChartOptions(host),
    x: { label: "steps", ticks: 6, tickFormat: "d" },
    y: { label: "cumulative sum", grid: true, nice: true, ticks: 4, domain: [0, total] },
    marks: [
      Plot.areaY(points, { ...shown, fill: CHART_COLOURS.pending, fillOpacity: 0.35 }),
      Plot.lineY(points, { ...shown, stroke: CHART_COLOURS.pending, strokeWidth: 1.5 }),
      Plot.areaY(done, { ...shown, fill: CHART_COLOURS.done, fillOpacity: 0.6 }),
      Plot.dot([points[step]], {
        x: "step",
        y: "sum",
        r: 4.5,
        fill: CHART_COLOURS.done,
        stroke: "white",
      }),
      Plot.ruleY([0]),
      Plot.ruleY([total], { stroke: CHART_COLOURS.total, strokeDasharray: "4 3" }),
      Plot.tip(
        points,
        Plot.pointerX({
          x: "step",
          y: "sum",
          title: (point) => `after ${point.step} steps: ${formatNumber(point.sum, 5)}`,
        }),
      ),
    ],
  });
}

function listPathTerms(panel, step) {
  const { steps, total } = panel.explanation;
  const parts = [];
  let from = 0;
  steps.forEach((each, k) => {
    parts.push({
      label: String(k),
      text: `step ${k}`,
      from,
      to: from + each.contribution,
      on: k < step,
    });
    from += each.contribution;
  });
  if (total - from > 1e-9 * total)
    parts.push({
      label: "remainder",
      text: "remainder",
      from,
      to: total,
      on: step === steps.length,
    });
  return parts;
}

function listMatchTerms(panel, step) {
  const each = panel.explanation.steps[Math.min(step, panel.explanation.steps.length - 1)];
  const parts = [{ label: "gap", text: "reward gap", from: 0, to: each.rewardGap, on: true }];
  let from = each.rewardGap;
  each.coupling
    .filter((match) => match.contribution > 0)
    .slice(0, 12)
    .forEach((match, k) => {
      const text = match.states.map((s) => abbreviate(panel.name(s))).join(" and ");
      parts.push({ label: String(k + 1), text, from, to: from + match.contribution, on: true });
      from += match.contribution;
    });
  const all = each.rewardGap + each.coupling.reduce((sum, match) => sum + match.contribution, 0);
  if (all - from > 1e-9 * all)
    parts.push({ label: "others", text: "other matches", from, to: all, on: true });
  return parts;
}
