// Encode small distances for tests, as `explorer/bundle.py` does.

export const encode = (array) =>
  Buffer.from(array.buffer, array.byteOffset, array.byteLength).toString("base64");

// Encode a mask as bits, the first one lowest.
export function encodeBits(mask) {
  const bytes = new Uint8Array(Math.ceil(mask.length / 8));
  mask.forEach((on, i) => (bytes[i >> 3] |= Number(on) << (i & 7)));
  return encode(bytes);
}

// Encode the lower triangle of a symmetric matrix (n, n).
export function encodeMatrix(matrix) {
  const half = matrix.flatMap((row, s) => row.slice(0, s + 1));
  return { encoding: "float64", step: 0, data: encode(Float64Array.from(half)) };
}

// A distance: `rows[s][a]` is [reward, { successor: probability }].
export function createDistanceData(kind, discount, matrix, rows, more = {}) {
  const all = rows.flat();
  const supports = all.map(([, successors]) => Object.entries(successors));
  const starts = [0];
  for (const support of supports) starts.push(starts.at(-1) + support.length);
  const flat = supports.flat();
  const deterministic = supports.every((support) => support.length === 1);
  return {
    label: "d",
    kind,
    kindName: "distance",
    symbol: "d",
    accuracy: "proven, exact",
    error: 0,
    values: encodeMatrix(matrix),
    unknown: [],
    determined: null,
    V: null,
    transitions: {
      discount,
      actions: rows[0].map((_, a) => `a${a}`),
      numActions: rows[0].length,
      deterministic,
      R: encode(Float64Array.from(all, ([reward]) => reward)),
      rowStarts: encode(Int32Array.from(starts)),
      successors: encode(Int32Array.from(flat, ([state]) => Number(state))),
      probabilities: deterministic ? null : encode(Float64Array.from(flat, ([, mass]) => mass)),
      available: null,
      known: null,
      complete: true,
      policyActions: null,
      ...more,
    },
  };
}
