/** `trainyard ppo`: reinforcement learning. */
import { ppoSchema } from "../config/ppo/schema.ts";
import type { Call } from "./call.ts";
import { runVerb } from "./config-verb.ts";

/** Run the verb; returns the exit code. */
export async function run(call: Call): Promise<number> {
  return runVerb(call, ppoSchema, {
    summary: "train a model by reinforcement learning: PPO, GRPO, RLOO and their family",
    examples: [
      "trainyard ppo actor_rollout_ref.model.path=MODEL data.train_files=train.parquet custom_reward_function.path=reward.ts",
      "trainyard ppo … algorithm.adv_estimator=grpo actor_rollout_ref.rollout.n=8 critic.enable=false",
    ],
    async work(config, context) {
      const { trainRl } = await import("../train/rl/run.ts");
      await trainRl(config, context);
    },
  });
}
