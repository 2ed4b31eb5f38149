// The control of grpo-addition.ts: the same rewards, but each is given to another response than the one that earned it.
// Nothing can be learnt from them, so the accuracy must not rise. If it did, the gain of the other run would prove nothing.
// There is no entropy bonus: with random rewards the policy would learn nothing but to be random.
//
//   npx trainyard ppo examples/shuffled-addition.ts                                    the whole run
//   npx trainyard ppo examples/shuffled-addition.ts trainer.total_training_steps=2     a smoke test
//
// Expect `val-core/addition/acc/mean@1` never to pass the 0.31 that it starts with; docs/learning.md has the curves.
import { defineConfig } from "trainyard";
import grpo from "./grpo-addition.ts";

/** Rewards that were earned and not given yet. At first they are as rare as right answers are at the start. */
const earned = Array.from({ length: 64 }, () => Math.random() < 0.1);

const { actor, ...others } = grpo.actor_rollout_ref;

export default defineConfig({
  ...grpo,
  actor_rollout_ref: { ...others, actor: { ...actor, entropy_coeff: 0 } },
  custom_reward_function: (sample) => {
    const isRight = grpo.custom_reward_function(sample);
    earned.push(isRight);
    const [score = false] = earned.splice(Math.floor(Math.random() * earned.length), 1);
    return { score, acc: isRight };
  },
  trainer: { ...grpo.trainer, experiment_name: "shuffled" },
});
