// DAPO (arXiv:2503.14476): GRPO with a higher upper clip range. It replaces groups whose answers all have the same reward,
// lowers the reward of answers near the length limit, and averages the loss over tokens instead of answers.
//
//   npx trainyard ppo examples/recipes/dapo.ts
//
// Expect `val-core/sums/acc/mean@1` to rise from 0.30 to about 0.97 in 40 steps, within a minute on 2 cores.
import { defineConfig } from "trainyard";
import grpo from "./grpo.ts";

export default defineConfig({
  ...grpo,
  data: { ...grpo.data, gen_batch_size: 48 },
  actor_rollout_ref: {
    ...grpo.actor_rollout_ref,
    actor: {
      ...grpo.actor_rollout_ref.actor,
      clip_ratio_low: 0.2,
      clip_ratio_high: 0.28,
      loss_agg_mode: "token-mean",
    },
  },
  algorithm: { adv_estimator: "grpo", filter_groups: { enable: true, metric: "acc", max_num_gen_batches: 10 } },
  reward_model: {
    reward_manager: "dapo",
    reward_kwargs: { overlong_buffer_cfg: { enable: true, len: 2, penalty_factor: 0.5, log: true } },
  },
  trainer: { ...grpo.trainer, experiment_name: "dapo" },
});
