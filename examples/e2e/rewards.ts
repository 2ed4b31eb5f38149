/** Reward functions of the scripts beside this file. */
import type { RewardInput } from "trainyard/reward";

/** 1 for the right sum, and a little for each digit, so that the rewards of random weights differ. */
export function compute_score({ response, groundTruth }: RewardInput) {
  const digits = response.replaceAll(/\D/g, "").length;
  return { score: response === groundTruth ? 1 : digits / 100, acc: response === groundTruth };
}

/** Prints that it was called, and gives every response the same reward. */
export function congratulate() {
  console.log("Congratulations: your own reward function was called.");
  return 0.1;
}
