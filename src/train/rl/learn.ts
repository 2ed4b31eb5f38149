/** Learn: a batch of episodes becomes an update of the critic and of the actor, in verl's order. */

import { totals } from "../../algos/advantages/token-rows.ts";
import type { KlControl } from "../../algos/kl/control.ts";
import { valueLoss } from "../../algos/losses/value-loss.ts";
import { dataMetrics } from "../../algos/metrics/data-metrics.ts";
import { varianceProxies } from "../../algos/metrics/variance-proxy.ts";
import type { PpoConfig } from "../../config/ppo/schema.ts";
import { criticSettings, rowSelection } from "../../config/ppo/settings.ts";
import { Random } from "../../util/random.ts";
import type { Clock } from "../clock.ts";
import type { OnSkipped } from "../skipped-updates.ts";
import { prepareActor } from "./actor-update.ts";
import { type Estimate, estimateAdvantages } from "./advantages.ts";
import type { RlContext } from "./context.ts";
import { type Episode, promptLength, responseLength, turnCount } from "./episode.ts";
import { type Measurements, measure } from "./measure.ts";
import type { RolloutLog } from "./rollout-log.ts";
import { selectRows, type TrainBatch, withColumns } from "./train-batch.ts";
import { update } from "./update.ts";

export type Learnt = {
  readonly metrics: Record<string, number>;
  /** The KL controller for the next step. */
  readonly klControl: KlControl;
  /** Whether an update had no finite gradient and changed nothing. */
  readonly hasSkipped: boolean;
  /** What rollouts.jsonl gets of the step. */
  readonly log: RolloutLog;
};

type LearnOptions = {
  readonly step: number;
  /** Rewards of greedy responses, where the estimator needs them. */
  readonly baselines: readonly number[] | null;
  readonly klControl: KlControl;
  readonly onSkipped: OnSkipped;
  readonly clock: Clock;
};

/** Train on a batch: old_log_prob, ref, values, adv, update_critic, update_actor. */
export async function learn(
  context: RlContext,
  episodes: readonly Episode[],
  { step, baselines, klControl, onSkipped, clock }: LearnOptions,
): Promise<Learnt> {
  const { config } = context;
  const { actor, critic } = context.roles;
  const measured = await measure(context, episodes, { step, clock });
  const estimate = await clock.time("adv", async () =>
    estimateAdvantages(config, episodes, { measured, baselines, klControl }),
  );
  const batch = trainBatch(config, episodes, { measured, estimate, step });
  const metrics = { ...measured.metrics, ...estimate.metrics, ...batchMetrics(config, episodes, measured, estimate) };

  let hasSkipped = false;
  if (critic !== undefined) {
    const loss = valueLoss(criticSettings(config));
    const prepare = async (miniBatch: TrainBatch) => ({ batch: miniBatch, loss });
    const updated = await clock.time("update_critic", () =>
      update(context, "critic", batch, { model: critic, step, prepare, onSkipped }),
    );
    Object.assign(metrics, updated.metrics);
    hasSkipped ||= updated.hasSkipped;
  }
  if (step >= config.trainer.critic_warmup) {
    const prepare = prepareActor(context, step);
    const updated = await clock.time("update_actor", () =>
      update(context, "actor", batch, { model: actor, step, prepare, onSkipped }),
    );
    Object.assign(metrics, updated.metrics, klCoefficient(config));
    hasSkipped ||= updated.hasSkipped;
  }
  Object.assign(metrics, gradientVariance(measured, estimate, metrics["actor/grad_norm"]));
  const { advantages } = estimate;
  const log = { logged: measured.logged, advantages, entropy: measured.entropy };
  return { metrics, klControl: estimate.klControl, hasSkipped, log };
}

/** `actor/kl_coef`, where the loss has a KL. */
function klCoefficient({ actor_rollout_ref: { actor } }: PpoConfig): Record<string, number> {
  return actor.use_kl_loss ? { "actor/kl_coef": actor.kl_loss_coef } : {};
}

/** `variance_proxy/*`, where the sums of squared probabilities are measured; `gradNorm` is that of the actor's update. */
function gradientVariance(
  { oldLogprobs, sumPiSquared }: Measurements,
  { mask, advantages, rolloutWeights }: Estimate,
  gradNorm: number | undefined,
): Record<string, number> {
  if (sumPiSquared === null) return {};
  const batch = { mask, oldLogprobs, sumPiSquared, advantages, ...(rolloutWeights && { weights: rolloutWeights }) };
  const hasNorm = gradNorm !== undefined && Number.isFinite(gradNorm); // a skipped update has none
  return { ...varianceProxies(batch, hasNorm ? gradNorm : null) };
}

type Known = { readonly measured: Measurements; readonly estimate: Estimate; readonly step: number };

/** What the updates are computed from. */
function trainBatch(config: PpoConfig, episodes: readonly Episode[], { measured, estimate, step }: Known): TrainBatch {
  const { scores, mask, advantages, returns, rolloutWeights } = estimate;
  const { oldLogprobs, refLogprobs, values } = measured;
  const batch = withColumns(
    { episodes, mask, columns: {} },
    { oldLogprobs, refLogprobs, oldValues: values, advantages, returns, rolloutWeights },
  );
  const { name, select } = rowSelection(config); // by the scores, without the KL penalty
  return selectRows(batch, select(totals(scores), new Random(config.trainer.seed, name, step)));
}

/** Metrics of the batch; an episode without a score is left out, since a score of 0 would be wrong. */
function batchMetrics(
  config: PpoConfig,
  episodes: readonly Episode[],
  { values }: Measurements,
  { mask, scores, rewards, advantages, returns }: Estimate,
): Record<string, number> {
  const { prompt_length: maxPromptLength, response_length: maxResponseLength } = config.actor_rollout_ref.rollout;
  const scored = <T>(list: readonly T[]): T[] => list.filter((_, row) => episodes[row]!.score !== null);
  return dataMetrics(
    {
      mask: scored(mask),
      scores: scored(scores),
      rewards: scored(rewards),
      advantages: scored(advantages),
      returns: scored(returns),
      promptLengths: scored(episodes).map(promptLength),
      responseLengths: scored(episodes).map(responseLength),
      turns: scored(episodes).map(turnCount),
      ...(values && { values: scored(values) }),
    },
    { maxPromptLength, maxResponseLength },
  );
}
