/**
 * Losses on a ratio per token that is held near 1: by a hard clip (`vanilla`), by a clip of the weight alone (`cispo`),
 * by a soft gate (`sapo`).
 *
 * Departures from verl: none in value. `sapo` is always the mean of row means, as in both versions of verl.
 */
import * as o from "../../../graph/ops.ts";
import { UserError } from "../../../util/errors.ts";
import { clipped, clipRange, indicator, type PolicyLoss, safeLogRatio, zero } from "./policy-loss.ts";

/**
 * PPO's clipped objective (arXiv:1707.06347) with two clip ratios (DAPO, arXiv:2503.14476) and the dual clip
 * (arXiv:1912.09729): where the advantage is negative, a ratio above `clip_ratio_c` counts no more than that.
 */
export const vanilla: PolicyLoss = {
  name: "vanilla",
  build(terms, config) {
    const { advantages } = terms;
    const { clip_ratio_c: most } = config;
    if (!(most > 1)) {
      throw new UserError(
        `\`clip_ratio_c\` is ${most}: the largest ratio that counts is above 1. Leave it at verl's 3, or raise it.`,
      );
    }
    const logRatio = safeLogRatio(terms);
    const losses = clipped(o.exp(logRatio), advantages, config);
    // The larger loss is the pessimistic one: a ratio that has already moved past the clip earns nothing more.
    const once = o.maximum(losses.plain, losses.clipped);
    const bound = o.mul(advantages, -most);
    const isBad = o.greater(0, advantages);
    return {
      loss: terms.total(o.where(isBad, o.minimum(bound, once), once)),
      metrics: {
        "actor/pg_clipfrac": terms.mean(o.greater(losses.clipped, losses.plain)),
        "actor/ppo_kl": terms.mean(o.neg(logRatio)),
        "actor/pg_clipfrac_lower": terms.mean(o.mul(indicator(o.greater(once, bound)), indicator(isBad))),
      },
    };
  },
};

/**
 * CISPO (MiniMax-M1, arXiv:2506.13585): REINFORCE weighted by the clipped ratio, which no gradient goes through. No
 * token is silenced by the clip.
 */
export const cispo: PolicyLoss = {
  name: "cispo",
  build(terms, config) {
    const { low, high } = clipRange(config);
    const logRatio = safeLogRatio(terms);
    const ratio = o.stopGradient(o.exp(logRatio));
    const weight = o.clamp(ratio, 1 - low, 1 + high);
    return {
      loss: terms.total(o.neg(o.mul(o.mul(weight, terms.advantages), terms.logprobs))),
      metrics: {
        "actor/pg_clipfrac": terms.mean(o.sub(1, indicator(o.equal(ratio, weight)))),
        "actor/ppo_kl": terms.mean(o.neg(logRatio)),
        "actor/pg_clipfrac_lower": zero(),
      },
    };
  },
};

/**
 * SAPO (arXiv:2511.20347): a sigmoid gate instead of a clip, sharper (`tau_neg`) where the advantage is not positive.
 * The gate's slope at ratio 1 is that of the plain objective.
 */
export const sapo: PolicyLoss = {
  name: "sapo",
  build(terms, { tau_pos, tau_neg }) {
    for (const [key, value] of Object.entries({ tau_pos, tau_neg })) {
      if (!(value > 0)) throw new UserError(`\`${key}\` is ${value}: it divides. Give a number above 0, such as 1.`);
    }
    const logRatio = safeLogRatio(terms);
    const past = o.sub(o.exp(logRatio), 1);
    const gate = (tau: number) => o.mul(o.sigmoid(o.mul(past, tau)), 4 / tau);
    const gates = o.where(o.greater(terms.advantages, 0), gate(tau_pos), gate(tau_neg));
    return {
      loss: terms.total(o.neg(o.mul(gates, terms.advantages)), "seq-mean-token-mean"),
      metrics: {
        "actor/pg_clipfrac": zero(),
        "actor/ppo_kl": terms.mean(o.neg(logRatio)),
        "actor/pg_clipfrac_lower": zero(),
      },
    };
  },
};
