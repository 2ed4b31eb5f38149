/**
 * Whether sampler and trainer agree: |pi_rollout - pi_actor| of the sampled tokens (verl's `calculate_debug_metrics`).
 *
 * `training/rollout_probs_diff_valid` is 1 when there was something to compare and 0, alone, when there was not.
 * Departure: the spread of one token, and a correlation where one side is constant, are absent, not NaN.
 */
import { checkFinite, checkRows, type Rows } from "../batch.ts";
import { countedEntries, covarianceOf, type Metrics, meanOf } from "./metrics.ts";

/** `training/rollout_probs_diff_*` and the correlation of the probabilities (arXiv:2506.13585). */
export function samplerAgreement({
  rolloutLogprobs,
  oldLogprobs,
  mask,
}: {
  readonly rolloutLogprobs: Rows;
  readonly oldLogprobs: Rows;
  readonly mask: Rows;
}): Metrics {
  for (const [name, rows] of Object.entries({ rolloutLogprobs, oldLogprobs })) {
    checkRows(name, rows, mask);
    checkFinite(name, rows, mask);
  }
  const sampled = countedEntries(rolloutLogprobs, mask).map(Math.exp);
  if (sampled.length === 0) return { "training/rollout_probs_diff_valid": 0 };
  const trained = countedEntries(oldLogprobs, mask).map(Math.exp);
  const gaps = sampled.map((p, i) => Math.abs(p - trained[i]!));
  const std = gaps.length < 2 ? null : Math.sqrt(covarianceOf(gaps, gaps));
  const spread = gaps.length < 2 ? 0 : Math.sqrt(covarianceOf(sampled, sampled) * covarianceOf(trained, trained));
  return {
    "training/rollout_probs_diff_valid": 1,
    "training/rollout_probs_diff_max": gaps.reduce((a, b) => Math.max(a, b)),
    "training/rollout_probs_diff_mean": meanOf(gaps)!,
    ...(std === null ? {} : { "training/rollout_probs_diff_std": std }),
    ...(spread > 0 ? { "training/rollout_actor_probs_pearson_corr": covarianceOf(sampled, trained) / spread } : {}),
  };
}
