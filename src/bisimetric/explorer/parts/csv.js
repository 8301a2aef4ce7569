// Distances as CSV (RFC 4180), with all digits that the page has.

const ROWS_PER_PART = 20_000;

const quoteCell = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
const formatHead = (cells) => `${cells.map(quoteCell).join(",")}\r\n`;

// One column per distance, and one more for those of which some are lower bounds.
function listColumns(distances) {
  return distances.flatMap((d) => [
    d.label,
    ...(d.isDetermined ? [`${d.label} is a lower bound`] : []),
  ]);
}

// The row of a pair; a table may have millions. Encoded multiples of a step have nine digits.
function formatPair(cells, distances, s, t) {
  let row = `${cells[s]},${cells[t]}`;
  for (const d of distances) {
    const x = d.at(s, t);
    const digits = d.matrix.step ? Number(x.toPrecision(9)) : x;
    row += d.has(s, t) ? `,${digits}` : ",";
    if (d.isDetermined) row += `,${d.isLowerBound(s, t)}`;
  }
  return `${row}\r\n`;
}

// The distances from a state to all states.
export function formatRowTable(names, distances, first) {
  const cells = names.map(quoteCell);
  const rows = names.map((_, t) => formatPair(cells, distances, first, t));
  return [formatHead(["from", "to", ...listColumns(distances)]), ...rows].join("");
}

// The distances of all pairs, in parts of a file.
export function* listPairTables(names, distances) {
  const cells = names.map(quoteCell);
  let rows = [formatHead(["first", "second", ...listColumns(distances)])];
  for (let s = 0; s < names.length; s++)
    for (let t = s + 1; t < names.length; t++) {
      rows.push(formatPair(cells, distances, s, t));
      if (rows.length < ROWS_PER_PART) continue;
      yield rows.join("");
      rows = [];
    }
  yield rows.join("");
}
