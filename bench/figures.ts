/**
 * A figure: one number of ours, and the same number of a peer measured in the same run.
 *
 * `ratio` is above 1 where ours is better, whether a larger or a smaller number is better. Values are rounded only when
 * they are printed.
 */

/** One line of output; the last three are null when no peer was measured. */
export type Figure = {
  readonly bench: string;
  readonly what: string;
  readonly unit: string;
  readonly ours: number;
  readonly peer: string | null;
  readonly theirs: number | null;
  readonly ratio: number | null;
};

/** What is measured; `isMore` says that a larger number is better. */
export type Quantity = { readonly what: string; readonly unit: string; readonly isMore: boolean };

/** Compare a number of ours with a peer's. */
export function figure(
  bench: string,
  { what, unit, isMore }: Quantity,
  ours: number,
  peer: { readonly name: string; readonly value: number } | null,
): Figure {
  if (peer === null) return { bench, what, unit, ours, peer: null, theirs: null, ratio: null };
  const ratio = isMore ? ours / peer.value : peer.value / ours;
  return { bench, what, unit, ours, peer: peer.name, theirs: peer.value, ratio };
}

/** The line for standard output. */
export function figureLine(figure: Figure): string {
  const { ours, theirs, ratio } = figure;
  return JSON.stringify({ ...figure, ours: rounded(ours), theirs: rounded(theirs), ratio: rounded(ratio, 3) });
}

/** Four significant digits unless another number is given; larger whole numbers in full. */
export function rounded<T extends number | null>(value: T, digits = 4): T {
  if (value === null) return value;
  return Number(Math.abs(value) >= 10 ** digits ? value.toFixed(0) : value.toPrecision(digits)) as T; // number in, number out
}

/** The middle value; between two of them, their mean. */
export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  const half = sorted.length / 2;
  return (sorted[Math.ceil(half) - 1]! + sorted[Math.floor(half)]!) / 2;
}
