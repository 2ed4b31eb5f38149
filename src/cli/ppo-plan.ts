/** What a run of `trainyard ppo` would be, for its `--dry-run`. */

import { modelParts } from "../config/ppo/reward-tree.ts";
import type { PpoConfig } from "../config/ppo/schema.ts";
import type { TrainContext } from "../train/context.ts";
import { rlPlan } from "../train/estimate/step-plan.ts";
import { fetchChangedModel } from "../train/fetch-model.ts";
import { loadPrompts } from "../train/rl/prompts.ts";
import { samplerLimits } from "../train/rl/roles.ts";
import { rlSteps } from "../train/steps.ts";
import { counted } from "../util/format.ts";
import { firstBatches, meanLength, type RunPlanner, readModel, sayPlan, toValidate } from "./dry-run.ts";

/** Say what a run would be. */
export const planRl = (config: PpoConfig, context: TrainContext): Promise<void> => sayPlan(planner, config, context);

const planner: RunPlanner<PpoConfig> = {
  models: (config) => [
    config.actor_rollout_ref.model.path,
    config.actor_rollout_ref.model.tokenizer_path,
    ...(config.critic.enable ? [config.critic.model.path, config.critic.model.tokenizer_path] : []),
    ...modelParts(config).map(({ model }) => model.model.path),
  ],
  async plan(config, context) {
    const { train, validation, folder } = await loadPrompts(config, context);
    const { data, trainer } = config;
    const { rollout } = config.actor_rollout_ref;
    const { loader, totalSteps } = rlSteps(config, train.length);
    const batches = firstBatches(loader, totalSteps, data.train_batch_size * rollout.n).map((indices) =>
      indices.slice(0, data.train_batch_size).map((index) => train[index]!.ids),
    );
    const models = {
      actor: await readModel(folder, context),
      critic: config.critic.enable
        ? await readModel(await fetchChangedModel(config.critic.model, context), context)
        : null,
      rewardModels: await Promise.all(
        modelParts(config).map(async (part) => ({ part, config: await readModel(part.model.model.path!, context) })),
      ),
    };
    const hasServers = (rollout.base_url ?? []).length > 0;
    return {
      plan: rlPlan(config, models, batches),
      folder,
      totalSteps,
      trainer,
      sampler: samplerLimits(config),
      rows: `${counted(train.length, "prompt")} of ${meanLength(batches.flat())} tokens${toValidate(validation)}`,
      steps: `${counted(totalSteps, "step")} of ${data.train_batch_size} x ${rollout.n}`,
      assumptions:
        `Responses are taken to have ${rollout.response_length} tokens; ` +
        `${hasServers ? "sampling by the servers, " : ""}rewards, validation and saving come on top.`,
    };
  },
};
