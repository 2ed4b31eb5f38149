/**
 * Losses on one ratio per row: the geometric mean of its tokens' ratios, clipped as a whole (`gspo`) or token by token
 * before the mean (`geo_mean`). Both are functions of single rows, so micro-batches do not change them.
 *
 * Departures from verl: `gspo` follows `loss_agg_mode`, as verl 0.9 does; with version 0.7 it is always the mean of row
 * means. `geo_mean` is the mean over rows that have a counted token, where verl counts empty ones too; its
 * exponent stops at 40, where verl may overflow.
 */
import * as o from "../../../graph/ops.ts";
import { rowMeans } from "../aggregate.ts";
import { clipFields, clipped, clipRange, indicator, policyLoss, zero } from "./policy-loss.ts";

/**
 * GSPO-token (arXiv:2507.18071): PPO's clip on the row's ratio. Its value is the row's; its gradient goes to each
 * token as if the ratio were the token's own.
 */
export const gspo = policyLoss({
  name: "gspo",
  paper: "arXiv:2507.18071",
  fields: clipFields,
  check: (settings) => void clipRange(settings),
  build(tensors, settings) {
    const { logprobs, advantages, logRatio } = tensors;
    const ofRow = o.stopGradient(rowMeans(logRatio, tensors.mask));
    const own = o.sub(logprobs, o.stopGradient(logprobs)); // 0, with the gradient of the log-prob
    const ratio = o.exp(o.minimum(o.add(own, ofRow), 10));
    const losses = clipped(ratio, advantages, settings);
    const mode = settings.version === "0.7" ? "seq-mean-token-mean" : settings.loss_agg_mode;
    return {
      loss: tensors.total(o.maximum(losses.plain, losses.clipped), mode),
      metrics: {
        "actor/pg_clipfrac": tensors.mean(o.greater(losses.clipped, losses.plain)),
        "actor/ppo_kl": tensors.mean(o.neg(logRatio)),
        "actor/pg_clipfrac_lower": zero(),
      },
    };
  },
});

/**
 * GMPO (arXiv:2507.20673): -(mean advantage) x (geometric mean of clipped ratios) per row. The clip works on
 * log-ratios, on the side where moving on would gain. `loss_agg_mode` has no effect.
 */
export const geo_mean = policyLoss({
  name: "geo_mean",
  paper: "arXiv:2507.20673",
  fields: clipFields,
  check: (settings) => void clipRange(settings),
  build(tensors, settings) {
    const { mask, advantages, logRatio, rolloutWeights } = tensors;
    const { low, high } = clipRange(settings);
    const [isGood, isBad] = [indicator(o.greater(advantages, 0)), indicator(o.greater(0, advantages))];
    const sign = o.sub(isGood, isBad);
    const bounded = o.clamp(logRatio, -low, high);
    const cautious = o.mul(sign, o.minimum(o.mul(sign, logRatio), o.mul(sign, bounded)));
    const perRow = o.mul(o.neg(rowMeans(advantages, mask)), o.exp(o.minimum(rowMeans(cautious, mask), 40)));
    const weight = rolloutWeights === null ? 1 : o.exp(rowMeans(o.log(o.add(rolloutWeights, 1e-10)), mask));
    const isClipped = o.sub(1, indicator(o.equal(logRatio, bounded)));
    return {
      loss: tensors.totalOfRows(o.mul(perRow, weight)),
      metrics: {
        "actor/pg_clipfrac": tensors.mean(o.mul(isClipped, isGood)),
        "actor/ppo_kl": tensors.mean(o.neg(logRatio)),
        "actor/pg_clipfrac_lower": tensors.mean(o.mul(isClipped, isBad)),
      },
    };
  },
});
