/**
 * Measure: passes of a step over its episodes that compute no gradient. Log-probs of the actor and the reference, the
 * critic's values, and how far the sampler's probabilities are from the trainer's.
 *
 * The sampler is the trainer: where it draws from the whole distribution with the trainer's weights, its log-probs are the
 * old ones and no pass computes them again. A few episodes of each step are computed again to check that, and the
 * difference is logged: `training/rollout_probs_diff_*` and `rollout_corr/*`. Both compare the sampler's log-probs with
 * log-probs that the trainer computed, never with themselves.
 */
import { findAdvantage } from "../../algos/advantages/registry.ts";
import type { Rows } from "../../algos/batch.ts";
import type { Correction } from "../../algos/correction/config.ts";
import { correctionMetrics } from "../../algos/correction/correct.ts";
import { samplerAgreement } from "../../algos/metrics/sampler-agreement.ts";
import type { PpoConfig } from "../../config/ppo/schema.ts";
import { correctionSettings, microBatching, samplingSettings } from "../../config/ppo/settings.ts";
import { roundsCoarsely } from "../../config/ray/ray.ts";
import type { HeadName, Model } from "../../engine/contract.ts";
import { UserError } from "../../util/errors.ts";
import type { Clock } from "../clock.ts";
import type { RlContext } from "./context.ts";
import { type Episode, masksOf, meanOver, responseRows, rolloutLogprobsOf, tokenRows } from "./episode.ts";
import { rowsToLog } from "./rollout-log.ts";

type Masked = { readonly episodes: readonly Episode[]; readonly mask: Rows };

/** What is known of a batch before advantages are estimated; every list has one row per episode. */
export type Measurements = {
  /** 1 where a token is trained on. */
  readonly mask: Rows;
  readonly rolloutLogprobs: Rows;
  /** Under the actor before the update; those of the sampler where it is trusted or where the correction bypasses the pass. */
  readonly oldLogprobs: Rows;
  readonly sumPiSquared: Rows | null;
  readonly refLogprobs: Rows | null;
  readonly values: Rows | null;
  /** Of the tokens whose log-probs the trainer computed; null for the other episodes. */
  readonly entropy: readonly (ArrayLike<number> | null)[];
  /** Which episodes are written to rollouts.jsonl. */
  readonly logged: readonly number[];
  readonly metrics: Record<string, number>;
};

/** The passes old_log_prob, ref and values, each where the config asks for it. */
export async function measure(
  context: RlContext,
  episodes: readonly Episode[],
  { step, clock }: { readonly step: number; readonly clock: Clock },
): Promise<Measurements> {
  const { config, roles } = context;
  const { actor, reference, critic } = roles;
  const mask = masksOf(episodes);
  const rolloutLogprobs = rolloutLogprobsOf(episodes);
  const isRecomputed = !correctionSettings(config).isBypass && !isSamplerTrusted(config, context.rollout);
  const old = isRecomputed
    ? await clock.time("old_log_prob", () => logprobsOf(context, actor, "old_log_prob", { episodes, mask }))
    : null;
  const logged = rowsToLog(config, episodes, `step ${step}`);
  const checked = await checkSampler(context, { episodes, mask, old, logged });
  const ref = reference && (await clock.time("ref", () => logprobsOf(context, reference, "ref", { episodes, mask })));
  const values = critic && (await clock.time("values", () => valuesOf(context, critic, { episodes, mask })));
  return {
    mask,
    rolloutLogprobs,
    oldLogprobs: old?.logprobs ?? rolloutLogprobs,
    sumPiSquared: old?.sumPiSquared ?? null,
    refLogprobs: ref?.logprobs ?? null,
    values: values ?? null,
    entropy: checked.entropy,
    logged,
    metrics: checked.metrics,
  };
}

/** What a pass gives. */
type Measured = {
  readonly logprobs: Rows;
  /** Of the actor only. */
  readonly entropy: Rows | null;
  /** Where the config asks for it. */
  readonly sumPiSquared: Rows | null;
  readonly metrics: Record<string, number>;
};

/** Log-probs of the responses under a model; under the actor also the entropy, for the metrics. */
export async function logprobsOf(
  { config, progress }: RlContext,
  model: Model,
  pass: "old_log_prob" | "ref",
  { episodes, mask }: Masked,
): Promise<Measured> {
  const hasSums = pass !== "ref" && needsSums(config);
  const own: readonly HeadName[] = hasSums ? ["entropy", "sumPiSquared"] : ["entropy"];
  const heads: readonly HeadName[] = ["logprobs", ...(pass === "ref" ? [] : own)];
  const { temperature } = config.actor_rollout_ref.rollout;
  const phase = pass === "ref" ? "reference log-probs" : "log-probs";
  const options = { micro: microBatching(config, pass), temperature, onMicroBatch: progress.phase(phase) };
  const outputs = await model.forward(tokenRows(episodes, mask), heads, options);
  const entropy = pass === "ref" ? null : responseRows(episodes, outputs, "entropy");
  const metrics: Record<string, number> = entropy === null ? {} : { "actor/entropy": meanOver(entropy, mask) };
  const sumPiSquared = hasSums ? responseRows(episodes, outputs, "sumPiSquared") : null;
  return { logprobs: responseRows(episodes, outputs, "logprobs"), entropy, sumPiSquared, metrics };
}

