// REINFORCE++ (arXiv:2501.03262): one answer per prompt, compared with the whole batch. The KL penalty against the
// reference is part of each token's reward.
//
//   npx trainyard ppo examples/recipes/reinforce-plus-plus.ts
//
// Expect `val-core/sums/acc/mean@1` to rise from 0.30 to about 0.97 in 40 steps, within a minute on 2 cores.
import { defineConfig } from "trainyard";
import ppo from "../quickstart/ppo.ts";

export default defineConfig({
  data: { ...ppo.data, train_batch_size: 256 },
  actor_rollout_ref: {
    ...ppo.actor_rollout_ref,
    actor: { ...ppo.actor_rollout_ref.actor, ppo_mini_batch_size: 128 },
  },
  algorithm: { adv_estimator: "reinforce_plus_plus", gamma: 1, use_kl_in_reward: true, kl_ctrl: { kl_coef: 0.001 } },
  custom_reward_function: ppo.custom_reward_function,
  trainer: { ...ppo.trainer, project_name: "recipes", experiment_name: "reinforce-plus-plus" },
});
