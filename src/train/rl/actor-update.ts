/**
 * What the actor's loss reads of a mini-batch: most of it is known of the whole batch. Two things depend on the policy at
 * the moment of the update, and are computed here: the rollout correction in bypass mode, and what a policy loss prepares.
 */
import { correctUpdate } from "../../algos/correction/correct.ts";
import { actorLoss } from "../../algos/losses/actor-loss.ts";
import { findPolicyLoss } from "../../algos/losses/policy/registry.ts";
import { actorSettings, correctionSettings } from "../../config/ppo/settings.ts";
import { Random } from "../../util/random.ts";
import type { RlContext } from "./context.ts";
import { rolloutLogprobsOf } from "./episode.ts";
import { isCorrecting, logprobsOf } from "./measure.ts";
import { withColumns } from "./train-batch.ts";
import type { MiniBatch, Prepare } from "./update.ts";

/** Prepares the mini-batches of the actor's update at a step. */
export function prepareActor(context: RlContext, step: number): Prepare {
  const { config, roles } = context;
  const settings = actorSettings(config);
  const correction = correctionSettings(config);
  const isCorrected = correction.isBypass && isCorrecting(correction);
  const policy = findPolicyLoss(settings.policy_loss.loss_mode);
  const { temperature } = config.actor_rollout_ref.rollout;
  /** The loss of the distribution that the sampler draws from. */
  const lossOf = (hasRolloutWeights: boolean): MiniBatch["loss"] => {
    const loss = actorLoss(settings, { hasRolloutWeights });
    return { ...loss, key: `${loss.key} at ${temperature}`, temperature };
  };
  return async (miniBatch, index) => {
    const { episodes, mask, columns } = miniBatch;
    // Until the first update of the step the policy is the old one.
    const hasMoved = policy.prepare !== undefined && index > 0;
    const now =
      isCorrected || hasMoved ? await logprobsOf(context, roles.actor, "old_log_prob", { episodes, mask }) : null;
    const [oldLogprobs, advantages] = [columns.oldLogprobs!, columns.advantages!]; // every batch of the actor has both
    const known = { logprobs: now?.logprobs ?? oldLogprobs, oldLogprobs, advantages, mask };
    const random = new Random(config.trainer.seed, policy.name, step, index + 1);
    const batch = withColumns(miniBatch, policy.prepare?.(known, settings, random) ?? {});
    if (!isCorrected || now === null) return { batch, loss: lossOf(columns.rolloutWeights !== undefined) };
    const rolloutLogprobs = rolloutLogprobsOf(episodes);
    const corrected = correctUpdate({ trainingLogprobs: now.logprobs, rolloutLogprobs, mask }, correction);
    return {
      batch: { ...withColumns(batch, { rolloutWeights: corrected.weights }), mask: corrected.mask },
      loss: lossOf(corrected.weights !== null),
      metrics: corrected.metrics,
    };
  };
}
