/**
 * KL in the reward: the KL to the reference is taken off the rewards of each token (verl's apply_kl_penalty).
 *
 * Departure from verl: rows without a counted token are left out of the mean KL.
 */
import { checkFinite, checkRows, type FloatRows, type Rows } from "../batch.ts";
import { adapt, type KlControl } from "./control.ts";
import { klEstimate } from "./estimates.ts";

export type KlBatch = {
  readonly scores: Rows;
  readonly oldLogprobs: Rows;
  readonly refLogprobs: Rows;
  readonly mask: Rows;
};

export type PenalizedRewards = {
  /** Scores minus the weighted KL of each counted token. */
  readonly rewards: FloatRows;
  /** The controller for the next batch. */
  readonly control: KlControl;
  readonly metrics: Readonly<Record<"actor/reward_kl_penalty" | "actor/reward_kl_penalty_coeff", number>>;
};

/** Token-level rewards with the KL to the reference taken off. */
export function penalizeRewards(batch: KlBatch, options: { kind: string; control: KlControl }): PenalizedRewards {
  const { scores, oldLogprobs, refLogprobs, mask } = batch;
  const { kind, control } = options;
  checkRows("scores", scores, mask);
  for (const [name, rows] of [["oldLogprobs", oldLogprobs] as const, ["refLogprobs", refLogprobs] as const]) {
    checkRows(name, rows, mask);
    checkFinite(name, rows, mask);
  }
  const estimate = klEstimate(kind);
  let [total, counted] = [0, 0];
  const rewards = mask.map((row, i) => {
    const result = Float64Array.from(scores[i]!);
    let [sum, count] = [0, 0];
    for (let t = 0; t < row.length; t++) {
      if (row[t] === 0) continue;
      const kl = estimate(oldLogprobs[i]![t]!, refLogprobs[i]![t]!);
      result[t]! -= control.kl_coef * kl;
      sum += kl;
      count++;
    }
    if (count > 0) {
      total += sum / count;
      counted++;
    }
    return result;
  });
  const currentKl = counted === 0 ? 0 : total / counted;
  return {
    rewards,
    control: adapt(control, currentKl, mask.length),
    metrics: { "actor/reward_kl_penalty": currentKl, "actor/reward_kl_penalty_coeff": control.kl_coef },
  };
}
