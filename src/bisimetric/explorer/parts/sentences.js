// Sentences about an explanation.
import { abbreviate } from "./elements.js";
import { formatNumber, MIN_NORMAL } from "./numbers.js";

export function describeExplanation(panel) {
  const { first, second } = panel.selection;
  const found = [describeEnd(panel), describeMismatch(panel)];
  if (panel.d.V && first !== second) found.push(describeValueBound(panel));
  else if (panel.d.isLowerBound(first, second))
    found.push("Not all transitions were observed: the true distance may be larger.");
  return found.filter(Boolean);
}

// How the steps end.
function describeEnd(panel) {
  const { steps, loopStart, total, end, outsidePair, mismatchedPair, tooLarge } = panel.explanation;
  const [one, two] = end.map((s) => abbreviate(panel.name(s)));
  const rest = total - steps.reduce((sum, step) => sum + step.contribution, 0);
  if (tooLarge)
    return "This step has too many successors to be matched here; the command bisimetric explain shows it.";
  if (outsidePair)
    return `A step from ${one} and ${two} leads to states that are not on this page, so the path stops here; the rest adds ${formatNumber(rest, 4)}.`;
  if (mismatchedPair)
    return `${steps.length ? "Then " : ""}${one} and ${two} do not have the same actions: their distance is the diameter bound.`;
  if (!steps.length) return describeNoStep(panel);
  const last = steps.length - 1;
  if (steps[0].coupling.length)
    return loopStart === null
      ? `And so on from ${one} and ${two}.`
      : `The largest term leads back to step ${loopStart}.`;
  if (loopStart !== null)
    return `${loopStart === last ? `Step ${loopStart} repeats` : `Steps ${loopStart} to ${last} repeat`} forever: ${formatNumber(rest, 5)} more, ${formatNumber(total, 6)} in total.`;
  if (rest > Math.max(panel.d.error ?? 0, 1e-9))
    return `The rest of the path adds ${formatNumber(rest, 4)}: ${formatNumber(total, 6)} in total.`;
  return end[0] === end[1]
    ? `Then both are in ${one}: ${formatNumber(total, 6)} in total.`
    : `Then ${one} and ${two} are at distance 0, up to the error: ${formatNumber(total, 6)} in total.`;
}

function describeNoStep(panel) {
  const { first, second } = panel.selection;
  if (first === second) return "They are the same state.";
  if (panel.d.isBisimilar?.(first, second)) return "No step distinguishes them.";
  if (panel.d.transitions.known) return "No observed transition distinguishes them.";
  if (panel.d.error !== null && panel.d.error < MIN_NORMAL) return "No step distinguishes them.";
  return panel.d.error === null
    ? "Their distance in the matrix is 0."
    : `No step that adds to it was found: it is at most the error, ${formatNumber(panel.d.error, 2)}.`;
}

// Whether the steps add up to another number than the entry of the matrix.
function describeMismatch({
  d,
  explanation: { total, outsidePair, tooLarge },
  selection: { first, second },
}) {
  const distance = d.at(first, second);
  const tolerance = Math.max(5e-5, 4 * d.matrix.step, 2 * (d.error ?? 0));
  if (tooLarge || outsidePair || Math.abs(total - distance) <= tolerance) return null;
  return `The matrix has ${distance.toFixed(4)} instead of ${total.toFixed(4)}: it is an estimate.`;
}

// The difference of the values, and its bound.
function describeValueBound({ d, selection: { first, second } }) {
  const gap = Math.abs(d.V.values[first] - d.V.values[second]);
  const under = d.V.name === "V*" ? "the optimal policy" : "the policy";
  const bound =
    d.error === null
      ? "; nothing is proven about this matrix, and the true distance is at least that"
      : `, at most ${formatNumber(d.at(first, second) + d.error, 6)} by this distance`;
  return `Their values under ${under} differ by ${formatNumber(gap, 6)}${bound}.`;
}
