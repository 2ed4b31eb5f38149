// GSPO (arXiv:2507.18071): one ratio per answer, the geometric mean of the ratios of its tokens. A mean changes little, so
// the clip range is narrow.
//
//   npx trainyard ppo examples/recipes/gspo.ts
//
// Expect `val-core/sums/acc/mean@1` to rise from 0.30 to about 0.96 in 40 steps, within a minute on 2 cores.
import { defineConfig } from "trainyard";
import grpo from "./grpo.ts";

export default defineConfig({
  ...grpo,
  actor_rollout_ref: {
    ...grpo.actor_rollout_ref,
    actor: {
      ...grpo.actor_rollout_ref.actor,
      policy_loss: { loss_mode: "gspo" },
      loss_agg_mode: "seq-mean-token-mean",
      clip_ratio_low: 3e-4,
      clip_ratio_high: 4e-4,
    },
  },
  trainer: { ...grpo.trainer, experiment_name: "gspo" },
});
