/**
 * How far the policy that trains is from the policy that sampled: ln(train / rollout) of every token that counts.
 *
 * Tokens outside the response mask and rows without any are left out here, so nothing later can look at them:
 * values are packed, row after row, and `rows` is where they came from. A statistic over tokens is then a plain
 * one over `values`, a statistic over rows a plain one over what `overRows` gives.
 */
import { invariant, UserError } from "../../util/errors.ts";
import { checkFinite, checkRows, type Rows } from "../batch.ts";

/** Log-probs of the same tokens under two policies; values where the mask is 0 do not matter. */
export type Mismatch = {
  /** Under the policy that trains: recomputed by the trainer (decoupled), or the current one (bypass). */
  readonly trainingLogprobs: Rows;
  /** Under the policy that sampled. */
  readonly rolloutLogprobs: Rows;
  readonly mask: Rows;
};

export type LogRatios = {
  /** ln(train / rollout) of each token that counts. */
  readonly values: Float64Array;
  /** Where each row that has such tokens begins in `values`; the last entry is the end. */
  readonly starts: Int32Array;
  /** The number in the batch of each such row. */
  readonly rows: Int32Array;
  /** Mean log-prob of each such row's tokens, under either policy. */
  readonly trainingMeans: Float64Array;
  readonly rolloutMeans: Float64Array;
};

/** exp(±20) is as far as a weight goes; verl's SAFETY_BOUND. */
export const SAFETY_BOUND = 20;

/** The log-ratios of a batch; it must fit together, be finite where it counts, and have a token that counts. */
export function logRatios({ trainingLogprobs, rolloutLogprobs, mask }: Mismatch): LogRatios {
  checkRows("training log-probs", trainingLogprobs, mask);
  checkRows("rollout log-probs", rolloutLogprobs, mask);
  const { starts, rows } = countedRows(mask);
  const values = new Float64Array(starts.at(-1)!);
  const [trainingMeans, rolloutMeans] = [new Float64Array(rows.length), new Float64Array(rows.length)];
  let next = 0;
  rows.forEach((row, i) => {
    const [training, rollout, counts] = [trainingLogprobs[row]!, rolloutLogprobs[row]!, mask[row]!];
    let [trainingSum, rolloutSum] = [0, 0];
    for (let t = 0; t < counts.length; t++) {
      if (counts[t] === 0) continue;
      trainingSum += training[t]!;
      rolloutSum += rollout[t]!;
      values[next++] = training[t]! - rollout[t]!;
    }
    if (!Number.isFinite(trainingSum + rolloutSum)) {
      checkFinite("training log-probs", trainingLogprobs, mask); // one of the two finds the token and stops
      checkFinite("rollout log-probs", rolloutLogprobs, mask);
    }
    trainingMeans[i] = trainingSum / (starts[i + 1]! - starts[i]!);
    rolloutMeans[i] = rolloutSum / (starts[i + 1]! - starts[i]!);
  });
  return { values, starts, rows, trainingMeans, rolloutMeans };
}

/** Which rows have tokens that count, and how many such tokens stand before each of them; there must be one. */
function countedRows(mask: Rows): Pick<LogRatios, "starts" | "rows"> {
  const [starts, rows] = [[0], [] as number[]];
  mask.forEach((row, i) => {
    let count = 0;
    for (let t = 0; t < row.length; t++) if (row[t] !== 0) count++;
    if (count === 0) return;
    rows.push(i);
    starts.push(starts.at(-1)! + count);
  });
  if (rows.length === 0) {
    throw new UserError(
      `None of the ${mask.length} rows of the response mask has a token that counts, so there is nothing to correct. ` +
        "Check that responses are not empty and not masked as tool output throughout.",
    );
  }
  return { starts: Int32Array.from(starts), rows: Int32Array.from(rows) };
}

/** Values of the tokens that count, put back where they came from; 0 elsewhere. */
export function scatter(ratios: LogRatios, values: ArrayLike<number>, mask: Rows): Float64Array[] {
  invariant(values.length === ratios.values.length, `${values.length} values for ${ratios.values.length} tokens`);
  const scattered = mask.map((row) => new Float64Array(row.length));
  let next = 0;
  for (const row of ratios.rows) {
    const [into, counts] = [scattered[row]!, mask[row]!];
    for (let t = 0; t < counts.length; t++) if (counts[t] !== 0) into[t] = values[next++]!;
  }
  return scattered;
}

export type Reduction = "sum" | "mean" | "max";

/** One number per row, from the values of its tokens. */
export function overRows({ starts, rows }: LogRatios, values: Float64Array, reduction: Reduction): Float64Array {
  const perRow = new Float64Array(rows.length);
  for (let i = 0; i < rows.length; i++) {
    const [start, end] = [starts[i]!, starts[i + 1]!];
    let total = reduction === "max" ? Number.NEGATIVE_INFINITY : 0;
    for (let k = start; k < end; k++) total = reduction === "max" ? Math.max(total, values[k]!) : total + values[k]!;
    perRow[i] = reduction === "mean" ? total / (end - start) : total;
  }
  return perRow;
}

/** One number per token: that of its row. */
export function spread({ values, starts }: LogRatios, perRow: Float64Array): Float64Array {
  const perToken = new Float64Array(values.length);
  perRow.forEach((value, i) => {
    perToken.fill(value, starts[i]!, starts[i + 1]!);
  });
  return perToken;
}

export const clamp = (value: number, lower: number, upper: number): number => Math.min(Math.max(value, lower), upper);

/** exp of a log-ratio that may be of any size. */
export const boundedExp = (value: number): number => Math.exp(clamp(value, -SAFETY_BOUND, SAFETY_BOUND));

/** `f` of each value: the method `map`, several times faster. */
export function mapped(values: Float64Array, f: (value: number) => number): Float64Array {
  const results = new Float64Array(values.length);
  for (let i = 0; i < values.length; i++) results[i] = f(values[i]!);
  return results;
}

export function meanOf(values: Float64Array): number {
  let total = 0;
  for (let i = 0; i < values.length; i++) total += values[i]!;
  return total / values.length;
}

/** Standard deviation; `unbiased` divides by one less than their number. A single value has none: 0. */
export function deviationOf(values: Float64Array, { unbiased = false } = {}): number {
  if (values.length < 2) return 0;
  const mean = meanOf(values);
  let total = 0;
  for (let i = 0; i < values.length; i++) total += (values[i]! - mean) ** 2;
  return Math.sqrt(total / (unbiased ? values.length - 1 : values.length));
}

export function maxOf(values: Float64Array): number {
  let largest = Number.NEGATIVE_INFINITY;
  for (let i = 0; i < values.length; i++) largest = Math.max(largest, values[i]!);
  return largest;
}

export function minOf(values: Float64Array): number {
  let smallest = Number.POSITIVE_INFINITY;
  for (let i = 0; i < values.length; i++) smallest = Math.min(smallest, values[i]!);
  return smallest;
}

export type Bounds = { readonly lower: number; readonly upper: number };

/** What share of the values lies above the upper bound, and what share below the lower one. */
export function sharesOutside(values: Float64Array, { lower, upper }: Bounds): { high: number; low: number } {
  let [high, low] = [0, 0];
  for (let i = 0; i < values.length; i++) {
    if (values[i]! > upper) high++;
    if (values[i]! < lower) low++;
  }
  return { high: high / values.length, low: low / values.length };
}
