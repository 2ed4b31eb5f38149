/**
 * What a policy loss is, what it is built from and which keys it reads.
 *
 * A policy loss is a small value: a name, and a traced function of log-probs and advantages. It sees tensors that are
 * 0 outside the mask, so that nothing there can reach the loss or its gradient, and reduces them with `total` and
 * `mean`, which divide by counts of the whole batch.
 */
import type { Node } from "../../../graph/node.ts";
import * as o from "../../../graph/ops.ts";
import { UserError } from "../../../util/errors.ts";
import type { Random } from "../../../util/random.ts";
import type { FloatRows, Rows } from "../../batch.ts";
import {
  type AggregateMode,
  type AggregateOptions,
  aggregate,
  type LossParts,
  masked,
  meanOfRows,
  named,
  type TokenTensors,
  tokenMean,
} from "../aggregate.ts";

/** Keys of `actor_rollout_ref.actor` that policy losses read, with verl's names. */
export type PolicyConfig = AggregateOptions & {
  /** Stands in for the next two where they are null; verl sets them, so this alone has no effect. */
  readonly clip_ratio: number;
  readonly clip_ratio_low: number | null;
  readonly clip_ratio_high: number | null;
  /** Dual clip: the largest ratio that counts where the advantage is negative. */
  readonly clip_ratio_c: number;
  readonly tau_pos: number;
  readonly tau_neg: number;
  readonly policy_loss: {
    readonly clip_cov_ratio: number;
    readonly clip_cov_lb: number;
    readonly clip_cov_ub: number;
    readonly kl_cov_ratio: number;
    readonly ppo_kl_coef: number;
    /** No default: `dro` must be told. */
    readonly dro_beta: number | null;
    readonly rollout_correction: { readonly loss_type: string };
  };
};

/** verl's values (its actor.yaml). */
export const policyDefaults: PolicyConfig = {
  loss_agg_mode: "token-mean",
  loss_scale_factor: null,
  version: "0.9",
  clip_ratio: 0.2,
  clip_ratio_low: 0.2,
  clip_ratio_high: 0.2,
  clip_ratio_c: 3,
  tau_pos: 1,
  tau_neg: 1.05,
  policy_loss: {
    clip_cov_ratio: 0.0002,
    clip_cov_lb: 1,
    clip_cov_ub: 5,
    kl_cov_ratio: 0.0002,
    ppo_kl_coef: 0.1,
    dro_beta: null,
    rollout_correction: { loss_type: "ppo_clip" },
  },
};

/** The tensors of one micro-batch, [batch, time] each and 0 outside the mask, and the two ways to reduce them. */
export type PolicyTerms = {
  readonly mask: Node;
  /** Of the policy that is trained: the only ones through which a gradient flows. */
  readonly logprobs: Node;
  readonly oldLogprobs: Node;
  readonly advantages: Node;
  /** `logprobs - oldLogprobs`. */
  readonly logRatio: Node;
  /** Importance weights of rollout correction; null when there are none. */
  readonly rolloutWeights: Node | null;
  /** Another tensor that the loss named in `extra`. */
  read(name: string): Node;
  /** The loss: token losses times the rollout weights, reduced as configured or by another mode. */
  total(tokenLoss: Node, mode?: AggregateMode): Node;
  /** A loss that is one number per row [batch, 1] already: the mean over the rows of the batch that have a token. */
  totalOfRows(rowLoss: Node): Node;
  /** A metric: the mean over the tokens of the batch, of numbers or of how often something is true. */
  mean(x: Node): Node;
  /** The same terms without rollout weights. */
  unweighted(): PolicyTerms;
};

/** What is known of a whole batch before it is cut; `logprobs` are the policy's own, as it is now. */
export type PolicyBatch = {
  readonly logprobs: Rows;
  readonly oldLogprobs: Rows;
  readonly advantages: Rows;
  readonly mask: Rows;
};

/** A policy loss as a value. */
export type PolicyLoss = {
  readonly name: string;
  /** Names of tensors it reads besides old log-probs and advantages; `prepare` makes them, or the trainer does. */
  readonly extra?: readonly string[];
  /** Tensors that depend on all rows of a batch together, made once before it is cut into micro-batches. */
  prepare?(batch: PolicyBatch, config: PolicyConfig, random: Random): Readonly<Record<string, FloatRows>>;
  build(terms: PolicyTerms, config: PolicyConfig): LossParts;
};

/** Tensors every policy loss reads. */
export const policyExtra: readonly string[] = ["oldLogprobs", "advantages"];

/** The terms of a micro-batch; its rollout weights are those that `tensors` has, if any. */
export function policyTerms(tensors: TokenTensors, config: PolicyConfig, { isWeighted = true } = {}): PolicyTerms {
  const { mask } = tensors;
  const read = (name: string) => masked(named(tensors, name), mask);
  const fixed = (name: string) => o.stopGradient(read(name));
  const [logprobs, oldLogprobs] = [read("logprobs"), fixed("oldLogprobs")];
  const weights = isWeighted && tensors.rolloutWeights !== undefined ? fixed("rolloutWeights") : null;
  return {
    mask,
    logprobs,
    oldLogprobs,
    advantages: fixed("advantages"),
    logRatio: o.sub(logprobs, oldLogprobs),
    rolloutWeights: weights,
    read: fixed,
    total: (tokenLoss, mode = config.loss_agg_mode) =>
      aggregate(weights === null ? tokenLoss : o.mul(tokenLoss, weights), tensors, { ...config, loss_agg_mode: mode }),
    totalOfRows: (rowLoss) => meanOfRows(rowLoss, tensors),
    mean: (x) => tokenMean(x, tensors),
    unweighted: () => policyTerms(tensors, config, { isWeighted: false }),
  };
}

// ---------------------------------------------------------------- what losses share

/** The log-ratio within ±20, where its exponential is a number that single precision holds. */
export const safeLogRatio = (terms: PolicyTerms): Node => o.clamp(terms.logRatio, -20, 20);

/** The ratio without verl's bounds, up to e^40, so that gradients and their squares stay finite in single precision. */
export const wholeRatio = (terms: PolicyTerms): Node => o.exp(o.clamp(terms.logRatio, -40, 40));

/** The two ends of the clip range, as distances from where the policies agree. */
export function clipRange(config: PolicyConfig): { low: number; high: number } {
  const { clip_ratio, clip_ratio_low, clip_ratio_high } = config;
  const [low, high] = [clip_ratio_low ?? clip_ratio, clip_ratio_high ?? clip_ratio];
  for (const [key, value] of Object.entries({ clip_ratio_low: low, clip_ratio_high: high })) {
    if (!(value >= 0)) throw new UserError(`\`${key}\` is ${value}. Give a number from 0 up; verl's is 0.2.`);
  }
  return { low, high };
}

/** PPO's pair of token losses: at the ratio as it is, and at the clipped one. */
export function clipped(ratio: Node, advantages: Node, config: PolicyConfig): { plain: Node; clipped: Node } {
  const { low, high } = clipRange(config);
  const losses = o.neg(advantages);
  return { plain: o.mul(losses, ratio), clipped: o.mul(losses, o.clamp(ratio, 1 - low, 1 + high)) };
}

/** 1 where the condition holds, 0 elsewhere. */
export const indicator = (condition: Node): Node => o.cast(condition, "f32");

/** A metric that a loss has by name only. */
export const zero = (): Node => o.constant(0);
