/**
 * PF-PPO (policy filtration, arXiv:2409.06957): train on a batch redrawn from itself, with rows whose reward is more
 * telling drawn more often.
 *
 * Weights are verl's (`algorithm.pf_ppo`). Departure: the draws come from our own generator.
 */
import { UserError, unknownName } from "../../util/errors.ts";
import type { Random } from "../../util/random.ts";

/** Keys of `algorithm.pf_ppo`. */
export type PfPpoConfig = { readonly reweight_method: string; readonly weight_pow: number };

export const pfPpoDefaults: PfPpoConfig = { reweight_method: "pow", weight_pow: 2 };

type Weigh = (scores: Float64Array, power: number) => Float64Array;

const methods: Readonly<Record<string, Weigh>> = {
  /** Rewards far from 0 tell most. */
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

/** How often each row is drawn, up to a factor; `scores` has one total reward per row. */
export function samplingWeights(scores: ArrayLike<number>, config: PfPpoConfig): Float64Array {
  const { reweight_method: name, weight_pow: power } = config;
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
