// Numbers as the page carries them, and how they are written.

export function bytes(base64) {
  const text = atob(base64);
  const found = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) found[i] = text.charCodeAt(i);
  return found;
}

export const float64s = (base64) => new Float64Array(bytes(base64).buffer);
export const int32s = (base64) => new Int32Array(bytes(base64).buffer);
export const uint16s = (base64) => new Uint16Array(bytes(base64).buffer);

// A mask of bits: `has(i)`.
export function mask(base64) {
  const packed = bytes(base64);
  return (i) => ((packed[i >> 3] >> (i & 7)) & 1) === 1;
}

// The place of a pair in one half of a symmetric table.
export const half = (s, t) => (s >= t ? (s * (s + 1)) / 2 + t : (t * (t + 1)) / 2 + s);

// A symmetric table of n x n distances: `at(s, t)`, `row(s)`, `largest`.
export class Table {
  constructor(n, packed) {
    this.n = n;
    this.step = packed.step;
    this.values = packed.form === "float64" ? float64s(packed.data) : wide(packed);
    this.largest = this.values.reduce((most, value) => Math.max(most, value), 0);
  }

  at(s, t) {
    return this.values[half(s, t)];
  }

  row(s) {
    const found = new Float64Array(this.n);
    for (let t = 0; t < this.n; t++) found[t] = this.at(s, t);
    return found;
  }
}

function wide({ data, step }) {
  const packed = bytes(data);
  const found = new Float64Array(packed.length / 3);
  for (let i = 0, at = 0; i < found.length; i++, at += 3)
    found[i] = step * (packed[at] | (packed[at + 1] << 8) | (packed[at + 2] << 16));
  return found;
}

// One way to write all numbers up to the largest: four digits of it, equally many decimals.
export function format(largest) {
  if (!(largest > 0)) return (x) => (x === 0 ? "0" : x.toPrecision(4));
  const magnitude = Math.floor(Math.log10(Number(largest.toExponential(3))));
  if (magnitude < -3 || magnitude > 5) return (x) => (x ? x.toExponential(1) : "0");
  const decimals = Math.max(0, 3 - Math.max(magnitude, 0));
  return (x) => (x ? x.toFixed(decimals) : "0");
}

// A number on its own, to so many digits.
export function digits(x, count = 6) {
  if (x === 0) return "0";
  const size = Math.abs(x);
  if (size < 1e-4 || size >= 1e7) return x.toExponential(Math.min(count, 3) - 1);
  return String(Number(x.toPrecision(count)));
}

// Made once: a formatter takes longer to make than a page to paint.
const GROUPED = new Intl.NumberFormat("en-GB");
export const whole = (count) => GROUPED.format(count);
export const counted = (count, one, many = one + "s") =>
  `${whole(count)} ${count === 1 ? one : many}`;
