/** What a run of `trainyard reward` would be, for its `--dry-run`. */
import type { RewardConfig } from "../config/reward/schema.ts";
import { resolveModel } from "../models/hub.ts";
import type { TrainContext } from "../train/context.ts";
import { rewardPlan } from "../train/estimate/step-plan.ts";
import { supervisedSteps } from "../train/steps.ts";
import { loadPairs } from "../train/supervised/preference-data.ts";
import { counted } from "../util/format.ts";
import { firstBatches, meanLength, type RunPlanner, readModel, sayPlan, toValidate } from "./dry-run.ts";

/** Say what a run would be. */
export const planReward = (config: RewardConfig, context: TrainContext): Promise<void> =>
  sayPlan(planner, config, context);

const planner: RunPlanner<RewardConfig> = {
  models: ({ model }) => [model.path, model.tokenizer_path],
  async plan(config, context) {
    const { data, trainer, model } = config;
    const folder = await resolveModel(model.path, context);
    const start = await readModel(folder, context);
    const { train, validation } = await loadPairs(config, { folder, model: start }, context);
    const { loader, totalSteps } = supervisedSteps(config, train.length);
    const batches = firstBatches(loader, totalSteps, data.train_batch_size).map((indices) =>
      indices.flatMap((index) => [train[index]!.chosen, train[index]!.rejected]),
    );
    return {
      plan: rewardPlan(config, start, batches),
      folder,
      totalSteps,
      trainer,
      sampler: {},
      rows: `${counted(train.length, "pair")} of ${meanLength(batches.flat())} tokens a side${toValidate(validation)}`,
      steps: `${counted(totalSteps, "step")} of ${data.train_batch_size}`,
      assumptions: "Validation and saving come on top.",
    };
  },
};
