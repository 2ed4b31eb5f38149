// RLOO on single-digit addition: the run of grpo-addition.ts with another estimator.
//
//   npx trainyard ppo examples/rloo-addition.ts                                    the whole run
//   npx trainyard ppo examples/rloo-addition.ts trainer.total_training_steps=2     a smoke test
//
// Expect `val-core/addition/acc/mean@1` to rise from 0.31 to above 0.9 by step 50; docs/learning.md has the curves.
import { defineConfig } from "trainyard";
import grpo from "./grpo-addition.ts";

export default defineConfig({
  ...grpo,
  algorithm: { ...grpo.algorithm, adv_estimator: "rloo" },
  trainer: { ...grpo.trainer, experiment_name: "rloo" },
});
