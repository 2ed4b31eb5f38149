/**
 * How much of a gradient is signal and how much is noise, from what a step computes anyway (verl's variance proxies).
 *
 * The squared norm of one episode's gradient is about A^2 W, where A is its mean advantage and
 * W = sum over tokens of (1 - 2 pi(token) + sum of pi^2) is the squared norm of the score at the logits. With importance
 * weights rho it is rho^2 A^2 W, rho their mean over the episode.
 *
 * Departures: episodes without a counted token are left out, where verl counts them as zeros; without a gradient norm
 * the proxies that need it are absent, where verl reports 0, and so is the noise of a single episode.
 */
import { maskedMean, maskedSum } from "../../util/statistics.ts";
import { checkFinite, checkRows, type Rows } from "../batch.ts";
import { checkNumbers, type Metrics, meanOf } from "./metrics.ts";

export type VarianceBatch = {
  readonly mask: Rows;
  /** Log-probs of the policy that the update starts from. */
  readonly oldLogprobs: Rows;
  /** Sum over the vocabulary of squared probabilities, for each token. */
  readonly sumPiSquared: Rows;
  readonly advantages: Rows;
  /** Weights of rollout correction, if there are any. */
  readonly weights?: Rows;
};

/** `variance_proxy/*` of a batch; `gradNorm` is that of the actor's update. */
export function varianceProxies(batch: VarianceBatch, gradNorm: number | null): Metrics {
  for (const name of ["oldLogprobs", "sumPiSquared", "advantages", "weights"] as const) {
    const rows = batch[name];
    if (rows === undefined) continue;
    checkRows(name, rows, batch.mask);
    checkFinite(name, rows, batch.mask);
  }
  const episodes = batch.mask.flatMap((mask, row) => (isEmpty(mask) ? [] : [episodeOf(batch, row)]));
  if (episodes.length === 0) return {};

  const mean = (of: (episode: Episode) => number) => meanOf(episodes.map(of))!;
  const power = mean(({ advantage, scoreNorm, weight }) => weight ** 2 * advantage ** 2 * Math.max(0, scoreNorm));
  const metrics: Record<string, number> = {
    "variance_proxy/proxy2_total_power": power,
    "variance_proxy/expected_a_squared": mean(({ advantage }) => advantage ** 2),
    "variance_proxy/expected_w": mean(({ weightedNorm }) => weightedNorm),
  };
  if (gradNorm !== null) {
    checkNumbers("gradNorm", [gradNorm]);
    const signal = gradNorm ** 2;
    metrics["variance_proxy/proxy1_signal_strength"] = signal;
    if (episodes.length > 1)
      metrics["variance_proxy/proxy3_pure_noise"] = Math.max(0, (power - signal) / (episodes.length - 1));
  }
  return metrics;
}

type Episode = {
  readonly advantage: number;
  /** W, of tokens whose weight is not 0. */
  readonly scoreNorm: number;
  /** The same with each token times its squared weight. */
  readonly weightedNorm: number;
  readonly weight: number;
};

function episodeOf(batch: VarianceBatch, row: number): Episode {
  const mask = batch.mask[row]!;
  const [logprobs, squares, weights] = [batch.oldLogprobs[row]!, batch.sumPiSquared[row]!, batch.weights?.[row]];
  const norms = Float64Array.from({ length: mask.length }, (_, t) => 1 - 2 * Math.exp(logprobs[t]!) + squares[t]!);
  const advantage = maskedMean(batch.advantages[row]!, mask);
  if (weights === undefined) {
    const scoreNorm = maskedSum(norms, mask);
    return { advantage, scoreNorm, weightedNorm: scoreNorm, weight: 1 };
  }
  return {
    advantage,
    scoreNorm: maskedSum(
      norms.map((norm, t) => (weights[t] === 0 ? 0 : norm)),
      mask,
    ),
    weightedNorm: maskedSum(
      norms.map((norm, t) => norm * weights[t]! ** 2),
      mask,
    ),
    weight: maskedMean(weights, mask),
  };
}

function isEmpty(mask: ArrayLike<number>): boolean {
  for (let t = 0; t < mask.length; t++) if (mask[t] !== 0) return false;
  return true;
}
