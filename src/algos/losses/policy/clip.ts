/**
 * Losses on a ratio per token that is held near 1: by a hard clip (`vanilla`), by a clip of the weight alone (`cispo`),
 * by a soft gate (`sapo`).
 *
 * Departures from verl: none in value. `sapo` is always the mean of row means, as in both versions of verl.
 */
import * as o from "../../../graph/ops.ts";
import { UserError } from "../../../util/errors.ts";
import { field, positive } from "../../../util/field.ts";
import {
  clip_ratio_c,
  clipFields,
  clipped,
  clipRange,
  indicator,
  policyLoss,
  safeLogRatio,
  zero,
} from "./policy-loss.ts";

/**
 * PPO's clipped objective (arXiv:1707.06347) with two clip ratios (DAPO, arXiv:2503.14476) and the dual clip
 * (arXiv:1912.09729): where the advantage is negative, a ratio above `clip_ratio_c` counts no more than that.
 */
export const vanilla = policyLoss({
  name: "vanilla",
  paper: "arXiv:1707.06347",
  fields: { ...clipFields, clip_ratio_c },
  check(settings) {
    clipRange(settings);
    const { clip_ratio_c: most } = settings;
    if (most > 1) return;
    throw new UserError(
      `\`clip_ratio_c\` is ${most}: the largest ratio that counts is above 1. Leave it at verl's 3, or raise it.`,
    );
  },
  build(tensors, settings) {
    const { advantages } = tensors;
    const logRatio = safeLogRatio(tensors);
    const losses = clipped(o.exp(logRatio), advantages, settings);
    // The larger loss is the pessimistic one: a ratio that has already moved past the clip gains nothing more.
    const once = o.maximum(losses.plain, losses.clipped);
    const bound = o.mul(advantages, -settings.clip_ratio_c);
    const isBad = o.greater(0, advantages);
    return {
      loss: tensors.total(o.where(isBad, o.minimum(bound, once), once)),
      metrics: {
        "actor/pg_clipfrac": tensors.mean(o.greater(losses.clipped, losses.plain)),
        "actor/ppo_kl": tensors.mean(o.neg(logRatio)),
        "actor/pg_clipfrac_lower": tensors.mean(o.mul(indicator(o.greater(once, bound)), indicator(isBad))),
      },
    };
  },
});

/**
 * CISPO (MiniMax-M1, arXiv:2506.13585): REINFORCE weighted by the clipped ratio, which no gradient goes through. The
 * clip takes the gradient from no token.
 */
export const cispo = policyLoss({
  name: "cispo",
  paper: "arXiv:2506.13585",
  fields: clipFields,
  check: (settings) => void clipRange(settings),
  build(tensors, settings) {
    const { low, high } = clipRange(settings);
    const logRatio = safeLogRatio(tensors);
    const ratio = o.stopGradient(o.exp(logRatio));
    const weight = o.clamp(ratio, 1 - low, 1 + high);
    return {
      loss: tensors.total(o.neg(o.mul(o.mul(weight, tensors.advantages), tensors.logprobs))),
      metrics: {
        "actor/pg_clipfrac": tensors.mean(o.sub(1, indicator(o.equal(ratio, weight)))),
        "actor/ppo_kl": tensors.mean(o.neg(logRatio)),
        "actor/pg_clipfrac_lower": zero(),
      },
    };
  },
});

const tau_pos = field(positive, 1.0, "Temperature of sapo's gate where the advantage is positive.");
const tau_neg = field(positive, 1.05, "Temperature of sapo's gate where it is negative.");

/**
 * SAPO (arXiv:2511.20347): a sigmoid gate instead of a clip, sharper (`tau_neg`) where the advantage is not positive.
 * The gate's slope at ratio 1 is that of the plain objective.
 */
export const sapo = policyLoss({
  name: "sapo",
  paper: "arXiv:2511.20347",
  fields: { tau_pos, tau_neg },
  check(settings) {
    for (const key of ["tau_pos", "tau_neg"] as const) {
      if (settings[key] > 0) continue;
      throw new UserError(`\`${key}\` is ${settings[key]}: it divides. Give a number above 0, such as 1.`);
    }
  },
  build(tensors, settings) {
    const logRatio = safeLogRatio(tensors);
    const past = o.sub(o.exp(logRatio), 1);
    const gate = (tau: number) => o.mul(o.sigmoid(o.mul(past, tau)), 4 / tau);
    const gates = o.where(o.greater(tensors.advantages, 0), gate(settings.tau_pos), gate(settings.tau_neg));
    return {
      loss: tensors.total(o.neg(o.mul(gates, tensors.advantages)), "seq-mean-token-mean"),
      metrics: {
        "actor/pg_clipfrac": zero(),
        "actor/ppo_kl": tensors.mean(o.neg(logRatio)),
        "actor/pg_clipfrac_lower": zero(),
      },
    };
  },
});
