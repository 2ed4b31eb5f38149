// PPO with a reward model: a classifier that was trained on pairs of answers. The run does not know which sums are
// right.
//
//   examples/recipes/reward-model-then-ppo.sh              makes the reward model, then runs this file
//   npx trainyard ppo examples/recipes/model-reward.ts     with the reward model that it made
//
// Expect `val-core/sums/acc/mean@1`, which is the reward model's score here, to rise from -2.3 to 3.2 in 40 steps.
import { defineConfig } from "trainyard";
import ppo from "../quickstart/ppo.ts";

const { custom_reward_function: _, ...rest } = ppo;

export default defineConfig({
  ...rest,
  reward_model: { enable: true, model: { path: "checkpoints/recipes/preferences/model" } },
  trainer: { ...ppo.trainer, project_name: "recipes", experiment_name: "model-reward" },
});
