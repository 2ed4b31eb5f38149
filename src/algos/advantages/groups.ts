/**
 * Estimators that compare the total rewards of a group, the answers to one prompt: each row gets one number, its
 * credit, on all its unmasked tokens.
 *
 * A group of one cannot be compared. Its credit is the reward itself (verl's choice), except that
 * rloo_vectorized gives 0 and grpo_passk refuses it. Returns are the advantages.
 *
 * Departures from verl. Groups differ by their name alone, where verl's grpo_vectorized makes integers of names
 * that look like numbers and so merges "1.2" and "1.9". A batch with a single unmasked token is not whitened where verl
 * raises. Equal rewards give exactly 0.
 */
import { nearest, UserError } from "../../util/errors.ts";
import { field, names, nullable, reals } from "../../util/field.ts";
import { type FloatRows, groupRows, type Rows } from "../batch.ts";
import {
  type AdvantageInput,
  type AdvantageResult,
  type AdvantageSettings,
  advantage,
  checkNumbers,
  norm_adv_by_std_in_grpo,
} from "./estimator.ts";
import { spread, totals, whiten } from "./token-rows.ts";

/** Keeps the quotient by a spread of 0 finite; verl's `epsilon`. */
const EPSILON = 1e-6;

const gdpo_reward_keys = field(names, null, "Reward columns that gdpo normalises one by one.");
const gdpo_reward_weights = field(nullable(reals), null, "Their weights; null for 1 each.");

/** The rows of one prompt: `scores` are their total rewards. */
type Group = { readonly name: string; readonly scores: Float64Array; readonly masks: Rows };
/** One number per row of the group. */
type Credit = (group: Group) => Float64Array;

/** GRPO (arXiv:2402.03300): the reward in units of its group's spread; without `norm_adv_by_std_in_grpo` Dr. GRPO (arXiv:2503.20783). */
export const grpo = advantage({
  name: "grpo",
  paper: "arXiv:2402.03300",
  hasCritic: false,
  needs: ["groups"],
  fields: { norm_adv_by_std_in_grpo },
  compute: (input, settings) => outcome(input, standardised(settings)),
});

/** GRPO under its other name; with `version: "0.7"` the spread of a group counts as at least 1e-3, as it did there. */
export const grpoVectorized = advantage({
  ...grpo,
  name: "grpo_vectorized",
  compute: (input, settings) => outcome(input, standardised(settings, settings.version === "0.7" ? 1e-3 : 0)),
});

/** Pass@k training (arXiv:2503.19595): only the best row has a credit, its lead over the second best. */
export const grpoPassk = advantage({
  name: "grpo_passk",
  paper: "arXiv:2503.19595",
  hasCritic: false,
  needs: ["groups"],
  fields: { norm_adv_by_std_in_grpo },
  check(_, { groupSize }) {
    if (groupSize >= 2) return;
    throw new UserError(
      `\`algorithm.adv_estimator\` is grpo_passk, which compares the best two responses to a prompt, and \`actor_rollout_ref.rollout.n\` is ${groupSize}. Set it to at least 2.`,
    );
  },
  compute: (input, settings) => outcome(input, (group) => leadOfTheBest(group, settings)),
});

/** RLOO (arXiv:2402.14740): the reward less the mean of the group's *other* rewards. */
export const rloo = advantage({
  name: "rloo",
  paper: "arXiv:2402.14740",
  hasCritic: false,
  needs: ["groups"],
  fields: {},
  compute: (input) => outcome(input, ({ scores }) => (scores.length === 1 ? scores : leftOut(scores))),
});

/** RLOO, but a group of one has credit 0. */
export const rlooVectorized = advantage({
  ...rloo,
  name: "rloo_vectorized",
  compute: (input) => outcome(input, ({ scores }) => (scores.length === 1 ? new Float64Array(1) : leftOut(scores))),
});

/** OPO (arXiv:2505.23585): the reward less the group's mean weighted by length, which makes the variance smallest. */
export const opo = advantage({
  name: "opo",
  paper: "arXiv:2505.23585",
  hasCritic: false,
  needs: ["groups"],
  fields: {},
  compute: (input) => outcome(input, ({ scores, masks }) => centred(scores, masks.map(unmasked))),
});

/** GPG (arXiv:2504.02546): the centred reward, scaled up by the share of rows that earned nothing. */
export const gpg = advantage({
  name: "gpg",
  paper: "arXiv:2504.02546",
  hasCritic: false,
  needs: ["groups"],
  fields: {},
  compute(input) {
    const earning = totals(input.rewards).filter((score) => score !== 0).length;
    const scale = input.rewards.length / Math.max(earning, 1);
    return outcome(input, ({ scores }) => centred(scores).map((credit) => credit * scale));
  },
});

/** REINFORCE++ with a group baseline (arXiv:2501.03262): the centred reward, whitened over the tokens of the batch. */
export const reinforcePlusPlusBaseline = advantage({
  name: "reinforce_plus_plus_baseline",
  paper: "arXiv:2501.03262",
  hasCritic: false,
  needs: ["groups"],
  fields: {},
  compute: (input) =>
    whitened(
      credits(totals(input.rewards), input, ({ scores }) => centred(scores)),
      input.mask,
    ),
});

/**
 * GDPO (arXiv:2601.05242): GRPO on each part of the reward separately, then their weighted sum, whitened over the tokens of
 * the batch; so that no part outweighs another. Without `gdpo_reward_keys` the whole reward is the only part.
 */
