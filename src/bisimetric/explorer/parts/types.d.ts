// Types of the data of a page, as `explorer/pages.py` and `explorer/data.py` write them, and of
// explanations. They are only read by the type checker.

export interface EncodedMatrix {
  encoding: "float64" | "uint24";
  step: number;
  data: string | Float64Array; // base64; or an array that the page itself computed
}

export interface EncodedTransitions {
  discount: number;
  actions: string[];
  numActions: number;
  deterministic: boolean;
  R: string | Float64Array;
  rowStarts: string | Int32Array;
  successors: string | Int32Array;
  probabilities: string | null;
  available: string | null;
  known: string | null;
  complete: boolean;
  policyActions: number[] | null;
}

export interface Threshold {
  radius: number;
  numClasses: number;
  regretBound: number | null;
  regret: number | null;
}

export interface Aggregation {
  thresholds: Threshold[];
  labels: string;
  regretNote: string | null;
  valueName: string;
  diameterBound: number | null;
}

export interface EncodedDistance {
  label: string;
  kind: string;
  kindName: string;
  symbol: string;
  accuracy: string;
  error: number | null;
  pairError?: number | null;
  values: EncodedMatrix;
  unknown: number[];
  determined: string | null;
  V: { name: string; error: number | null; data: string | Float64Array } | null;
  noValues?: string;
  transitions: EncodedTransitions | null;
  noTransitions?: string;
  command?: { file: string; states: (string | null)[] } | null;
  aggregation?: Aggregation;
}

type Mask = (index: number) => boolean;

export interface Transitions extends Omit<EncodedTransitions, "available" | "known"> {
  available: Mask | null;
  known: Mask | null;
  reward(s: number, a: number): number;
  listSuccessors(s: number, a: number): Map<number, number>;
}

/** A distance with transitions, as far as explanations read it. */
export interface ExplainedDistance {
  kind: string;
  transitions: Transitions;
  matrix: { n: number };
  at(s: number, t: number): number;
}

export type Pair = [number, number];

/** Mass of a coupling at a pair of successors. */
export interface MatchedMass {
  states: Pair;
  mass: number;
}

export interface Match extends MatchedMass {
  distance: number;
  contribution: number;
}

export interface Step {
  states: Pair;
  actions: Pair | null;
  rewardGap: number;
  contribution: number;
  nextStates: Pair;
  weight: number;
  coupling: Match[];
}

export interface Explanation {
  steps: Step[];
  loopStart: number | null;
  total: number;
  end: Pair;
  outsidePair: Pair | null;
  mismatchedPair: Pair | null;
  tooLarge: boolean;
}

export interface StateMapData {
  width: number;
  height: number;
  columns: number[];
  rows: number[];
}

/** The positions of states: cells of a map, or points. */
export interface StatePlaces {
  names: string[];
  map: StateMapData | null;
  points: number[][] | null;
}

export interface ColourScale {
  colour(x: number): string;
  low: number;
  middle: number;
  high: number;
  shades: string[];
  /** Whether distance 0 is white, outside of the shades. */
  zero: boolean;
  note: string | null;
}

declare global {
  interface Window {
    bisimetric: object;
  }
}
