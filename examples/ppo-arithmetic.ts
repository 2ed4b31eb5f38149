// PPO on arithmetic sequences, from random weights: verl's own end-to-end test, with its settings.
//
//   npx trainyard ppo examples/ppo-arithmetic.ts \
//     actor_rollout_ref.model.path=MODEL critic.model.path=MODEL \
//     data.train_files=train.parquet data.val_files=test.parquet
//
// MODEL and the files are those of verl's tests/e2e/arithmetic_sequence: 0.8M parameters, sixteen characters. The prompt
// `a,b:m,k` asks for the next k members of the sequence a, b, … modulo m. verl's test asks for a best reward above
// 0.2; the data allow 0.757. Expect `critic/rewards/mean` to pass 0.2 by step 155 and 0.6 by step 415; docs/learning.md has the curves.
import { defineConfig } from "trainyard";

export default defineConfig({
  data: { train_batch_size: 800, max_prompt_length: 16, max_response_length: 32 },
  actor_rollout_ref: {
    actor: { ppo_mini_batch_size: 200, clip_ratio: 0.2, optim: { lr: 1e-4 } },
  },
  critic: { ppo_mini_batch_size: 200, optim: { lr: 1e-3 } },
  algorithm: { adv_estimator: "gae", gamma: 1, lam: 1, use_kl_in_reward: true, kl_ctrl: { kl_coef: 0.005 } },
  // Each right character up to the first wrong one earns an equal share, and so does the end of the response.
  custom_reward_function: ({ prompt, response, responseLength }) => {
    const truth = truthOf(prompt);
    const rewards = new Array<number>(responseLength).fill(0);
    let right = 0;
    while (right < truth.length && response[right] === truth[right]) rewards[right++] = 1 / (truth.length + 1);
    const isWhole = right === truth.length && response.length === right && responseLength === right + 1;
    if (isWhole) rewards[right] = 1 / (truth.length + 1);
    return rewards;
  },
  trainer: {
    project_name: "arithmetic",
    experiment_name: "ppo",
    total_training_steps: 500,
    total_epochs: 500,
    val_before_train: false,
    save_freq: 100,
    max_actor_ckpt_to_keep: 1,
  },
});

function truthOf(prompt: string): string {
  const [a = 0, b = 0, modulus = 1, count = 0] = (/(\d+),(\d+):(\d+),(\d+)/.exec(prompt) ?? []).slice(1).map(Number);
  const step = (((b - a) % modulus) + modulus) % modulus;
  return Array.from({ length: count }, (_, i) => (b + (i + 1) * step) % modulus).join(",");
}
