/**
 * How many steps a run takes, and the loader that gives it its rows. Pure: the trainers and the dry run share it.
 *
 * `trainer.total_training_steps` counts before `trainer.total_epochs`. The last batch of an epoch is left out when it is
 * not full.
 */
import type { PpoConfig } from "../config/ppo/schema.ts";
import { groupFilter } from "../config/ppo/settings.ts";
import type { RewardConfig } from "../config/reward/schema.ts";
import type { SftConfig } from "../config/sft/schema.ts";
import { Loader } from "../data/loader.ts";

/** A loader at its first batch, and the number of steps of the whole run. */
export type Steps = { readonly loader: Loader; readonly totalSteps: number };

/** The steps of `trainyard ppo`. With a group filter, `data.gen_batch_size` prompts are sampled at a time. */
export function rlSteps(config: PpoConfig, prompts: number): Steps {
  const { data, trainer } = config;
  const generated = groupFilter(config) === null ? null : data.gen_batch_size;
  const loader = new Loader({
    rows: prompts,
    batchSize: generated ?? data.train_batch_size,
    shuffle: data.shuffle,
    seed: data.seed ?? trainer.seed,
    dropLast: true,
  });
  return { loader, totalSteps: totalStepsOf(trainer, loader) };
}

/** The steps of `trainyard sft` and `trainyard reward`, over rows or pairs. */
export function supervisedSteps({ data, trainer }: SftConfig | RewardConfig, rows: number): Steps {
  const { seed } = trainer;
  const loader = new Loader({ rows, batchSize: data.train_batch_size, shuffle: true, seed, dropLast: true });
  return { loader, totalSteps: totalStepsOf(trainer, loader) };
}

type Length = Pick<SftConfig["trainer"], "total_training_steps" | "total_epochs">;

function totalStepsOf({ total_training_steps: steps, total_epochs: epochs }: Length, loader: Loader): number {
  return steps ?? epochs * loader.batchesPerEpoch;
}
