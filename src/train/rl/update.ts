/**
 * One update of a model from a batch of episodes: `ppo_epochs` passes, an optimizer step for each mini-batch.
 *
 * Losses are divided by counts of the mini-batch, so micro-batches do not change the result. A metric is the mean over
 * the mini-batches that have it, as verl reduces them.
 */

import type { Rows } from "../../algos/batch.ts";
import { batchScalars } from "../../algos/losses/aggregate.ts";
import { meanOf } from "../../algos/metrics/metrics.ts";
import { microBatching } from "../../config/ppo/settings.ts";
import type { MicroBatching, Model, OnMicroBatch, OptimizerStep, TokenLoss, TokenRow } from "../../engine/contract.ts";
import { learningRate } from "../../nn/schedule.ts";
import { Random } from "../../util/random.ts";
import { scheduleOf } from "../course.ts";
import { type Episode, tokenRows } from "./episode.ts";
import type { Scene, Skipped } from "./scene.ts";

/** What a mini-batch learns from: one row per episode in every list. */
export type Lesson = {
  readonly mask: Rows;
  readonly extra: Readonly<Record<string, Rows | undefined>>;
  /** What was measured to make the lesson. */
  readonly metrics?: Readonly<Record<string, number>>;
  readonly loss: TokenLoss;
};

export type UpdateOptions = {
  readonly name: "actor" | "critic";
  /** Episodes per optimizer step. */
  readonly miniBatch: number;
  readonly epochs: number;
  /** Cut mini-batches from a random order with this seed; null keeps the order. */
  readonly shuffleSeed: number | null;
  readonly micro: MicroBatching;
  readonly responseLength: number;
  readonly optimizer: OptimizerStep;
  readonly onMicroBatch: OnMicroBatch;
  /** Called with an update that changed nothing, before the next one. */
  readonly onSkipped: (skipped: Skipped) => Promise<void>;
};

export type UpdateResult = { readonly metrics: Record<string, number>; readonly skipped: number };

/** Train on the episodes; `teach` says what the mini-batch of these episodes learns, just before it does. */
export async function update(
  model: Model,
  episodes: readonly Episode[],
  teach: (rows: readonly number[]) => Promise<Lesson>,
  options: UpdateOptions,
): Promise<UpdateResult> {
  const { name, miniBatch, epochs, shuffleSeed, micro, responseLength, optimizer, onMicroBatch } = options;
  const measured = new Map<string, number[]>();
  let skipped = 0;
  for (let epoch = 0; epoch < epochs; epoch++) {
    const order =
      shuffleSeed === null
        ? [...episodes.keys()]
        : [...new Random(shuffleSeed, "mini-batches", epoch).permutation(episodes.length)];
    for (let start = 0; start < order.length; start += miniBatch) {
      const rows = order.slice(start, start + miniBatch);
      const { mask, extra, loss, metrics: known } = await teach(rows);
      const batch = tokenRows(
        rows.map((row) => episodes[row]!),
        mask,
        extra,
      );
      const scalars = batchScalars(mask, responseLength);
      const { loss: total, ...metrics } = await model.train(batch, loss, { micro, scalars, onMicroBatch });
      const { gradNorm, isSkipped } = await model.step(optimizer);
      const learnt = { ...known, ...metrics, [`${name}/loss`]: total!, [`${name}/grad_norm`]: gradNorm };
      for (const [key, value] of Object.entries(learnt)) measured.set(key, [...(measured.get(key) ?? []), value]);
      if (!isSkipped) continue;
      skipped++;
      await options.onSkipped({ role: name, model, gradNorm, loss: loss.key, scalars, rows: batch });
    }
  }
  const metrics = Object.fromEntries([...measured].map(([key, values]) => [key, meanOf(values)!]));
  return { metrics: { ...metrics, [`${name}/lr`]: optimizer.lr }, skipped };
}

/** A row as JSON holds it; a number that is not finite becomes null there. */
export const plainRow = ({ ids, mask, extra = {} }: TokenRow) => ({
  ids: [...ids],
  mask: Array.from(mask),
  extra: Object.fromEntries(Object.entries(extra).map(([name, values]) => [name, Array.from(values)])),
});

/** How the config says that a role is updated at a step. */
export function updateOptions(
  { config, progress, totalSteps, keepSkipped }: Scene,
  name: "actor" | "critic",
  step: number,
): UpdateOptions {
  const { rollout } = config.actor_rollout_ref;
  const role = name === "actor" ? config.actor_rollout_ref.actor : config.critic;
  const { betas, weight_decay: weightDecay } = role.optim;
  const seed = role.data_loader_seed ?? config.trainer.seed;
  return {
    name,
    miniBatch: role.ppo_mini_batch_size * rollout.n,
    epochs: role.ppo_epochs,
    shuffleSeed: role.shuffle ? new Random(seed, name, step).bits() : null,
    micro: microBatching(config, name),
    responseLength: rollout.response_length,
    optimizer: {
      lr: learningRate(scheduleOf(role.optim, totalSteps), step - 1),
      betas,
      eps: 1e-8,
      weightDecay,
      maxNorm: role.grad_clip,
    },
    onMicroBatch: progress.phase(`updating the ${name}`),
    onSkipped: (skipped) => keepSkipped(step, skipped),
  };
}
