// Decode, parse and format numbers.

// Typed arrays, which a page computed itself, stay as they are.
export function decodeBytes(base64) {
  if (typeof base64 !== "string") return base64;
  const text = atob(base64);
  const found = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) found[i] = text.charCodeAt(i);
  return found;
}

export const decodeFloat64 = (base64) => new Float64Array(decodeBytes(base64).buffer);
export const decodeInt32 = (base64) => new Int32Array(decodeBytes(base64).buffer);
export const decodeUint16 = (base64) => new Uint16Array(decodeBytes(base64).buffer);

// Decode a bit mask into a function of the index.
export function decodeMask(base64) {
  const encoded = decodeBytes(base64);
  return (i) => ((encoded[i >> 3] >> (i & 7)) & 1) === 1;
}

// The index of a pair in the lower triangle of a symmetric matrix.
export const pairIndex = (s, t) => (s >= t ? (s * (s + 1)) / 2 + t : (t * (t + 1)) / 2 + s);

// A symmetric (n, n) distance matrix: `at(s, t)`, `row(s)`, `largest`.
export class DistanceMatrix {
  constructor(n, encoded) {
    this.n = n;
    this.step = encoded.step;
    this.values =
      encoded.encoding === "float64" ? decodeFloat64(encoded.data) : decodeUint24(encoded);
    this.largest = this.values.reduce((max, value) => Math.max(max, value), 0);
  }

  at(s, t) {
    return this.values[pairIndex(s, t)];
  }

  row(s) {
    const found = new Float64Array(this.n);
    for (let t = 0; t < this.n; t++) found[t] = this.at(s, t);
    return found;
  }
}

function decodeUint24({ data, step }) {
  const encoded = decodeBytes(data);
  const found = new Float64Array(encoded.length / 3);
  for (let i = 0, at = 0; i < found.length; i++, at += 3)
    found[i] = step * (encoded[at] | (encoded[at + 1] << 8) | (encoded[at + 2] << 16));
  return found;
}

// A format for numbers up to the largest: four digits of it, and the same number of decimals for all.
export function createNumberFormat(largest) {
  if (!(largest > 0)) return (x) => (x === 0 ? "0" : x.toPrecision(4));
  const magnitude = Math.floor(Math.log10(Number(largest.toExponential(3))));
  if (magnitude < -3 || magnitude > 5) return (x) => (x ? x.toExponential(1) : "0");
  const decimals = Math.max(0, 3 - Math.max(magnitude, 0));
  return (x) => (x ? x.toFixed(decimals) : "0");
}

// Bounds on the error of an exact 0 are subnormal, below this.
export const MIN_NORMAL = 2 ** -1022;

// Format a single number to some digits.
export function formatNumber(x, count = 6) {
  const size = Math.abs(x);
  if (size < MIN_NORMAL) return "0";
  if (size < 1e-4 || size >= 1e7) return x.toExponential(Math.min(count, 3) - 1);
  return String(Number(x.toPrecision(count)));
}

// Parse an index below `count`; null if it is none.
export const parseIndex = (text, count) =>
  /^\d{1,9}$/.test(text) && Number(text) < count ? Number(text) : null;

// Parse one or two indices below `count`; none if one of them is not valid.
export function parseIndices(text, count) {
  const found = text.split(",").map((part) => parseIndex(part, count));
  return found.length <= 2 && found.every((index) => index !== null) ? found : [];
}

// Created once, which is slow.
const COUNT_FORMAT = new Intl.NumberFormat("en-GB");
export const formatCount = (count) => COUNT_FORMAT.format(count);
export const pluralise = (count, one, many = one + "s") =>
  `${formatCount(count)} ${count === 1 ? one : many}`;
