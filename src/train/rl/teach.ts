/**
 * What the actor learns from a mini-batch: its loss, with what depends on the mini-batch as a whole or on the policy as
 * it is at that moment, namely the correction in bypass mode and what a policy loss prepares.
 */

import { correctUpdate } from "../../algos/correction/correct.ts";
import { actorLoss } from "../../algos/losses/actor-loss.ts";
import { findPolicyLoss } from "../../algos/losses/policy/registry.ts";
import type { PpoConfig } from "../../config/ppo/schema.ts";
import { actorSettings, correctionSettings } from "../../config/ppo/settings.ts";
import { Random } from "../../util/random.ts";
import type { Episode } from "./episode.ts";
import { isCorrecting, logprobsOf } from "./passes.ts";
import type { Scene } from "./scene.ts";
import type { Lesson } from "./update.ts";

type Class = {
  readonly step: number;
  readonly pupils: readonly Episode[];
  /** What is known of these rows for a loss. */
  readonly lesson: (rows: readonly number[], loss: Lesson["loss"]) => Lesson;
  /** Whether the whole batch has weights of rollout correction. */
  readonly isWeighted: boolean;
};

/** The teacher of one step: called for each mini-batch, just before it is learnt. */
export function actorTeacher(scene: Scene, { step, pupils, lesson, isWeighted }: Class) {
  const { config, roles } = scene;
  const settings = actorSettings(config);
  const correction = correctionSettings(config);
  const isCorrected = correction.isBypass && isCorrecting(correction);
  const policy = findPolicyLoss(settings.policy_loss.loss_mode);
  const lossOf = (hasRolloutWeights: boolean) => atTemperature(config, actorLoss(settings, { hasRolloutWeights }));
  let updates = 0;
  return async (rows: readonly number[]): Promise<Lesson> => {
    const plain = lesson(rows, lossOf(isWeighted));
    const { mask } = plain;
    const own = rows.map((row) => pupils[row]!);
    const isFirst = updates++ === 0; // until then the policy is the old one
    const isMoved = isCorrected || (policy.prepare !== undefined && !isFirst);
    const now = isMoved ? await logprobsOf(scene, roles.actor, "old_log_prob", { episodes: own, mask }) : null;

    const [oldLogprobs, advantages] = [plain.extra.oldLogprobs!, plain.extra.advantages!]; // every policy loss reads both
    const batch = { logprobs: now?.logprobs ?? oldLogprobs, oldLogprobs, advantages, mask };
    const random = new Random(config.trainer.seed, policy.name, step, updates);
    const extra = { ...plain.extra, ...policy.prepare?.(batch, settings, random) };
    if (!isCorrected || now === null) return { ...plain, extra };
    const rolloutLogprobs = own.map(({ logprobs }) => logprobs);
    const result = correctUpdate({ trainingLogprobs: now.logprobs, rolloutLogprobs, mask }, correction);
    return {
      ...result,
      extra: { ...extra, ...(result.weights && { rolloutWeights: result.weights }) },
      loss: lossOf(result.weights !== null),
    };
  };
}

/** A loss of the distribution that the sampler draws from. */
function atTemperature({ actor_rollout_ref: { rollout } }: PpoConfig, loss: Lesson["loss"]): Lesson["loss"] {
  const { temperature } = rollout;
  return { ...loss, key: `${loss.key} at ${temperature}`, temperature };
}
