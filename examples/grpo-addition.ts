// GRPO on single-digit addition: a chat model of 26M parameters, right one time in three at first, learns to add.
//
//   npx trainyard ppo examples/grpo-addition.ts                                    the whole run
//   npx trainyard ppo examples/grpo-addition.ts trainer.total_training_steps=2     a smoke test
//
// The model comes from the hub; actor_rollout_ref.model.path=FOLDER names a copy on disk.
// Expect `val-core/addition/acc/mean@1` to rise from 0.31 to above 0.9 by step 50; docs/learning.md has the curves.
import { defineConfig } from "trainyard";

export default defineConfig({
  data: {
    train_files: "examples/data/addition.jsonl",
    val_files: "examples/data/addition.jsonl",
    train_batch_size: 32,
    max_prompt_length: 32,
    max_response_length: 12,
  },
  actor_rollout_ref: {
    model: { path: "jingyaogong/MiniMind2-Small" },
    actor: {
      ppo_mini_batch_size: 16,
      entropy_coeff: 0.01, // without it the answers to some sums soon become always the same, and wrong
      optim: { lr: 1e-5, lr_warmup_steps: 5, lr_scheduler_type: "cosine", min_lr_ratio: 0.1, weight_decay: 0 },
    },
    rollout: { n: 8 },
  },
  // Groups whose answers are all right or all wrong have no advantage: they are replaced by other prompts.
  algorithm: { adv_estimator: "grpo", filter_groups: { enable: true } },
  // Right when the last number is the sum and the response has ended.
  custom_reward_function: ({ response, groundTruth, responseLength }) =>
    responseLength < 12 && response.match(/\d+/g)?.at(-1) === groundTruth,
  trainer: {
    project_name: "addition",
    experiment_name: "grpo",
    total_training_steps: 60,
    total_epochs: 600,
    test_freq: 10,
    save_freq: 20,
    max_actor_ckpt_to_keep: 1,
  },
});
