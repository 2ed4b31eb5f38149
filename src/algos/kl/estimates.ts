/**
 * Estimates of KL(policy ‖ reference) per token from two log-probs, their use as a penalty on rewards, and the
 * controllers of the penalty's weight.
 *
 * k1, k2, k3 are Schulman's estimators (http://joschu.net/blog/kl-approx.html); verl's older names are `kl`, `mse` and
 * `low_var_kl`. A name that ends in `+` has the value of its estimator and the gradient of k2, which is the right
 * gradient of the KL. The controllers are those of arXiv:1909.08593.
 *
 * Departures from verl: the `+` names work for either version (0.7 refuses them). Rows without a counted token are
 * left out of the mean KL. A controller is plain data, so a checkpoint can hold it.
 */
import type { Node } from "../../graph/node.ts";
import * as o from "../../graph/ops.ts";
import { UserError, unknownName } from "../../util/errors.ts";
import { checkFinite, checkRows, type FloatRows, type Rows } from "../batch.ts";

/** One estimator in its two forms; `d` is log-prob minus reference log-prob. */
type Estimator = { readonly traced: (d: Node) => Node; readonly plain: (d: number) => number };

const k1: Estimator = { traced: (d) => d, plain: (d) => d };
const k2: Estimator = { traced: (d) => o.mul(o.square(d), 0.5), plain: (d) => 0.5 * d * d };
/** e^-d + d - 1, with verl's bounds on exponent and result; beyond them there is no gradient. */
const k3: Estimator = {
  traced: (d) => {
    const e = o.clamp(o.neg(d), -20, 20);
    return o.clamp(o.sub(o.sub(o.exp(e), e), 1), -10, 10);
  },
  plain: (d) => {
    const e = Math.min(Math.max(-d, -20), 20);
    return Math.min(Math.exp(e) - e - 1, 10);
  },
};

const estimators: Readonly<Record<string, Estimator>> = {
  kl: k1,
  k1,
  abs: { traced: o.abs, plain: Math.abs },
  mse: k2,
  k2,
  low_var_kl: k3,
  k3,
};

/** Every name that `kl_penalty` and `kl_loss_type` accept, besides `full`. */
export const klKinds: readonly string[] = Object.keys(estimators).flatMap((kind) => [kind, `${kind}+`]);

function findEstimator(kind: string): Estimator & { isStraightThrough: boolean } {
  if (kind === "full") {
    throw new UserError(
      'The KL kind "full" needs the whole distribution of policy and reference, and only log-probs of the sampled ' +
        'tokens are at hand. Use "low_var_kl", or "k1+" in a loss.',
    );
  }
  const isStraightThrough = kind.endsWith("+");
  const base = isStraightThrough ? kind.slice(0, -1) : kind;
  if (!Object.hasOwn(estimators, base)) throw unknownName("The KL kind", kind, klKinds);
  return { ...estimators[base]!, isStraightThrough };
}

/** The traced estimate per token. */
export function klPenalty(logprobs: Node, refLogprobs: Node, kind: string): Node {
  const { traced, isStraightThrough } = findEstimator(kind);
  const d = o.sub(logprobs, refLogprobs);
  if (!isStraightThrough) return traced(d);
  const backward = k2.traced(d);
  return o.add(o.sub(backward, o.stopGradient(backward)), o.stopGradient(traced(d)));
}

/** The estimate per token as a plain function of two log-probs. */
export function klEstimate(kind: string): (logprob: number, refLogprob: number) => number {
  const { plain } = findEstimator(kind);
  return (logprob, refLogprob) => plain(logprob - refLogprob);
}

/** The exact KL per position from logits [..., vocabulary], without the last axis: what `full` means. */
export function fullKl(logits: Node, refLogits: Node): Node {
  const logprobs = o.logSoftmax(logits);
  return o.sum(o.mul(o.exp(logprobs), o.sub(logprobs, o.logSoftmax(refLogits))), [-1]);
}

// ---------------------------------------------------------------- the weight of the penalty

/** How much the KL weighs in the reward. All there is to remember is `kl_coef`; keys are verl's. */
export type KlControl =
  | { readonly type: "fixed"; readonly kl_coef: number }
  | {
      readonly type: "adaptive";
      readonly kl_coef: number;
      readonly target_kl: number;
      /** In rows: the weight changes by at most a fifth in so many. */
      readonly horizon: number;
    };

export type KlControlOptions = {
  readonly type?: string;
  readonly kl_coef?: number;
  readonly target_kl?: number;
  readonly horizon?: number;
};

/** A controller in its first state, with verl's defaults. */
export function klControl(options: KlControlOptions = {}): KlControl {
  const { type = "fixed", kl_coef = 0.001, target_kl = 0.1, horizon = 10_000 } = options;
  if (!Number.isFinite(kl_coef)) throw new UserError(`\`kl_ctrl.kl_coef\` is ${kl_coef}. Give a number.`);
  if (type === "fixed") return { type, kl_coef };
  if (type !== "adaptive") throw unknownName("`kl_ctrl.type`", type, ["fixed", "adaptive"]);
  for (const [key, value] of Object.entries({ target_kl, horizon })) {
    if (!(value > 0)) throw new UserError(`\`kl_ctrl.${key}\` is ${value}. Give a number above 0.`);
  }
  return { type, kl_coef, target_kl, horizon };
}

/** The controller after a batch of `rows` whose mean KL was `currentKl`. */
export function adapt(control: KlControl, currentKl: number, rows: number): KlControl {
  if (control.type === "fixed") return control;
  const error = Math.min(Math.max(currentKl / control.target_kl - 1, -0.2), 0.2);
  return { ...control, kl_coef: control.kl_coef * (1 + (error * rows) / control.horizon) };
}

// ---------------------------------------------------------------- KL in the reward

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

/** Token-level rewards with the KL to the reference taken off (verl's apply_kl_penalty). */
export function penalizeRewards(batch: KlBatch, options: { kind: string; control: KlControl }): PenalizedRewards {
  const { scores, oldLogprobs, refLogprobs, mask } = batch;
  const { kind, control } = options;
  checkRows("scores", scores, mask);
  for (const [name, rows] of [["oldLogprobs", oldLogprobs] as const, ["refLogprobs", refLogprobs] as const]) {
    checkRows(name, rows, mask);
    checkFinite(name, rows, mask);
  }
  const { plain } = findEstimator(kind);
  let [total, counted] = [0, 0];
  const rewards = mask.map((row, i) => {
    const result = Float64Array.from(scores[i]!);
    let [sum, count] = [0, 0];
    for (let t = 0; t < row.length; t++) {
      if (row[t] === 0) continue;
      const kl = plain(oldLogprobs[i]![t]! - refLogprobs[i]![t]!);
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
