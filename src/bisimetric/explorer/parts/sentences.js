// What an explanation comes to, in sentences.
import { digits } from "./numbers.js";

export function sentences(why) {
  const { d, reasons } = why;
  const { first, second } = why.selection;
  const { steps, loop, total, end, left, apart, large } = reasons;
  const distance = d.at(first, second);
  const names = end.map((s) => why.name(s));
  const soFar = steps.reduce((sum, step) => sum + step.adds, 0);
  const rest = total - soFar;
  const branching = steps.length > 0 && steps[0].coupling.length > 0;
  const found = [];
  if (large)
    found.push(
      "This step ends in too many states to be matched here; `bisimetric explain` shows it.",
    );
  else if (left)
    found.push(
      `A step from ${names[0]} and ${names[1]} leads to states that are not on this page, so the path is followed no farther; what is left adds ${digits(rest, 4)}.`,
    );
  else if (apart)
    found.push(
      `${steps.length ? "Then " : ""}${names[0]} and ${names[1]} do not have the same actions: as far apart as can be.`,
    );
  else if (!steps.length) found.push(noStep(why, first, second));
  else if (branching)
    found.push(
      loop === null
        ? `And so on from ${names[0]} and ${names[1]}.`
        : `What adds most leads back to step ${loop}.`,
    );
  else if (loop !== null)
    found.push(
      `${loop === steps.length - 1 ? `Step ${loop} repeats` : `Steps ${loop} to ${steps.length - 1} repeat`} for ever: ${digits(rest, 5)} more, ${digits(total, 6)} in all.`,
    );
  else if (rest <= Math.max(d.error ?? 0, 1e-9))
    found.push(
      names[0] === names[1]
        ? `Then both are in ${names[0]}: ${digits(total, 6)} in all.`
        : `Then ${names[0]} and ${names[1]} are at distance 0: ${digits(total, 6)} in all.`,
    );
  else found.push(`The rest of the path adds ${digits(rest, 4)}: ${digits(total, 6)} in all.`);
  const loose = Math.max(5e-5, 4 * d.table.step, 2 * (d.error ?? 0));
  if (!large && !left && Math.abs(total - distance) > loose)
    found.push(
      `The table has ${distance.toFixed(4)} in place of ${total.toFixed(4)}: it is an estimate.`,
    );
  if (d.V && first !== second) {
    const gap = Math.abs(d.V.values[first] - d.V.values[second]);
    const under = d.V.name === "V*" ? "the best policy" : "the policy";
    const bound =
      d.error === null
        ? "; nothing is proven of this table, and the true distance is at least that"
        : `, at most ${digits(distance + d.error, 6)} by this distance`;
    found.push(`Their values under ${under} differ by ${digits(gap, 6)}${bound}.`);
  } else if (d.isBelow(first, second))
    found.push("Not all that they lead to was seen: the true distance may be larger.");
  return found;
}

function noStep(why, first, second) {
  if (first === second) return "They are the same state.";
  if (why.d.steps.known) return "No step that was seen tells them apart.";
  return "They behave alike: no step tells them apart.";
}
