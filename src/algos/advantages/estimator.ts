/**
 * What an advantage estimator is: a value that turns the rewards of a batch into one advantage per token.
 *
 * An advantage says how much better a token was than expected; the policy loss multiplies log-probs with it. Estimators
 * differ in what they expect: a critic's value, the other answers to the same prompt, the greedy answer. Results are 0
 * wherever the mask is 0, for returns as for advantages. `returns` are what a critic learns to predict; estimators
 * without one give what verl gives there, which may be the same rows as `advantages`.
 */
import { UserError } from "../../util/errors.ts";
import { bool, field, type NoFields, number, type Resolved, type Tree } from "../../util/field.ts";
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

/** Keys that several estimators read. */
export const gamma = field(number(0, 1), 1.0, "Discount per token.");
export const lam = field(number(0, 1), 1.0, "How far gae looks beyond the critic's next value.");
export const norm_adv_by_std_in_grpo = field(
  bool,
  true,
  "Divide a group's advantages by their spread; false is Dr. GRPO.",
);
const shared = { gamma, lam, norm_adv_by_std_in_grpo };

/** What every estimator is given: keys of `algorithm`. */
type SharedSettings = Resolved<typeof shared> & {
  /** Which verl is followed where 0.7 and 0.9 differ: `reinforce_plus_plus` and `grpo_vectorized`. */
  readonly version: Version;
};

/** The names of what every estimator is given. */
export const sharedSettings: readonly string[] = [...Object.keys(shared), "version"];

/** What an estimator is given: the shared settings, and the values of its own fields. */
export type AdvantageSettings<Fields extends Tree = NoFields> = SharedSettings & Resolved<Fields>;

export type AdvantageResult = { readonly advantages: FloatRows; readonly returns: FloatRows };

/** What an estimator may ask for beyond rewards and mask. */
export type AdvantageNeed = "groups" | "values" | "baselines" | "oldLogprobs" | "sumPiSquared";

/** Columns of the reward that an estimator reads beside the score, and the config key that names them. */
export type RewardColumns = { readonly columns: readonly string[]; readonly key: string };

/** An advantage estimator as a value. */
export type Advantage<Fields extends Tree = Tree> = {
  /** As in `algorithm.adv_estimator`. */
  readonly name: string;
  readonly paper?: string;
  readonly hasCritic: boolean;
  readonly needs: readonly AdvantageNeed[];
  /** Its config keys: ours are keys of `algorithm`, those of a registered estimator stand below `algorithm.own.NAME`. */
  readonly fields?: Fields;
  /** Stop if the settings make no sense; asked before a run starts. */
  check?(settings: AdvantageSettings<Fields>, run: { readonly groupSize: number }): void;
  /** What it reads of `AdvantageInput.components`. */
  rewardColumns?(settings: AdvantageSettings<Fields>): RewardColumns;
  compute(input: AdvantageInput, settings: AdvantageSettings<Fields>): AdvantageResult;
};

/** An estimator whose settings are typed by its fields. */
export function advantage<const Fields extends Tree>(
  value: Advantage<Fields> & { readonly fields: Fields },
): Advantage<Fields> & { readonly fields: Fields } {
  return value;
}

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
