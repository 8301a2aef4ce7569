// What an explanation comes to, in sentences.
import { brief } from "./elements.js";
import { digits } from "./numbers.js";

export function sentences(why) {
  const { first, second } = why.selection;
  const found = [ending(why), estimated(why)];
  if (why.d.V && first !== second) found.push(valueBound(why));
  else if (why.d.isBelow(first, second))
    found.push("Not all transitions were observed: the true distance may be larger.");
  return found.filter(Boolean);
}

// Where the steps lead to.
function ending(why) {
  const { steps, loop, total, end, left, apart, large } = why.reasons;
  const [one, two] = end.map((s) => brief(why.name(s)));
  const rest = total - steps.reduce((sum, step) => sum + step.adds, 0);
  if (large)
    return "This step has too many successors to be matched here; the command bisimetric explain shows it.";
  if (left)
    return `A step from ${one} and ${two} leads to states that are not on this page, so the path stops here; the rest adds ${digits(rest, 4)}.`;
  if (apart)
    return `${steps.length ? "Then " : ""}${one} and ${two} do not have the same actions: they are at the largest possible distance.`;
  if (!steps.length) return noStep(why);
  const last = steps.length - 1;
  if (steps[0].coupling.length)
    return loop === null
      ? `And so on from ${one} and ${two}.`
      : `The largest term leads back to step ${loop}.`;
  if (loop !== null)
    return `${loop === last ? `Step ${loop} repeats` : `Steps ${loop} to ${last} repeat`} forever: ${digits(rest, 5)} more, ${digits(total, 6)} in all.`;
  if (rest > Math.max(why.d.error ?? 0, 1e-9))
    return `The rest of the path adds ${digits(rest, 4)}: ${digits(total, 6)} in all.`;
  return end[0] === end[1]
    ? `Then both are in ${one}: ${digits(total, 6)} in all.`
    : `Then ${one} and ${two} are at distance 0, up to the error: ${digits(total, 6)} in all.`;
}

function noStep(why) {
  const { first, second } = why.selection;
  if (first === second) return "They are the same state.";
  if (why.d.steps.known) return "No observed transition distinguishes them.";
  return why.d.error === null
    ? "Their distance in the matrix is 0."
    : `No step that adds to it was found: it is at most the error, ${digits(why.d.error, 2)}.`;
}

// Where the steps add up to another number than the one in the table.
function estimated({ d, reasons: { total, left, large }, selection: { first, second } }) {
  const distance = d.at(first, second);
  const loose = Math.max(5e-5, 4 * d.table.step, 2 * (d.error ?? 0));
  if (large || left || Math.abs(total - distance) <= loose) return null;
  return `The matrix has ${distance.toFixed(4)} instead of ${total.toFixed(4)}: it is an estimate.`;
}

// What the distance says of the values.
function valueBound({ d, selection: { first, second } }) {
  const gap = Math.abs(d.V.values[first] - d.V.values[second]);
  const under = d.V.name === "V*" ? "the optimal policy" : "the policy";
  const bound =
    d.error === null
      ? "; nothing is proven about this matrix, and the true distance is at least that"
      : `, at most ${digits(d.at(first, second) + d.error, 6)} by this distance`;
  return `Their values under ${under} differ by ${digits(gap, 6)}${bound}.`;
}
