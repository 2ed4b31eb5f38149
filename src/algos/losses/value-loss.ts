/**
 * What the critic is trained on: half the squared error of its values, where a value that moved further from the old
 * one than `cliprange_value` counts as if it had stopped there, if that is the larger error (PPO2's value clipping).
 *
 * Departure from verl 0.7: the loss is divided by counts of the whole batch, as in 0.9, not of each micro-batch.
 */
import * as o from "../../graph/ops.ts";
import { UserError } from "../../util/errors.ts";
import {
  type AggregateOptions,
  aggregate,
  masked,
  named,
  scalarNames,
  type TracedLoss,
  tokenMean,
} from "./aggregate.ts";

/** Keys of `critic`, with verl's names. */
export type CriticConfig = AggregateOptions & { readonly cliprange_value: number };

export const criticDefaults: CriticConfig = {
  loss_agg_mode: "token-mean",
  loss_scale_factor: null,
  version: "0.9",
  cliprange_value: 0.5,
};

/** The critic's loss: it reads `oldValues` and `returns`. */
export function valueLoss(config: CriticConfig): TracedLoss {
  const { cliprange_value: range } = config;
  if (!(range > 0)) {
    throw new UserError(`\`cliprange_value\` is ${range}. Give a number above 0; a large one turns the clip off.`);
  }
  return {
    key: `critic ${JSON.stringify(config)}`,
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
      const loss = o.mul(aggregate(o.maximum(plain, clipped), tensors, config), 0.5);
      return {
        loss,
        metrics: {
          "critic/vf_loss": loss,
          "critic/vf_clipfrac": tokenMean(o.greater(clipped, plain), tensors),
          "critic/vpred_mean": tokenMean(values, tensors),
        },
      };
    },
  };
}
