/**
 * Rollout correction: training on what another policy sampled (another engine, another precision, older weights).
 *
 * Importance weights, rejection, veto and the metrics `rollout_corr/*` put together, on plain rows of log-probs. In the
 * *decoupled* mode there are three policies: the trainer recomputes the old log-probs, the batch is corrected once for
 * train = old against rollout, and the policy loss goes from old to current. In *bypass* mode there are two: the
 * sampler's log-probs are the old ones, and the correction is computed again in each update for train = current.
 * Formulas and presets: docs/rollout-correction.md. Departures from verl are in the headers of importance.ts, rejection.ts,
 * config.ts and metrics/off-policy-metrics.ts.
 */

import type { Metrics } from "../metrics/metrics.ts";
import { offPolicyMetrics } from "../metrics/off-policy-metrics.ts";
import type { Correction } from "./config.ts";
import { importanceWeights } from "./importance.ts";
import { logRatios, type Mismatch, scatter } from "./log-ratios.ts";
import { keptByAll, reject, veto } from "./rejection.ts";

export type Corrected = {
  /** The response mask, 0 also where a token was rejected. */
  readonly mask: readonly Float64Array[];
  /** What to multiply token losses with, 0 where the given mask is; null when no weights are asked for. */
  readonly weights: readonly Float64Array[] | null;
  /** verl's names, with the prefix `rollout_corr/`. */
  readonly metrics: Metrics;
};

/** Weights, mask and metrics of a batch. */
export function correct(mismatch: Mismatch, correction: Correction): Corrected {
  const ratios = logRatios(mismatch);
  const { importance, rejections, vetoBelow, version } = correction;
  const weighted = importance === null ? null : importanceWeights(ratios, importance, version);
  const verdicts = [
    ...(rejections.length === 0 ? [] : [reject(ratios, rejections)]),
    ...(vetoBelow === null && version === "0.9" ? [] : [veto(ratios, vetoBelow)]), // 0.7 logs it, asked for or not
  ];
  const metrics = Object.assign(
    {},
    weighted?.metrics,
    ...verdicts.map((verdict) => verdict.metrics),
    offPolicyMetrics(ratios),
  );
  return {
    mask: scatter(ratios, keptByAll(ratios, verdicts), mismatch.mask),
    weights: weighted === null ? null : scatter(ratios, weighted.weights, mismatch.mask),
    metrics: withPrefix(metrics),
  };
}

/**
 * The correction inside an update in bypass mode, `trainingLogprobs` being the current ones. With `ppo_clip` there are
 * no weights to apply: the ratio of the loss is current / rollout already. They are logged anyway.
 */
export function correctUpdate(mismatch: Mismatch, correction: Correction): Corrected {
  const corrected = correct(mismatch, correction);
  return correction.lossType === "ppo_clip" ? { ...corrected, weights: null } : corrected;
}

/** The off-policy metrics of log-probs, with the prefix `rollout_corr/`. */
export function correctionMetrics(mismatch: Mismatch): Metrics {
  return withPrefix(offPolicyMetrics(logRatios(mismatch)));
}

function withPrefix(metrics: Metrics): Metrics {
  return Object.fromEntries(Object.entries(metrics).map(([name, value]) => [`rollout_corr/${name}`, value]));
}
