/**
 * How per-token losses become one number: verl's `loss_agg_mode`, and what the terms of losses share.
 *
 * A term is a sum over rows divided by counts of the whole batch, which come in as scalars. So the losses,
 * gradients and metrics of micro-batches add up to those of the batch, however it is cut.
 *
 * Departures from verl: a batch without a counted token has loss 0 and gradient 0, not NaN. Rows without a counted
 * token are never counted. `dp_size` does not exist: gradients of workers are added, and an engine that averages them
 * multiplies by their number. `seq-mean-token-sum-norm` is a mean over rows as in verl 0.9; 0.7 forgot to divide.
 */
import type { Node } from "../../graph/node.ts";
import * as o from "../../graph/ops.ts";
import { invariant, UserError, unknownName } from "../../util/errors.ts";
import { choice, field, nullable, positive, type Resolved } from "../../util/field.ts";
import type { Rows, Version } from "../batch.ts";
import type { LossTensors } from "./token-loss.ts";

/**
 * Numbers that come with every batch: its counted tokens, its rows that have any, and the length a response may have
 * (which `seq-mean-token-sum-norm` divides by when `loss_scale_factor` is null).
 */
export const scalarNames = ["batch_tokens", "batch_rows", "response_length"] as const;
export type BatchScalars = Readonly<Record<(typeof scalarNames)[number], number>>;

/** The scalars of a whole batch, whatever micro-batches it is cut into. */
export function batchScalars(mask: Rows, responseLength: number): BatchScalars {
  let [tokens, rows] = [0, 0];
  for (const row of mask) {
    let count = 0;
    for (let t = 0; t < row.length; t++) if (row[t] !== 0) count++;
    tokens += count;
    if (count > 0) rows++;
  }
  return { batch_tokens: tokens, batch_rows: rows, response_length: responseLength };
}

/** The keys of aggregation: `actor_rollout_ref.actor` and `critic` have both. */
export const aggregateFields = {
  loss_agg_mode: field(
    choice("token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm", "token-sum"),
    "token-mean",
    "How per-token losses become one number.",
  ),
  loss_scale_factor: field(
    nullable(positive),
    null,
    "What seq-mean-token-sum-norm divides by; null for the longest response.",
  ),
};

export type AggregateOptions = Resolved<typeof aggregateFields> & { readonly version: Version };
export type AggregateMode = AggregateOptions["loss_agg_mode"];

type Aggregate = (x: Node, tensors: LossTensors, options: AggregateOptions) => Node;

/** `x` is 0 where the mask is. */
const modes: Readonly<Record<AggregateMode, Aggregate>> = {
  /** Every token of the batch weighs the same (DAPO, arXiv:2503.14476). */
  "token-mean": (x, tensors) => o.div(o.sum(x), countOf(tensors, "batch_tokens")),
  /** Every row weighs by its length. */
  "seq-mean-token-sum": (x, tensors) => meanOfRows(x, tensors),
  /** Every row weighs the same (GRPO, arXiv:2402.03300). */
  "seq-mean-token-mean": (x, tensors) => meanOfRows(rowMeans(x, tensors.mask), tensors),
  /** Rows weigh by their length, on a scale that does not depend on it (Dr. GRPO, arXiv:2503.20783). */
  "seq-mean-token-sum-norm": (x, tensors, { loss_scale_factor: factor, version }) => {
    const total = version === "0.7" ? o.sum(x) : meanOfRows(x, tensors);
    return o.div(total, factor ?? countOf(tensors, "response_length"));
  },
  "token-sum": (x) => o.sum(x),
};

export const aggregateModes: readonly string[] = Object.keys(modes);

/** One number from per-token losses [batch, time]; values where the mask is 0 do not matter. */
export function aggregate(x: Node, tensors: LossTensors, options: AggregateOptions): Node {
  const mode = modes[options.loss_agg_mode];
  if (mode === undefined) throw unknownName("`loss_agg_mode`", options.loss_agg_mode, aggregateModes);
  const { loss_scale_factor: factor } = options;
  if (factor !== null && !(factor > 0)) {
    throw new UserError(`\`loss_scale_factor\` is ${factor}: it divides the loss. Give a number above 0, or null.`);
  }
  return mode(masked(x, tensors.mask), tensors, options);
}

/** The mean over the counted tokens of the batch, of numbers or of how often something is true. */
export function tokenMean(x: Node, tensors: LossTensors): Node {
  const values = masked(o.cast(x, "f32"), tensors.mask);
  return o.stopGradient(o.div(o.sum(values), countOf(tensors, "batch_tokens")));
}

/** `x` where the mask is not 0 and 0 elsewhere, even where `x` is not a number. */
export function masked(x: Node, mask: Node): Node {
  return o.where(o.greater(mask, 0), x, 0);
}

/** The mean over the counted tokens of each row, [batch, 1]; 0 for a row that has none. */
export function rowMeans(x: Node, mask: Node): Node {
  const lengths = o.sum(o.cast(o.greater(mask, 0), "f32"), [1], true);
  return o.div(o.sum(masked(x, mask), [1], true), o.maximum(lengths, 1));
}

/** The sum over each row, as a mean over the rows of the batch that have a counted token. */
export function meanOfRows(x: Node, tensors: LossTensors): Node {
  return o.div(o.sum(x), countOf(tensors, "batch_rows"));
}

/** A tensor or scalar that the loss was promised. */
export function named(tensors: LossTensors, name: string): Node {
  const node = tensors[name];
  invariant(node !== undefined, `the loss reads \`${name}\`, which it was not given`);
  return node;
}

/** Nothing is counted in an empty batch; its sums are 0, and must not be divided by 0. */
function countOf(tensors: LossTensors, name: (typeof scalarNames)[number]): Node {
  return o.maximum(named(tensors, name), 1);
}
