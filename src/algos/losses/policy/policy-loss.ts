/**
 * What a policy loss is, what it is built from and which settings it reads.
 *
 * A policy loss is a small value: a name, its config keys, and a traced function of log-probs and advantages. Its tensors
 * are 0 outside the mask, so that nothing there can reach the loss or its gradient. It reduces them with `total` and
 * `mean`, which divide by counts of the whole batch.
 */
import type { Node } from "../../../graph/node.ts";
import * as o from "../../../graph/ops.ts";
import { UserError } from "../../../util/errors.ts";
import { above, field, type NoFields, nullable, number, type Resolved, type Tree } from "../../../util/field.ts";
import type { Random } from "../../../util/random.ts";
import type { FloatRows, Rows } from "../../batch.ts";
import type { BypassLoss } from "../../correction/config.ts";
import {
  type AggregateMode,
  type AggregateOptions,
  aggregate,
  aggregateFields,
  masked,
  meanOfRows,
  named,
  tokenMean,
} from "../aggregate.ts";
import type { Extra, LossParts, LossTensors } from "../token-loss.ts";

/**
 * Keys of `actor_rollout_ref.actor` that several losses read. Departure from verl: the two sides follow `clip_ratio`, which
 * has no effect there, because verl sets both.
 */
export const clipFields = {
  clip_ratio: field(number(0), 0.2, "How far the ratio of new to old probability may move from 1 and still count."),
  clip_ratio_low: field(
    nullable(number(0)),
    "${actor_rollout_ref.actor.clip_ratio}",
    "The same downwards; null for clip_ratio.",
  ),
  clip_ratio_high: field(
    nullable(number(0)),
    "${actor_rollout_ref.actor.clip_ratio}",
    "The same upwards; null for clip_ratio.",
  ),
};
export const clip_ratio_c = field(
  above(1),
  3.0,
  "Dual clip: the largest ratio that counts where the advantage is negative.",
);

/** What every policy loss is given, with verl's names. */
type SharedSettings = AggregateOptions &
  Resolved<typeof clipFields> & {
    /** The keys of `algorithm.rollout_correction` that say which loss bypass mode has. */
    readonly rollout_correction: { readonly loss_type: BypassLoss };
  };

/** The names of what every policy loss is given. */
export const sharedSettings: readonly string[] = [
  ...Object.keys(aggregateFields),
  ...Object.keys(clipFields),
  "version",
  "rollout_correction",
];

/** What a policy loss is given: the shared settings, and the values of its own fields. */
export type PolicySettings<Fields extends Tree = NoFields> = SharedSettings & Resolved<Fields>;

/** The tensors of one micro-batch, [batch, time] each and 0 outside the mask, and the two ways to reduce them. */
export type PolicyTensors = {
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
  /** The same tensors without rollout weights. */
  unweighted(): PolicyTensors;
};

/** What is known of a whole batch before it is cut; `logprobs` are the policy's own, as it is now. */
export type PolicyBatch = {
  readonly logprobs: Rows;
  readonly oldLogprobs: Rows;
  readonly advantages: Rows;
  readonly mask: Rows;
};

/** A policy loss as a value. */
export type PolicyLoss<Fields extends Tree = Tree> = {
  /** As in `policy_loss.loss_mode`. */
  readonly name: string;
  readonly paper?: string;
  /**
   * Its config keys: ours are keys of `actor_rollout_ref.actor`, those of a registered loss stand below
   * `actor_rollout_ref.actor.policy_loss.own.NAME`.
   */
  readonly fields?: Fields;
  /** Tensors it reads besides old log-probs and advantages; `prepare` makes them, or the trainer does. */
  readonly extra?: readonly Extra[];
  /** Stop if the settings make no sense; asked before a run starts. */
  check?(settings: PolicySettings<Fields>): void;
  /** Tensors that depend on all rows of a batch together, made once before it is cut into micro-batches. */
  prepare?(batch: PolicyBatch, settings: PolicySettings<Fields>, random: Random): Readonly<Record<string, FloatRows>>;
  build(tensors: PolicyTensors, settings: PolicySettings<Fields>): LossParts;
};

/** A loss whose settings are typed by its fields. */
export function policyLoss<const Fields extends Tree>(
  value: PolicyLoss<Fields> & { readonly fields: Fields },
): PolicyLoss<Fields> & { readonly fields: Fields } {
  return value;
}

/** Tensors every policy loss reads. */
export const policyExtra: readonly Extra[] = ["oldLogprobs", "advantages"];

/** The tensors of a micro-batch; its rollout weights are those that `tensors` has, if any. */
export function policyTensors(
  tensors: LossTensors,
  settings: PolicySettings,
  { isWeighted = true } = {},
): PolicyTensors {
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
    total: (tokenLoss, mode = settings.loss_agg_mode) =>
      aggregate(weights === null ? tokenLoss : o.mul(tokenLoss, weights), tensors, {
        ...settings,
        loss_agg_mode: mode,
      }),
    totalOfRows: (rowLoss) => meanOfRows(rowLoss, tensors),
    mean: (x) => tokenMean(x, tensors),
    unweighted: () => policyTensors(tensors, settings, { isWeighted: false }),
  };
}

// ---------------------------------------------------------------- what losses share

/** The log-ratio within ±20, where its exponential is a number that single precision holds. */
export const safeLogRatio = (tensors: PolicyTensors): Node => o.clamp(tensors.logRatio, -20, 20);

/** The ratio without verl's bounds, up to e^40, so that gradients and their squares stay finite in single precision. */
export const wholeRatio = (tensors: PolicyTensors): Node => o.exp(o.clamp(tensors.logRatio, -40, 40));

/** The two ends of the clip range, as distances from where the policies agree. */
export function clipRange(settings: PolicySettings): { low: number; high: number } {
  const { clip_ratio, clip_ratio_low, clip_ratio_high } = settings;
  const [low, high] = [clip_ratio_low ?? clip_ratio, clip_ratio_high ?? clip_ratio];
  for (const [key, value] of Object.entries({ clip_ratio_low: low, clip_ratio_high: high })) {
    if (!(value >= 0)) throw new UserError(`\`${key}\` is ${value}. Give a number from 0 up; verl's is 0.2.`);
  }
  return { low, high };
}

/** PPO's pair of token losses: at the ratio as it is, and at the clipped one. */
export function clipped(ratio: Node, advantages: Node, settings: PolicySettings): { plain: Node; clipped: Node } {
  const { low, high } = clipRange(settings);
  const losses = o.neg(advantages);
  return { plain: o.mul(losses, ratio), clipped: o.mul(losses, o.clamp(ratio, 1 - low, 1 + high)) };
}

/** 1 where the condition holds, 0 elsewhere. */
export const indicator = (condition: Node): Node => o.cast(condition, "f32");

/** A metric that a loss has by name only. */
export const zero = (): Node => o.constant(0);
