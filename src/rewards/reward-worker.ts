/**
 * The reward function as a worker runs it: called, and its value checked where it was returned. A worker process imports
 * this file (`workers/handler.ts`); a function that stays on the main thread goes through `rewardHandler` too.
 */
import { siblingModule } from "../util/sibling-module.ts";
import { isPromise } from "../workers/call-runner.ts";
import type { Handler } from "../workers/handler.ts";
import { checkBatch, checkReward } from "./check.ts";
import { type LoadedReward, loadReward, type RewardSource } from "./custom.ts";
import type { Outcome } from "./outcome.ts";
import type { RewardInput } from "./reward.ts";

/** One sample, or several where the function takes batches. */
export type Samples = readonly RewardInput[];
/** One outcome per sample. */
export type Outcomes = readonly Outcome[];

/** The address of this file, for a worker process. */
export const rewardModule = siblingModule("reward-worker", import.meta.url);

export async function load(source: RewardSource): Promise<Handler<Samples, Outcomes>> {
  return rewardHandler(await loadReward(source));
}

/** A reward function with its checks. */
export function rewardHandler(reward: LoadedReward): Handler<Samples, Outcomes> {
  return {
    run(samples) {
      const value = reward.run(samples);
      const check = (returned: unknown) => checkValue(returned, samples, reward.isBatch);
      return isPromise(value) ? Promise.resolve(value).then(check) : check(value);
    },
    file: reward.file,
  };
}

/** What a function returned, for one sample or for a batch. */
export function checkValue(value: unknown, samples: Samples, isBatch: boolean): Outcomes {
  return isBatch ? checkBatch(value, samples) : samples.map((sample) => checkReward(value, sample));
}
