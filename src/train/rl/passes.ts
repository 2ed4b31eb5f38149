/** Passes of a step over its episodes that only measure: log-probs, entropy, values, and the check of the sampler. */
import { findAdvantage } from "../../algos/advantages/registry.ts";
import type { Rows } from "../../algos/batch.ts";
import type { Correction } from "../../algos/correction/config.ts";
import { samplerAgreement } from "../../algos/metrics/sampler-agreement.ts";
import type { PpoConfig } from "../../config/ppo/schema.ts";
import { correctionSettings, microBatching, samplingSettings } from "../../config/ppo/settings.ts";
import { roundsCoarsely } from "../../config/ray/ray.ts";
import type { HeadName, Model } from "../../engine/contract.ts";
import { UserError } from "../../util/errors.ts";
import { type Episode, meanOver, responseRows, tokenRows } from "./episode.ts";
import type { Scene } from "./scene.ts";

type Batch = { readonly episodes: readonly Episode[]; readonly mask: Rows };

export type Measured = {
  readonly logprobs: Rows;
  /** Of the actor only. */
  readonly entropy: Rows | null;
  /** Where the estimator needs it. */
  readonly sumPiSquared: Rows | null;
  readonly metrics: Record<string, number>;
};

/** Log-probs of the responses under a model; of the actor's own with the entropy, for the metrics. */
export async function logprobsOf(
  { config, progress }: Scene,
  model: Model,
  pass: "old_log_prob" | "ref",
  { episodes, mask }: Batch,
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
export async function valuesOf({ config, progress }: Scene, critic: Model, { episodes, mask }: Batch): Promise<Rows> {
  const options = { micro: microBatching(config, "values"), onMicroBatch: progress.phase("values") };
  return responseRows(episodes, await critic.forward(tokenRows(episodes, mask), ["values"], options), "values");
}

/** Episodes whose log-probs are computed anew to check the sampler, where they are not all computed anyway. */
export const CHECKED = 8;

export type Checked = {
  readonly metrics: Record<string, number>;
  /** Of the tokens looked at; null for the other episodes. */
  readonly entropy: readonly (ArrayLike<number> | null)[];
};

/**
 * How far the sampler's probabilities are from the trainer's, and the entropy of the tokens looked at: all where `old`
 * has them, else those of the first of the rows `watched`.
 */
export async function checkSampler(
  scene: Scene,
  { episodes, mask, old, watched }: Batch & { readonly old: Measured | null; readonly watched: readonly number[] },
): Promise<Checked> {
  const rows = old === null ? watched.slice(0, CHECKED) : [...episodes.keys()];
  const some = rows.map((row) => episodes[row]!);
  const seen = rows.map((row) => mask[row]!);
  const known = old ?? (await logprobsOf(scene, scene.roles.actor, "old_log_prob", { episodes: some, mask: seen }));
  const rolloutLogprobs = some.map(({ logprobs }) => logprobs);
  const entropy: (ArrayLike<number> | null)[] = episodes.map(() => null);
  rows.forEach((row, i) => {
    entropy[row] = known.entropy?.[i] ?? null;
  });
  const agreement = samplerAgreement({ rolloutLogprobs, oldLogprobs: known.logprobs, mask: seen });
  checkAgreement(scene, agreement);
  return { metrics: { ...known.metrics, ...agreement }, entropy };
}

/** The largest difference of a token's probability that single precision explains, with room: most are below 1e-5. */
const EXACT = 1e-3;

/** Before anything is learnt from them: samples of other weights than the trainer's end the run. */
function checkAgreement({ config, player }: Scene, agreement: Readonly<Record<string, number>>): void {
  const gap = agreement["training/rollout_probs_diff_max"] ?? 0;
  if (!player.isExact || roundsCoarsely(config) || !isUncut(config) || gap <= EXACT) return;
  throw new UserError(
    `The server that samples gives tokens other probabilities than the trainer, by up to ${gap.toPrecision(2)} where both compute in ` +
      `single precision (at most ${EXACT}): it does not sample from the weights that it was given. Check that no other run ` +
      "gives it weights, and what its log says about loading them. The last checkpoint is as it was.",
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

type Trust = Pick<Scene, "config"> & { readonly player: Pick<Scene["player"], "isActor"> };

/** Whether the sampler's log-probs are the trainer's own: the same weights, and nothing cut off the distribution. */
export function isSamplerTrusted({ config, player }: Trust): boolean {
  const { recompute_old_log_prob: isForced, calculate_entropy: hasEntropy } = config.actor_rollout_ref.actor;
  const asks = isForced || hasEntropy || needsSums(config) || isCorrecting(correctionSettings(config));
  return player.isActor && isUncut(config) && !asks;
}

const needsSums = ({ algorithm }: PpoConfig): boolean =>
  findAdvantage(algorithm.adv_estimator).needs.includes("sumPiSquared");
