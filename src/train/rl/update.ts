/**
 * Update a model from a batch of episodes: `ppo_epochs` passes, an optimizer step for each mini-batch.
 *
 * Losses are divided by counts of the mini-batch, so micro-batches do not change the result. The metrics of mini-batches
 * are reduced as in verl: a name with `max` or `min` keeps the largest or smallest value, others are means. The learning
 * rate of a role depends on how often it was updated, not on the step: `trainer.critic_warmup` delays the actor's schedule.
 */
import { batchScalars } from "../../algos/losses/aggregate.ts";
import { reduceMetrics } from "../../algos/metrics/metrics.ts";
import type { PpoConfig } from "../../config/ppo/schema.ts";
import { microBatching } from "../../config/ppo/settings.ts";
import type { MicroBatching, Model, OnMicroBatch, OptimizerStep, TokenLoss } from "../../engine/contract.ts";
import { Random } from "../../util/random.ts";
import { optimizerStep } from "../optimizer.ts";
import type { OnSkipped } from "../skipped-updates.ts";
import type { RlContext } from "./context.ts";
import { rowsFor, selectRows, type TrainBatch } from "./train-batch.ts";

/** What a mini-batch is trained with. */
export type MiniBatch = {
  readonly batch: TrainBatch;
  readonly loss: TokenLoss;
  /** What was measured to prepare it. */
  readonly metrics?: Readonly<Record<string, number>>;
};

/** Gives a mini-batch its loss and what the loss reads, just before the update; `index` counts the updates of a step. */
export type Prepare = (miniBatch: TrainBatch, index: number) => Promise<MiniBatch>;

type UpdateOptions = {
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
};

export type UpdateResult = { readonly metrics: Record<string, number>; readonly hasSkipped: boolean };

type Updating = {
  readonly model: Model;
  readonly step: number;
  readonly prepare: Prepare;
  /** Called with an update that changed nothing, before the next one. */
  readonly onSkipped: OnSkipped;
};

/** Update a role of the run on a batch. */
export async function update(
  context: RlContext,
  name: "actor" | "critic",
  batch: TrainBatch,
  { model, step, prepare, onSkipped }: Updating,
): Promise<UpdateResult> {
  const options = updateOptions(context, name, step);
  const { micro, optimizer, onMicroBatch } = options;
  const measured: Record<string, number[]> = {};
  let hasSkipped = false;
  for (const [index, rows] of miniBatches(batch.episodes.length, options).entries()) {
    const { batch: miniBatch, loss, metrics: known } = await prepare(selectRows(batch, rows), index);
    const tokens = rowsFor(miniBatch, loss);
    const scalars = batchScalars(miniBatch.mask, options.responseLength);
    const { loss: total, ...metrics } = await model.train(tokens, loss, { micro, scalars, onMicroBatch });
    const { gradNorm, isSkipped } = await model.step(optimizer);
    const all = { ...known, ...metrics, [`${name}/loss`]: total!, [`${name}/grad_norm`]: gradNorm };
    for (const [key, value] of Object.entries(all)) measured[key] = [...(measured[key] ?? []), value];
    if (!isSkipped) continue;
    hasSkipped = true;
    await onSkipped({ role: name, model, gradNorm, loss: loss.key, scalars, rows: tokens });
  }
  return { metrics: { ...reduceMetrics(measured), [`${name}/lr`]: optimizer.lr }, hasSkipped };
}

/** The rows of each mini-batch, over all epochs. */
function miniBatches(
  count: number,
  { miniBatch, epochs, shuffleSeed }: Pick<UpdateOptions, "miniBatch" | "epochs" | "shuffleSeed">,
): number[][] {
  const all: number[][] = [];
  for (let epoch = 0; epoch < epochs; epoch++) {
    const order =
      shuffleSeed === null
        ? Array.from({ length: count }, (_, row) => row)
        : [...new Random(shuffleSeed, "mini-batches", epoch).permutation(count)];
    for (let start = 0; start < count; start += miniBatch) all.push(order.slice(start, start + miniBatch));
  }
  return all;
}

/** Which update of a role a step makes, counted from 1: the critic is updated in every step, the actor after the warm-up. */
function updateNumber({ trainer }: PpoConfig, name: "actor" | "critic", step: number): number {
  return name === "actor" ? step - Math.max(1, trainer.critic_warmup) + 1 : step;
}

/** How the config says that a role is updated at a step. */
function updateOptions(
  { config, progress, totalSteps }: RlContext,
  name: "actor" | "critic",
  step: number,
): UpdateOptions {
  const { rollout } = config.actor_rollout_ref;
  const role = name === "actor" ? config.actor_rollout_ref.actor : config.critic;
  const seed = role.data_loader_seed ?? config.trainer.seed;
  return {
    name,
    miniBatch: role.ppo_mini_batch_size * rollout.n,
    epochs: role.ppo_epochs,
    shuffleSeed: role.shuffle ? new Random(seed, name, step).bits() : null,
    micro: microBatching(config, name),
    responseLength: rollout.response_length,
    optimizer: optimizerStep(role.optim, {
      step: updateNumber(config, name, step),
      totalSteps,
      maxNorm: role.grad_clip,
    }),
    onMicroBatch: progress.phase(`updating the ${name}`),
  };
}
