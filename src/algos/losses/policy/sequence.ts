/**
 * Losses on one ratio per row: the geometric mean of its tokens' ratios, clipped as a whole (`gspo`) or token by token
 * before the mean (`geo_mean`). Both are functions of single rows, so micro-batches change nothing.
 *
 * Departures from verl: `gspo` obeys `loss_agg_mode`, as verl 0.9 does; with version 0.7 it is always the mean of row
 * means. `geo_mean` is the mean over rows that have a counted token, where verl counts empty ones too; its
 * exponent stops at 40, where verl may overflow.
 */
import * as o from "../../../graph/ops.ts";
import { rowMeans } from "../aggregate.ts";
import { clipped, clipRange, indicator, type PolicyLoss, zero } from "./policy-loss.ts";

/**
 * GSPO-token (arXiv:2507.18071): PPO's clip on the row's ratio. Its value is the row's; its gradient goes to each
 * token as if the ratio were the token's own.
 */
export const gspo: PolicyLoss = {
  name: "gspo",
  build(terms, config) {
    const { logprobs, advantages, logRatio } = terms;
    const ofRow = o.stopGradient(rowMeans(logRatio, terms.mask));
    const own = o.sub(logprobs, o.stopGradient(logprobs)); // 0, with the gradient of the log-prob
    const ratio = o.exp(o.minimum(o.add(own, ofRow), 10));
    const losses = clipped(ratio, advantages, config);
    const mode = config.version === "0.7" ? "seq-mean-token-mean" : config.loss_agg_mode;
    return {
      loss: terms.total(o.maximum(losses.plain, losses.clipped), mode),
      metrics: {
        "actor/pg_clipfrac": terms.mean(o.greater(losses.clipped, losses.plain)),
        "actor/ppo_kl": terms.mean(o.neg(logRatio)),
        "actor/pg_clipfrac_lower": zero(),
      },
    };
  },
};

/**
 * GMPO (arXiv:2507.20673): -(mean advantage) x (geometric mean of clipped ratios) per row. The clip works on
 * log-ratios, on the side where moving on would gain. `loss_agg_mode` has no say.
 */
export const geo_mean: PolicyLoss = {
  name: "geo_mean",
  build(terms, config) {
    const { mask, advantages, logRatio, rolloutWeights } = terms;
    const { low, high } = clipRange(config);
    const [isGood, isBad] = [indicator(o.greater(advantages, 0)), indicator(o.greater(0, advantages))];
    const sign = o.sub(isGood, isBad);
    const bounded = o.clamp(logRatio, -low, high);
    const cautious = o.mul(sign, o.minimum(o.mul(sign, logRatio), o.mul(sign, bounded)));
    const perRow = o.mul(o.neg(rowMeans(advantages, mask)), o.exp(o.minimum(rowMeans(cautious, mask), 40)));
    const weight = rolloutWeights === null ? 1 : o.exp(rowMeans(o.log(o.add(rolloutWeights, 1e-10)), mask));
    const isClipped = o.sub(1, indicator(o.equal(logRatio, bounded)));
    return {
      loss: terms.totalOfRows(o.mul(perRow, weight)),
      metrics: {
        "actor/pg_clipfrac": terms.mean(o.mul(isClipped, isGood)),
        "actor/ppo_kl": terms.mean(o.neg(logRatio)),
        "actor/pg_clipfrac_lower": terms.mean(o.mul(isClipped, isBad)),
      },
    };
  },
};
