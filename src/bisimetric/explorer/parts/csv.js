// Distances as CSV (RFC 4180), with all digits that the page has.

const ROWS_PER_PART = 20_000;

const quoteCell = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
const formatRow = (cells) => `${cells.map((cell) => quoteCell(String(cell))).join(",")}\r\n`;

// One column per distance, and one more for those of which some are lower bounds.
function listColumns(distances) {
  return distances.flatMap((d) => [
    d.label,
    ...(d.isDetermined ? [`${d.label} is a lower bound`] : []),
  ]);
}

function formatDistances(distances, s, t) {
  return distances.flatMap((d) => {
    const x = d.at(s, t);
    const digits = d.matrix.step ? Number(x.toPrecision(9)) : x;
    return [d.has(s, t) ? digits : "", ...(d.isDetermined ? [d.isLowerBound(s, t)] : [])];
  });
}

// The distances from a state to all states.
export function formatRowTable(names, distances, first) {
  const rows = names.map((name, t) => [
    names[first],
    name,
    ...formatDistances(distances, first, t),
  ]);
  return [["from", "to", ...listColumns(distances)], ...rows].map(formatRow).join("");
}

// The distances of all pairs, in parts of a file.
export function* listPairTables(names, distances) {
  let rows = [formatRow(["first", "second", ...listColumns(distances)])];
  for (let s = 0; s < names.length; s++)
    for (let t = s + 1; t < names.length; t++) {
      rows.push(formatRow([names[s], names[t], ...formatDistances(distances, s, t)]));
      if (rows.length < ROWS_PER_PART) continue;
      yield rows.join("");
      rows = [];
    }
  yield rows.join("");
}
