/**
 * What metrics are: numbers by verl's names, and how several of one name become one. What each means is in
 * `table.ts`.
 *
 * One rule holds wherever metrics are made: a statistic of nothing (no episode, no token) is absent. It is never NaN,
 * as in verl, nor a 0 that could be taken for a measurement.
 */
import { UserError } from "../../util/errors.ts";
import type { Rows } from "../batch.ts";

/** Numbers by metric name. */
export type Metrics = Readonly<Record<string, number>>;

type Statistic = "mean" | "max" | "min";

/** `{prefix}/mean`, `/max` and `/min` of some numbers; nothing when there are none. */
export function summary(prefix: string, values: ArrayLike<number>): Metrics {
  const mean = meanOf(values);
  if (mean === null) return {};
  let [max, min] = [values[0]!, values[0]!];
  for (let i = 1; i < values.length; i++) {
    if (values[i]! > max) max = values[i]!;
    if (values[i]! < min) min = values[i]!;
  }
  return { [`${prefix}/mean`]: mean, [`${prefix}/max`]: max, [`${prefix}/min`]: min };
}

/** The mean of some numbers, or null when there are none. */
export function meanOf(values: ArrayLike<number>): number | null {
  let sum = 0;
  for (let i = 0; i < values.length; i++) sum += values[i]!;
  return values.length === 0 ? null : sum / values.length;
}

/** The covariance of two lists (their variance, if they are one), over one less than their length of at least 2. */
export function covarianceOf(a: ArrayLike<number>, b: ArrayLike<number>): number {
  const [meanA, meanB] = [meanOf(a)!, meanOf(b)!];
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += (a[i]! - meanA) * (b[i]! - meanB);
  return sum / (a.length - 1);
}

/** The entries where the mask is not 0, row after row. */
export function countedEntries(rows: Rows, mask: Rows): Float64Array {
  const entries = new Float64Array(rows.reduce((total, row) => total + row.length, 0));
  let at = 0;
  for (let i = 0; i < rows.length; i++) {
    const [row, counts] = [rows[i]!, mask[i]!];
    for (let t = 0; t < row.length; t++) if (counts[t] !== 0) entries[at++] = row[t]!;
  }
  return entries.subarray(0, at);
}

/**
 * One number for each name from its values over mini-batches or workers: their maximum if the name contains `max`,
 * their minimum if it contains `min`, else their mean. A name without values is left out.
 */
export function reduceMetrics(lists: Readonly<Record<string, readonly number[]>>): Metrics {
  return Object.fromEntries(
    Object.entries(lists).flatMap(([name, values]) =>
      values.length === 0 ? [] : [[name, reduced(values, statisticOf(name))] as const],
    ),
  );
}

/** Stop at the first number that is not finite. */
export function checkNumbers(name: string, values: readonly number[]): void {
  const row = values.findIndex((value) => !Number.isFinite(value));
  if (row >= 0) throw new UserError(`\`${name}\` is ${values[row]} at row ${row}. It must be a finite number.`);
}

function statisticOf(name: string): Statistic {
  return name.includes("max") ? "max" : name.includes("min") ? "min" : "mean";
}

function reduced(values: readonly number[], statistic: Statistic): number {
  if (statistic === "mean") return meanOf(values)!;
  return values.reduce((a, b) => Math[statistic](a, b));
}
