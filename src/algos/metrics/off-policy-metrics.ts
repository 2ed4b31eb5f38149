/**
 * How far apart two policies are, seen from the tokens that one of them sampled: perplexities, KL, chi-squared.
 *
 * With the log-ratio l = ln(train / rollout): kl = mean(-l) estimates KL(rollout || train), k3_kl = mean(e^l - l - 1) the
 * same with less variance, chi2 = mean(e^2l) - 1 the variance of importance weights. Means are over the tokens that
 * count, or over rows (perplexities, log_ppl_*, ppl_ratio, chi2_seq).
 *
 * Departures from verl: rows without a token that counts are left out (verl counts them as perplexity 1). Where verl
 * does not bound an exponent (perplexities, ppl_ratio, k3_kl), it is cut off where single precision overflows, so that
 * a run's metrics stay numbers.
 */
import { boundedExp, type LogRatios, maxOf, meanOf, minOf, overRows, SAFETY_BOUND } from "../correction/log-ratios.ts";
import type { Metrics } from "./metrics.ts";

/** ln of the largest single-precision number, rounded down: what verl can still write as a number. */
const OVERFLOW = 88;
const exp = (value: number): number => Math.exp(Math.min(value, OVERFLOW));

/** All off-policy metrics, without the prefix `rollout_corr/`. */
export function offPolicyMetrics(ratios: LogRatios): Metrics {
  const { values, trainingMeans, rolloutMeans } = ratios;
  const difference = rolloutMeans.map((mean, i) => mean - trainingMeans[i]!);
  return {
    ...perplexities("training", trainingMeans),
    ...perplexities("rollout", rolloutMeans),
    ...tokenDivergences(values),
    log_ppl_diff: meanOf(difference),
    log_ppl_abs_diff: meanOf(difference.map(Math.abs)),
    log_ppl_diff_max: maxOf(difference),
    log_ppl_diff_min: minOf(difference),
    ppl_ratio: meanOf(difference.map(exp)),
    chi2_seq: meanOf(overRows(ratios, values, "sum").map((sum) => boundedExp(sum) ** 2)) - 1,
  };
}

/** From the mean log-prob of each row. */
function perplexities(name: "training" | "rollout", means: Float64Array): Metrics {
  const logs = means.map((mean) => 0 - mean);
  return { [`${name}_ppl`]: meanOf(logs.map(exp)), [`${name}_log_ppl`]: meanOf(logs) };
}

function tokenDivergences(values: Float64Array): { kl: number; k3_kl: number; chi2_token: number } {
  let [sum, k3, square] = [0, 0, 0];
  for (let k = 0; k < values.length; k++) {
    const l = values[k]!;
    const weight = boundedExp(l);
    sum -= l;
    k3 += Math.max((Math.abs(l) <= SAFETY_BOUND ? weight : exp(l)) - l - 1, 0); // below 0 by rounding only
    square += weight * weight;
  }
  return { kl: sum / values.length, k3_kl: k3 / values.length, chi2_token: square / values.length - 1 };
}