export const gdpo = advantage({
  name: "gdpo",
  paper: "arXiv:2601.05242",
  hasCritic: false,
  needs: ["groups"],
  fields: { norm_adv_by_std_in_grpo, gdpo_reward_keys, gdpo_reward_weights },
  check({ gdpo_reward_keys: keys, gdpo_reward_weights: weights }) {
    if (keys.length === 0) {
      throw new UserError(
        "`algorithm.adv_estimator` is gdpo, and `algorithm.gdpo_reward_keys` names no reward column. Name those that the reward function returns, as in [accuracy,format].",
      );
    }
    checkWeights(keys.length, weights);
  },
  rewardColumns: ({ gdpo_reward_keys: columns }) => ({ columns, key: "algorithm.gdpo_reward_keys" }),
  compute(input, settings) {
    const parts = rewardParts(input, settings.gdpo_reward_keys);
    checkWeights(parts.length, settings.gdpo_reward_weights);
    const weights = settings.gdpo_reward_weights ?? parts.map(() => 1);
    const sum = new Float64Array(input.rewards.length);
    parts.forEach((part, k) => {
      credits(part, input, standardised(settings)).forEach((credit, row) => {
        sum[row]! += weights[k]! * credit;
      });
    });
    return whitened(sum, input.mask);
  },
});

function checkWeights(columns: number, weights: readonly number[] | null): void {
  if (weights === null || weights.length === columns) return;
  throw new UserError(
    `\`algorithm.gdpo_reward_weights\` has ${weights.length} numbers for the ${columns} columns of \`algorithm.gdpo_reward_keys\`. Give one for each.`,
  );
}

// ---------------------------------------------------------------- from groups to tokens

function outcome(input: AdvantageInput, credit: Credit): AdvantageResult {
  return same(spread(credits(totals(input.rewards), input, credit), input.mask));
}

function whitened(rowCredits: Float64Array, mask: Rows): AdvantageResult {
  const rows = spread(rowCredits, mask);
  return same(whiten(rows, mask, rows));
}

const same = (advantages: FloatRows): AdvantageResult => ({ advantages, returns: advantages });

/** The credit of each row, group by group. */
function credits(scores: Float64Array, { groups, mask }: AdvantageInput, credit: Credit): Float64Array {
  const all = new Float64Array(scores.length);
  for (const [name, rows] of groupRows(groups)) {
    const group = { name, scores: Float64Array.from(rows, (i) => scores[i]!), masks: rows.map((i) => mask[i]!) };
    const own = credit(group);
    if (!own.every(Number.isFinite)) {
      const [least, most] = [group.scores.toSorted()[0], group.scores.toSorted().at(-1)];
      throw new UserError(`Rewards of group "${name}" lie between ${least} and ${most}, too far apart to compare.`);
    }
    rows.forEach((row, i) => {
      all[row] = own[i]!;
    });
  }
  return all;
}

/** The parts of the reward that gdpo normalises, each one number per row. */
function rewardParts({ rewards, mask, components }: AdvantageInput, keys: readonly string[]): Float64Array[] {
  if (keys.length === 0) return [totals(rewards)];
  const known = Object.keys(components ?? {});
  return keys.map((key) => {
    if (components !== undefined && Object.hasOwn(components, key)) {
      checkNumbers(key, components[key]!, mask);
      return Float64Array.from(components[key]!);
    }
    const close = nearest(key, known);
    throw new UserError(
      `\`algorithm.gdpo_reward_keys\` names "${key}", which the rewards do not have: they have ` +
        `${known.length === 0 ? "no parts" : known.join(", ")}. ` +
        (close.length > 0
          ? `Did you mean ${close.join(" or ")}?`
          : "Let the reward function return it beside the score."),
    );
  });
}

// ---------------------------------------------------------------- credits within a group

/** Distances from the (weighted) mean, which is taken as 0 for a group of one. */
function centred(scores: Float64Array, weights?: readonly number[]): Float64Array {
  if (scores.length === 1) return scores;
  const pivot = scores[0]!; // the mean of distances from it is exact where all scores are equal
  let [sum, weight] = [0, 0];
  scores.forEach((score, i) => {
    const own = weights === undefined ? 1 : weights[i]!;
    sum += own * (score - pivot);
    weight += own;
  });
  const mean = weight === 0 ? pivot : pivot + sum / weight; // no weight: no row has a token to credit
  return scores.map((score) => score - mean);
}

/** Unbiased standard deviation, which is taken as 1 for a group of one. */
function deviation(scores: Float64Array): number {
  if (scores.length === 1) return 1;
  const squares = centred(scores).reduce((sum, distance) => sum + distance ** 2, 0);
  return Math.sqrt(squares / (scores.length - 1));
}

function standardised({ norm_adv_by_std_in_grpo: normByStd }: AdvantageSettings, leastDeviation = 0): Credit {
  return ({ scores }) => {
    const unit = normByStd ? Math.max(deviation(scores), leastDeviation) + EPSILON : 1;
    return centred(scores).map((distance) => distance / unit);
  };
}

/** Reward minus the mean of the others equals n/(n-1) times the centred reward. */
function leftOut(scores: Float64Array): Float64Array {
  const n = scores.length;
  return centred(scores).map((distance) => (distance * n) / (n - 1));
}

function leadOfTheBest({ name, scores }: Group, settings: AdvantageSettings): Float64Array {
  if (scores.length < 2) {
    throw new UserError(
      `Group "${name}" has one row, and grpo_passk compares the best with the second best. ` +
        "Set `actor_rollout_ref.rollout.n` to 2 or more.",
    );
  }
  const [second, best] = scores.toSorted().subarray(-2);
  const lead = new Float64Array(scores.length);
  lead[scores.indexOf(best!)] =
    (best! - second!) / (settings.norm_adv_by_std_in_grpo ? deviation(scores) + EPSILON : 1);
  return lead;
}

function unmasked(mask: ArrayLike<number>): number {
  let count = 0;
  for (let t = 0; t < mask.length; t++) if (mask[t] !== 0) count++;
  return count;
}
