/** `trainyard ppo`: reinforcement learning. */
import { ppoSchema } from "../config/ppo/schema.ts";
import { configVerb } from "./config-verb.ts";
import type { Verb } from "./verb.ts";

export const verb: Verb = configVerb({
  schema: ppoSchema,
  examples: [
    "trainyard ppo actor_rollout_ref.model.path=MODEL data.train_files=train.parquet custom_reward_function.path=reward.ts",
    "trainyard ppo … algorithm.adv_estimator=grpo actor_rollout_ref.rollout.n=8 critic.enable=false",
  ],
  rows: {
    fits: (has) => has("prompt", "reward_model") || has("prompt", "data_source"),
    check: async (task, findings) => (await import("./ppo-check.ts")).checkPrompts(task, findings),
  },
  plan: async (config, context) => (await import("./ppo-plan.ts")).planRl(config, context),
  async run(config, context) {
    const { trainRl } = await import("../train/rl/run.ts");
    await trainRl(config, context);
  },
});
