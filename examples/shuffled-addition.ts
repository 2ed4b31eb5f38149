// The control of grpo-addition.ts: the same rewards, but each given to another response than the one that earned it.
// Nothing can be learnt from them, so accuracy must not rise; where it does, the gain of the other run proves nothing.
//
//   npx trainyard ppo examples/shuffled-addition.ts                                    the whole run
//   npx trainyard ppo examples/shuffled-addition.ts trainer.total_training_steps=2     a smoke test
import { defineConfig } from "trainyard";
import grpo from "./grpo-addition.ts";

/** Rewards that were earned and not given yet; the first to be given are as rare as right answers are at first. */
const earned = Array.from({ length: 64 }, () => Math.random() < 0.1);

export default defineConfig({
  ...grpo,
  custom_reward_function: (sample) => {
    earned.push(grpo.custom_reward_function(sample));
    const [reward = false] = earned.splice(Math.floor(Math.random() * earned.length), 1);
    return reward;
  },
  trainer: { ...grpo.trainer, experiment_name: "shuffled" },
});
