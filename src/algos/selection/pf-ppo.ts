/**
 * PF-PPO (policy filtration, arXiv:2409.06957): train on a batch redrawn from itself, with rows whose reward is more
 * reliable drawn more often.
 *
 * Weights are verl's (`algorithm.pf_ppo`). Departure: the draws come from our own generator.
 */
import { UserError, unknownName } from "../../util/errors.ts";
import { bool, choice, field, real } from "../../util/field.ts";
import type { Random } from "../../util/random.ts";
import type { RowSelection } from "./row-selection.ts";

type Weigh = (scores: Float64Array, power: number) => Float64Array;

const methods: Readonly<Record<string, Weigh>> = {
  /** Rewards far from 0 are drawn most. */
  pow: (scores, power) => scores.map((score) => Math.abs(score) ** power),
  /** Only the best and the worst rows. */
  max_min: (scores) => {
    const [low, high] = rangeOf(scores);
    return scores.map((score) => Number(score === low || score === high));
  },
  /** The best rows four times as often as the others. */
  max_random: (scores) => {
    const [, high] = rangeOf(scores);
    return scores.map((score) => (score === high ? 0.4 : 0.1));
  },
};

/** Keys of `algorithm`. */
export const pfPpoFields = {
  use_pf_ppo: field(bool, false, "Redraw each batch from itself by reward before the update, with gae."),
  pf_ppo: {
    reweight_method: field(choice("pow", "max_min", "max_random"), "pow", "How rewards become chances of being drawn."),
    weight_pow: field(real, 2.0, "Exponent of pow."),
  },
};

/** Keys of `algorithm.pf_ppo`. */
export type PfPpoSettings = { readonly reweight_method: string; readonly weight_pow: number };

/** Draw as many rows as the batch has, with replacement. */
export const pfPpo = (settings: PfPpoSettings): RowSelection => ({
  name: "pf-ppo",
  select: (totals, random) => [...drawRows(samplingWeights(totals, settings), random)],
});

/** How often each row is drawn, up to a factor; `scores` has one total reward per row. */
export function samplingWeights(scores: ArrayLike<number>, settings: PfPpoSettings): Float64Array {
  const { reweight_method: name, weight_pow: power } = settings;
  if (!Object.hasOwn(methods, name)) throw unknownName("`pf_ppo.reweight_method`", name, Object.keys(methods));
  if (!Number.isFinite(power)) throw new UserError(`\`pf_ppo.weight_pow\` is ${power}. Give a number; verl's is 2.`);
  const values = Float64Array.from(scores);
  const bad = values.findIndex((score) => !Number.isFinite(score));
  if (bad >= 0) throw new UserError(`The score of row ${bad} is ${values[bad]}. Rewards must be finite.`);
  const weights = methods[name]!(values, power).map((weight) => Math.max(weight + 1e-8, 1e-8));
  const wild = weights.findIndex((weight) => !Number.isFinite(weight));
  if (wild < 0) return weights;
  throw new UserError(
    `The score ${values[wild]} of row ${wild} to the power of \`pf_ppo.weight_pow\` = ${power} is not finite. ` +
      "Lower the power, or scale the rewards.",
  );
}

/** As many row numbers as there are weights, drawn with replacement. */
export function drawRows(weights: Float64Array, random: Random): Int32Array {
  const sums = new Float64Array(weights.length);
  let total = 0;
  weights.forEach((weight, row) => {
    total += weight;
    sums[row] = total;
  });
  return Int32Array.from(weights, () => firstAbove(sums, random.uniform() * total));
}

/** The first index whose value is above `bound`, in ascending values. */
function firstAbove(values: Float64Array, bound: number): number {
  let [low, high] = [0, values.length - 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle]! > bound) high = middle;
    else low = middle + 1;
  }
  return low;
}

function rangeOf(scores: Float64Array): [number, number] {
  let [low, high] = [Infinity, -Infinity];
  for (const score of scores) {
    low = Math.min(low, score);
    high = Math.max(high, score);
  }
  return [low, high];
}
