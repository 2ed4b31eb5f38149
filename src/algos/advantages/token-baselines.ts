/**
 * Optimal token baselines (arXiv:2602.07078): a baseline for every place in the answers of a group.
 *
 * The baseline at place t is the mean reward to go of the rows that still run there, weighted by how much gradient each
 * has gathered on its way: W_t = sum over tokens up to t of 1 - 2 p + sum p², the squared gradient norm of the logits.
 * A group of one has no baseline. Where only the longest answer still runs, the baseline would be its own reward, so
 * there is none (`handle_zero_tail`). `tir_optimal_token_baseline` counts places in unmasked tokens, for answers with tool
 * output; `optimal_token_baseline` in positions, and as in verl its tail begins at the *number* of unmasked tokens of
 * the second longest row, so it suits answers without gaps.
 *
 * Departures from verl. Returns at masked positions are 0. A weight below 0 by no more than rounding counts as 0; it
 * could otherwise bring the sum of weights to 0 or below.
 */

import { bool, field } from "../../util/field.ts";
import { groupRows } from "../batch.ts";
import { type AdvantageInput, type AdvantageResult, type AdvantageSettings, advantage, needed } from "./estimator.ts";
import { refuseRow, rewardsToGo, zerosLike } from "./token-rows.ts";

/** verl's `epsilon`: keeps the quotient finite where no row has gathered gradient. */
const EPSILON = 1e-8;
const ROUNDING = 1e-6;

const fields = {
  handle_zero_tail: field(
    bool,
    true,
    "With optimal token baselines: no baseline where only the longest response of a group still has tokens.",
  ),
};

/** For answers without gaps. */
export const optimalTokenBaseline = advantage({
  name: "optimal_token_baseline",
  paper: "arXiv:2602.07078",
  hasCritic: false,
  needs: ["groups", "oldLogprobs", "sumPiSquared"],
  fields,
  compute: (input, settings) => lessBaseline(input, settings, { skipsMasked: false }),
});

/** For answers with tool output between the policy's own tokens. */
export const tirOptimalTokenBaseline = advantage({
  ...optimalTokenBaseline,
  name: "tir_optimal_token_baseline",
  compute: (input, settings) => lessBaseline(input, settings, { skipsMasked: true }),
});

type Places = { readonly skipsMasked: boolean };
/** Per place of one group: the sum of returns times energy, then the baseline; and the sum of energy. */
type Sums = Places & { readonly gains: Float64Array; readonly weights: Float64Array };
/** One row of the input. */
type Row = {
  readonly returns: Float64Array;
  readonly mask: ArrayLike<number>;
  readonly logprobs: ArrayLike<number>;
  readonly sumPiSquared: ArrayLike<number>;
  readonly ratios: ArrayLike<number> | undefined;
};

function lessBaseline(
  input: AdvantageInput,
  { handle_zero_tail: zeroTail }: AdvantageSettings<typeof fields>,
  places: Places,
): AdvantageResult {
  const { rewards, mask, groups, rolloutWeights } = input;
  const logprobs = needed(input.oldLogprobs, "oldLogprobs");
  const sumPiSquared = needed(input.sumPiSquared, "sumPiSquared");
  const parts = { oldLogprobs: logprobs, sumPiSquared, ...(rolloutWeights && { rolloutWeights }) };
  const [returns, advantages] = [rewardsToGo(rewards, mask), zerosLike(mask)];
  const size = mask.reduce((most, row) => Math.max(most, row.length), 0);
  const sums: Sums = { ...places, gains: new Float64Array(size), weights: new Float64Array(size).fill(EPSILON) };

  for (const rows of groupRows(groups).values()) {
    const members = rows.map(
      (i): Row => ({
        returns: returns[i]!,
        mask: mask[i]!,
        logprobs: logprobs[i]!,
        sumPiSquared: sumPiSquared[i]!,
        ratios: rolloutWeights?.[i],
      }),
    );
    const lengths = members.map((row, k) => {
      const { length, energy } = add(sums, row);
      if (!Number.isFinite(energy)) refuseRow(rows[k]!, mask, parts);
      return length;
    });
    if (!divide(sums)) refuseRow(rows[0]!, mask, { rewards, ...parts });
    const ends = baselineEnds(lengths, { size, zeroTail, ...places });
    members.forEach((row, k) => {
      subtract(sums, row, { end: ends[k]!, into: advantages[rows[k]!]! });
    });
    sums.gains.fill(0);
    sums.weights.fill(EPSILON);
  }
  return { advantages, returns };
}

/** Count a row in. */
function add({ gains, weights, skipsMasked }: Sums, { returns, mask, logprobs, sumPiSquared, ratios }: Row): Counted {
  let [length, energy] = [0, 0];
  for (let t = 0; t < returns.length; t++) {
    if (mask[t] === 0) continue;
    const norm = 1 - 2 * probability(logprobs[t]!) + sumPiSquared[t]!;
    const ratio = ratios === undefined ? 1 : ratios[t]!;
    if (!(norm <= 0 && norm >= -ROUNDING)) energy += norm * ratio * ratio; // NaN is added, and found by the caller
    const place = skipsMasked ? length : t;
    gains[place]! += returns[t]! * energy;
    weights[place]! += energy;
    length++;
  }
  return { length, energy };
}

/** How many unmasked tokens a row has, and the gradient gathered at the last. */
type Counted = { readonly length: number; readonly energy: number };

/** Make baselines of the sums; false when one is not finite. */
function divide({ gains, weights }: Sums): boolean {
  let zero = 0;
  for (let place = 0; place < gains.length; place++) {
    gains[place]! /= weights[place]!;
    zero += gains[place]! * 0; // NaN from the first that is not finite
  }
  return zero === 0;
}

type Target = { readonly end: number; readonly into: Float64Array };

/** Returns less the baseline, of which there is none from place `end` on. */
function subtract({ gains, skipsMasked }: Sums, { returns, mask }: Row, { end, into }: Target): void {
  let length = 0;
  for (let t = 0; t < returns.length; t++) {
    if (mask[t] === 0) continue;
    const place = skipsMasked ? length : t;
    into[t] = place < end ? returns[t]! - gains[place]! : returns[t]!;
    length++;
  }
}

/** Up to which place each row of a group has a baseline. */
function baselineEnds(
  lengths: readonly number[],
  { size, zeroTail, skipsMasked }: Places & { readonly size: number; readonly zeroTail: boolean },
): number[] {
  const members = skipsMasked ? lengths.filter((length) => length > 0) : lengths;
  if (members.length === 1) return lengths.map(() => 0);
  const [most = 0, second = 0] = members.toSorted((a, b) => b - a);
  return lengths.map((length) => (zeroTail && length === most && length > second ? second : size));
}

/** exp(-k / 64). */
const powers = Float64Array.from({ length: 40 * 64 }, (_, k) => Math.exp(-k / 64));

/** exp of a log-prob, to 2e-10: most of the time here would go into `Math.exp`. */
function probability(logprob: number): number {
  if (!(logprob > -39 && logprob <= 0)) return Math.exp(logprob);
  const k = (0.5 - 64 * logprob) | 0; // the nearest integer to -64 logprob
  const rest = logprob + k / 64; // at most 1/128, so that four terms of the series are enough
  return powers[k]! * (1 + rest * (1 + rest * (1 / 2 + rest / 6)));
}
