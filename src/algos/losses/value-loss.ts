/**
 * What the critic is trained on: half the squared error of its values. A value that moved further from the old one than
 * `cliprange_value` counts as if it had stopped there, if that is the larger error (PPO2's value clipping).
 *
 * With a range of 0 a value learns until it has moved at all, and then only if that made it worse. At such a kink, as at
 * the edge of the range, ours takes the slope of the plain error, and torch a mean of the two.
 *
 * Departure from verl 0.7: the loss is divided by counts of the whole batch, as in 0.9, not of each micro-batch.
 */
import * as o from "../../graph/ops.ts";
import { UserError } from "../../util/errors.ts";
import { field, number, type Resolved } from "../../util/field.ts";
import { type AggregateOptions, aggregate, masked, named, scalarNames, tokenMean } from "./aggregate.ts";
import { combineTerms, type LossTerm, type TokenLoss } from "./token-loss.ts";

/** Keys of `critic`. */
export const valueLossFields = {
  cliprange_value: field(number(0), 0.5, "How far a value may move in one step and still count."),
};

export type CriticSettings = AggregateOptions & Resolved<typeof valueLossFields>;

/** The critic's loss. */
export function valueLoss(settings: CriticSettings): TokenLoss {
  return combineTerms("critic", `critic ${JSON.stringify(settings)}`, [valueTerm(settings)]);
}

/** It reads `oldValues` and `returns`. */
function valueTerm(settings: CriticSettings): LossTerm {
  const { cliprange_value: range } = settings;
  if (!(range >= 0)) {
    throw new UserError(
      `\`cliprange_value\` is ${range}. Give a number of at least 0; a large one turns the clip off.`,
    );
  }
  return {
    name: "critic/vf_loss",
    weight: 1,
    heads: ["values"],
    extra: ["oldValues", "returns"],
    scalars: scalarNames,
    build(tensors) {
      const read = (name: string) => masked(named(tensors, name), tensors.mask);
      const [values, old, returns] = [
        read("values"),
        o.stopGradient(read("oldValues")),
        o.stopGradient(read("returns")),
      ];
      const near = o.maximum(o.minimum(values, o.add(old, range)), o.sub(old, range));
      const [plain, clipped] = [o.square(o.sub(values, returns)), o.square(o.sub(near, returns))];
      return {
        loss: o.mul(aggregate(o.maximum(plain, clipped), tensors, settings), 0.5),
        metrics: {
          "critic/vf_clipfrac": tokenMean(o.greater(clipped, plain), tensors),
          "critic/vpred_mean": tokenMean(values, tensors),
        },
      };
    },
  };
}
