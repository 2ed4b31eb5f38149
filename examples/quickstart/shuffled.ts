// The control of ppo.ts: the same rewards, but each is given to another response than the one that earned it. Nothing can
// be learnt from them, so the accuracy must not rise. If it did, the gain of the other run would prove nothing.
//
//   npx trainyard ppo examples/quickstart/shuffled.ts                                    the whole run
//   npx trainyard ppo examples/quickstart/shuffled.ts trainer.total_training_steps=2     a smoke test
//
// Expect `val-core/sums/acc/mean@1` to stay below 0.5 for 40 steps, within a minute on 2 cores.
import { defineConfig } from "trainyard";
import ppo from "./ppo.ts";

/** The rewards that responses have earned so far. */
const earned: boolean[] = [];

export default defineConfig({
  ...ppo,
  custom_reward_function: ({ response, groundTruth }) => {
    const isRight = response === groundTruth;
    earned.push(isRight);
    return { score: earned[Math.floor(Math.random() * earned.length)] ?? false, acc: isRight };
  },
  trainer: { ...ppo.trainer, experiment_name: "shuffled" },
});