/** The critic's estimate at each response token. */
async function valuesOf({ config, progress }: RlContext, critic: Model, { episodes, mask }: Masked): Promise<Rows> {
  const options = { micro: microBatching(config, "values"), onMicroBatch: progress.phase("values") };
  return responseRows(episodes, await critic.forward(tokenRows(episodes, mask), ["values"], options), "values");
}

/** How many episodes are computed again to check the sampler, where no pass computes all of them. */
export const CHECKED = 8;

type Checked = Pick<Measurements, "entropy" | "metrics">;

/**
 * How far the sampler's probabilities are from the trainer's, and the entropy of the compared tokens: all where `old`
 * has them, else those of the first rows of `logged`.
 */
async function checkSampler(
  context: RlContext,
  { episodes, mask, old, logged }: Masked & { readonly old: Measured | null; readonly logged: readonly number[] },
): Promise<Checked> {
  const rows = old === null ? logged.slice(0, CHECKED) : [...episodes.keys()];
  const some = rows.map((row) => episodes[row]!);
  const seen = rows.map((row) => mask[row]!);
  const known = old ?? (await logprobsOf(context, context.roles.actor, "old_log_prob", { episodes: some, mask: seen }));
  const rolloutLogprobs = rolloutLogprobsOf(some);
  const entropy: (ArrayLike<number> | null)[] = episodes.map(() => null);
  rows.forEach((row, i) => {
    entropy[row] = known.entropy?.[i] ?? null;
  });
  const agreement = samplerAgreement({ rolloutLogprobs, oldLogprobs: known.logprobs, mask: seen });
  checkAgreement(context, agreement);
  const hasTokens = agreement["training/rollout_probs_diff_valid"] === 1;
  const offPolicy = hasTokens
    ? correctionMetrics({ trainingLogprobs: known.logprobs, rolloutLogprobs, mask: seen })
    : {};
  return { metrics: { ...known.metrics, ...agreement, ...offPolicy }, entropy };
}

/** A larger difference of a token's probability cannot come from single precision: most are below 1e-5. */
const EXACT = 1e-3;

/** End the run, before it learns from them, if the samples come from other weights than the trainer's. */
function checkAgreement({ config, rollout }: RlContext, agreement: Readonly<Record<string, number>>): void {
  const gap = agreement["training/rollout_probs_diff_max"] ?? 0;
  if (!rollout.isExact || roundsCoarsely(config) || !isUncut(config) || gap <= EXACT) return;
  throw new UserError(
    `The server that samples gives tokens other probabilities than the trainer, by up to ${gap.toPrecision(2)} where both compute in ` +
      `single precision (at most ${EXACT}): it does not sample from the weights that it was sent. Check that no other run ` +
      "sends it weights, and what its log says about loading them. The last checkpoint is not affected.",
  );
}

/** Whether tokens are drawn from all of the distribution. */
function isUncut(config: PpoConfig): boolean {
  const { temperature = 1, topK = -1, topP = 1 } = samplingSettings(config, "train");
  return temperature > 0 && topK <= 0 && topP === 1;
}

/** Whether a correction does anything at all. */
export function isCorrecting({ importance, rejections, vetoBelow }: Correction): boolean {
  return importance !== null || rejections.length > 0 || vetoBelow !== null;
}

/** Whether the sampler's log-probs are the trainer's own: the same weights, and nothing cut off the distribution. */
export function isSamplerTrusted(config: PpoConfig, rollout: Pick<RlContext["rollout"], "isActor">): boolean {
  const { recompute_old_log_prob: isForced, calculate_entropy: hasEntropy } = config.actor_rollout_ref.actor;
  const asks = isForced || hasEntropy || needsSums(config) || isCorrecting(correctionSettings(config));
  return rollout.isActor && isUncut(config) && !asks;
}

/** The estimator needs the sums, or the user wants the metrics that are made of them. */
const needsSums = ({ algorithm, actor_rollout_ref: { actor } }: PpoConfig): boolean =>
  actor.calculate_sum_pi_squared || findAdvantage(algorithm.adv_estimator).needs.includes("sumPiSquared");
