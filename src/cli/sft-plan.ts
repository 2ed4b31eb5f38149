/** What a run of `trainyard sft` would be, for its `--dry-run`. */
import type { SftConfig } from "../config/sft/schema.ts";
import { resolveModel } from "../models/hub.ts";
import type { TrainContext } from "../train/context.ts";
import { sftPlan } from "../train/estimate/step-plan.ts";
import { supervisedSteps } from "../train/steps.ts";
import { loadExamples } from "../train/supervised/sft-data.ts";
import { counted } from "../util/format.ts";
import { firstBatches, meanLength, type RunPlanner, readModel, sayPlan, toValidate } from "./dry-run.ts";

/** Say what a run would be. */
export const planSft = (config: SftConfig, context: TrainContext): Promise<void> => sayPlan(planner, config, context);

const planner: RunPlanner<SftConfig> = {
  models: ({ model }) => [model.path, model.tokenizer_path],
  async plan(config, context) {
    const { data, trainer, model } = config;
    const folder = await resolveModel(model.path, context);
    const start = await readModel(folder, context);
    const { train, validation } = await loadExamples(config, folder, context);
    const { loader, totalSteps } = supervisedSteps(config, train.length);
    const batches = firstBatches(loader, totalSteps, data.train_batch_size).map((indices) =>
      indices.map((index) => train[index]!),
    );
    return {
      plan: sftPlan(config, start, batches),
      folder,
      totalSteps,
      trainer,
      sampler: {},
      rows: `${counted(train.length, "row")} of ${meanLength(batches.flat().map(({ ids }) => ids))} tokens${toValidate(validation)}`,
      steps: `${counted(totalSteps, "step")} of ${data.train_batch_size}`,
      assumptions: "Validation and saving come on top.",
    };
  },
};
