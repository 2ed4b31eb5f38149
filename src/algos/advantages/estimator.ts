/**
 * What an advantage estimator is: a value that turns the rewards of a batch into one advantage per token.
 *
 * An advantage says how much better a token was than expected; the policy loss multiplies log-probs with it. Estimators
 * differ in what they expect: a critic's value, the other answers to the same prompt, the greedy answer. Results are 0
 * wherever the mask is 0, for returns as for advantages. `returns` are what a critic learns to predict; estimators
 * without one give what verl gives there, which may be the very rows of `advantages`.
 */
import { UserError } from "../../util/errors.ts";
import type { FloatRows, Rows, Version } from "../batch.ts";

/** A batch of episodes; what an estimator uses beyond rewards and mask is in its `needs`. */
export type AdvantageInput = {
  /** Per token, with the KL penalty already taken off where it is part of the reward. */
  readonly rewards: Rows;
  readonly mask: Rows;
  /** The group of each row: which rows answer the same prompt (verl's `uid`). */
  readonly groups: readonly string[];
  /** The critic's estimate per token. */
  readonly values?: Rows;
  /** The total reward of the greedy answer to each row's prompt. */
  readonly baselines?: ArrayLike<number>;
  /** Parts of the reward by name, one number per row. */
  readonly components?: Readonly<Record<string, ArrayLike<number>>>;
  /** Log-prob of each token under the policy before the update. */
  readonly oldLogprobs?: Rows;
  /** Per token, the sum of the squared probabilities of all tokens of the vocabulary. */
  readonly sumPiSquared?: Rows;
  /** Importance weights of the rollout correction; where given they weigh the optimal token baselines. */
  readonly rolloutWeights?: Rows;
};

export type AdvantageOptions = {
  /** `algorithm.gamma`: the discount per token. */
  readonly gamma: number;
  /** `algorithm.lam`: how far GAE looks beyond the critic's next value. */
  readonly lam: number;
  /** `algorithm.norm_adv_by_std_in_grpo`: divide by the spread of the group. */
  readonly normByStd: boolean;
  /** Whose behaviour, where verl 0.7 and 0.9 differ: `reinforce_plus_plus` and `grpo_vectorized`. */
  readonly version: Version;
  /** `algorithm.gdpo_reward_keys`: which components gdpo normalises. */
  readonly rewardKeys?: readonly string[];
  /** `algorithm.gdpo_reward_weights`: one per key; 1 each when absent. */
  readonly rewardWeights?: readonly number[];
  /** Optimal token baselines: none where only the longest answer of a group still runs. True when absent. */
  readonly zeroTail?: boolean;
};

/** verl's defaults, with 0.9's behaviour: what it changed were defects. */
export const defaultAdvantageOptions: AdvantageOptions = { gamma: 1, lam: 1, normByStd: true, version: "0.9" };

export type AdvantageResult = { readonly advantages: FloatRows; readonly returns: FloatRows };

/** What an estimator may ask for beyond rewards and mask. */
export type AdvantageNeed = "groups" | "values" | "baselines" | "oldLogprobs" | "sumPiSquared";

export type Advantage = {
  /** As in `algorithm.adv_estimator`. */
  readonly name: string;
  readonly paper: string;
  readonly hasCritic: boolean;
  readonly needs: readonly AdvantageNeed[];
  compute(input: AdvantageInput, options: AdvantageOptions): AdvantageResult;
};

const remedies: Readonly<Record<AdvantageNeed, string>> = {
  groups: "Give each row the name of its prompt's group.",
  values: "Train with a critic, which estimates them.",
  baselines: "Sample a greedy answer to each prompt and give its reward.",
  oldLogprobs: "Compute the log-probs before the update.",
  sumPiSquared: "Set `actor_rollout_ref.actor.calculate_sum_pi_squared=true`.",
};

/** What an estimator needs of its input, or a `UserError` that says how to provide it. */
export function needed<Value>(value: Value | undefined, need: AdvantageNeed): Value {
  if (value !== undefined) return value;
  throw new UserError(`The advantage estimator needs \`${need}\`, which the batch does not have. ${remedies[need]}`);
}

/** Stop unless `list` has one entry per row. */
export function checkLength(name: string, list: ArrayLike<unknown>, mask: Rows): void {
  if (list.length === mask.length) return;
  throw new UserError(`\`${name}\` has ${list.length} entries where the response mask has ${mask.length} rows.`);
}

/** Stop unless `numbers` has one finite entry per row. */
export function checkNumbers(name: string, numbers: ArrayLike<number>, mask: Rows): void {
  checkLength(name, numbers, mask);
  for (let row = 0; row < numbers.length; row++) {
    if (Number.isFinite(numbers[row])) continue;
    throw new UserError(`\`${name}\` is ${numbers[row]} at row ${row}. It must be a finite number in every row.`);
  }
}
