/**
 * Importance weights: what the sampler drew is counted as often as the training policy would have drawn it.
 *
 * A weight is exp(ln train - ln rollout) of a token, or of the sum over a row, cut off at an upper bound (truncated
 * importance sampling, Ionides 2008; Yao et al. 2025, "Your Efficient RL Framework Secretly Brings You Off-Policy RL
 * Training"), or set to 0 outside two bounds (IcePop, arXiv:2510.18855). Weights multiply the token losses and never
 * carry a gradient. verl 0.7 reports weights before they are bounded, 0.9 as they are applied.
 *
 * Departures from verl: rows without a token that counts are left out of means over rows (verl counts them as weight
 * 0). The effective sample size is mean(w)^2 / mean(w^2) without verl's 1e-8, so it never exceeds 1, and is 0 when every
 * weight is (verl divides by zero).
 */

import type { Version } from "../batch.ts";
import type { Metrics } from "../metrics/metrics.ts";
import {
  type Bounds,
  boundedExp,
  clamp,
  deviationOf,
  type LogRatios,
  mapped,
  maxOf,
  meanOf,
  minOf,
  overRows,
  SAFETY_BOUND,
  sharesOutside,
  spread,
} from "./log-ratios.ts";

export const importanceLevels = ["token", "sequence"] as const;
export type ImportanceLevel = (typeof importanceLevels)[number];

export type Importance = {
  readonly level: ImportanceLevel;
  /** No weight is larger. */
  readonly upper: number;
  /** With a lower bound, weights outside the two become 0 (IcePop); without, larger ones become `upper`. */
  readonly lower: number | null;
  /** Divide by the mean over the batch, so that the mean weight is 1. */
  readonly normalizes: boolean;
};

/** One weight per token that counts, and what to log about them. */
export function importanceWeights(
  ratios: LogRatios,
  { level, upper, lower, normalizes }: Importance,
  version: Version,
): { weights: Float64Array; metrics: Metrics } {
  const rowLogs = level === "sequence" ? overRows(ratios, ratios.values, "sum") : null;
  const raw = rowLogs === null ? mapped(ratios.values, boundedExp) : spread(ratios, rowLogs.map(boundedExp));
  const bounds = { lower: lower ?? 1 / upper, upper };
  const weights = mapped(
    raw,
    lower === null ? (weight) => Math.min(weight, upper) : (weight) => (weight < lower || weight > upper ? 0 : weight),
  );

  const shown = version === "0.7" ? raw : weights;
  const measured = version === "0.7" ? within(raw, bounds) : weights;
  const metrics: Record<string, number> = {
    ...weightMetrics("rollout_is", ratios, { rowLogs, raw, shown, measured, bounds }),
  };
  if (lower !== null) {
    const { high, low } = sharesOutside(raw, bounds);
    metrics.rollout_is_oob_ratio = high + low;
  }
  if (!normalizes) return { weights, metrics };

  const mean = meanOf(level === "token" ? weights : overRows(ratios, weights, "mean"));
  const factor = mean > 1e-8 ? mean : 1; // verl's bound below which weights stay as they are
  metrics.rollout_is_batch_norm_factor = factor;
  return { weights: mapped(weights, (weight) => weight / factor), metrics };
}

/** The same weights of tokens from several sides; which is which differs between versions and uses. */
export type Weighing = {
  /** ln of each row's weight, where rows are what is weighed; null where tokens are. */
  readonly rowLogs: Float64Array | null;
  /** Before any bound but the safety bound: decides what is high or low. */
  readonly raw: Float64Array;
  /** Whose mean, extremes and means over rows are reported. */
  readonly shown: Float64Array;
  /** Whose standard deviation and effective sample size are reported. */
  readonly measured: Float64Array;
  readonly bounds: Bounds;
};

/** What verl logs about weights, under `{prefix}_…`. */
export function weightMetrics(
  prefix: string,
  ratios: LogRatios,
  { rowLogs, raw, shown, measured, bounds }: Weighing,
): Metrics {
  const outside =
    rowLogs === null
      ? sharesOutside(raw, bounds)
      : sharesOutside(rowLogs, { lower: Math.log(bounds.lower), upper: Math.log(bounds.upper) });
  const rowMeans = overRows(ratios, shown, "mean");
  const rowsOutside = sharesOutside(shown === raw ? rowMeans : overRows(ratios, raw, "mean"), bounds);
  return {
    [`${prefix}_mean`]: meanOf(shown),
    [`${prefix}_max`]: rowLogs === null ? maxOf(shown) : Math.exp(Math.min(maxOf(rowLogs), SAFETY_BOUND)),
    [`${prefix}_min`]: rowLogs === null ? minOf(shown) : Math.exp(Math.min(minOf(rowLogs), SAFETY_BOUND)),
    [`${prefix}_std`]: deviationOf(measured),
    [`${prefix}_eff_sample_size`]: effectiveSampleSize(measured),
    [`${prefix}_ratio_fraction_high`]: outside.high,
    [`${prefix}_ratio_fraction_low`]: outside.low,
    [`${prefix}_seq_mean`]: meanOf(rowMeans),
    [`${prefix}_seq_std`]: deviationOf(rowMeans, { unbiased: true }),
    [`${prefix}_seq_max`]: maxOf(rowMeans),
    [`${prefix}_seq_min`]: minOf(rowMeans),
    [`${prefix}_seq_max_deviation`]: maxOf(rowMeans.map((mean) => Math.abs(mean - 1))),
    [`${prefix}_seq_fraction_high`]: rowsOutside.high,
    [`${prefix}_seq_fraction_low`]: rowsOutside.low,
  };
}

export function within(values: Float64Array, { lower, upper }: Bounds): Float64Array {
  return mapped(values, (value) => clamp(value, lower, upper));
}

/** The share of the tokens that equally weighted tokens would need for the same variance: mean(w)^2 / mean(w^2). */
function effectiveSampleSize(weights: Float64Array): number {
  const square = meanOf(mapped(weights, (weight) => weight * weight));
  return square === 0 ? 0 : meanOf(weights) ** 2 / square;
}
