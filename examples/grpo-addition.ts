// GRPO on single-digit addition: a 26M-parameter chat model that adds right one time in three learns to add.
//
//   npx trainyard ppo examples/grpo-addition.ts                                    the whole run
//   npx trainyard ppo examples/grpo-addition.ts trainer.total_training_steps=2     a smoke test
//
// The model comes from the hub; actor_rollout_ref.model.path=FOLDER names a copy on disk.
// COST: see docs/learning.md
import { defineConfig } from "trainyard";

export default defineConfig({
  data: {
    train_files: "examples/data/addition.jsonl",
    val_files: "examples/data/addition.jsonl",
    train_batch_size: 32,
    max_prompt_length: 32,
    max_response_length: 10,
  },
  actor_rollout_ref: {
    model: { path: "jingyaogong/MiniMind2-Small" },
    actor: { ppo_mini_batch_size: 16, optim: { lr: 1e-5, lr_warmup_steps: 5, weight_decay: 0 } },
    rollout: { n: 8 },
  },
  algorithm: { adv_estimator: "grpo" },
  // Right when the number after the first equals sign is the sum; what follows it does not matter.
  custom_reward_function: ({ response, groundTruth }) => /=\s*(\d+)/.exec(response)?.[1] === groundTruth,
  trainer: {
    project_name: "addition",
    experiment_name: "grpo",
    total_training_steps: 100,
    total_epochs: 100,
    test_freq: 10,
    save_freq: 50,
    max_actor_ckpt_to_keep: 1,
  },
});
