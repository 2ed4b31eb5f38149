// PPO on two-digit sums: a model of 0.8M parameters, fine-tuned on sums that mostly forget to carry, learns to carry.
//
//   npx trainyard ppo examples/quickstart/ppo.ts                                    the whole run, as npm start does it
//   npx trainyard ppo examples/quickstart/ppo.ts trainer.total_training_steps=2     a smoke test
//
// Expect `val-core/sums/acc/mean@1` to rise from 0.30 to above 0.9 in 40 steps, within a minute on 2 cores.
import { defineConfig } from "trainyard";

export default defineConfig({
  data: {
    train_files: "examples/quickstart/train.jsonl",
    val_files: "examples/quickstart/test.jsonl",
    train_batch_size: 128,
    max_prompt_length: 16,
    max_response_length: 6,
  },
  actor_rollout_ref: {
    model: { path: "examples/quickstart/model" },
    actor: { ppo_mini_batch_size: 64, optim: { lr: 1e-4, lr_scheduler_type: "cosine", weight_decay: 0 } },
    rollout: { n: 1 },
  },
  critic: { ppo_mini_batch_size: 64, optim: { lr: 3e-4 } },
  algorithm: { adv_estimator: "gae", gamma: 1, lam: 1, use_kl_in_reward: true, kl_ctrl: { kl_coef: 0.001 } },
  custom_reward_function: ({ response, groundTruth }) => {
    const isRight = response === groundTruth;
    return { score: isRight, acc: isRight };
  },
  trainer: {
    project_name: "quickstart",
    experiment_name: "ppo",
    total_training_steps: 40,
    total_epochs: 40,
    test_freq: 5,
    save_freq: 20,
    max_actor_ckpt_to_keep: 1,
    log_val_generations: 4,
    logger: ["console"],
  },
});
