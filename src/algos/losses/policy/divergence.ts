/**
 * DPPO (arXiv:2602.04879): a token stops learning when its own probability has moved too far, not its ratio.
 *
 * A ratio says little about rare tokens, whose probability may double without consequence, and about likely ones. Both
 * losses are REINFORCE weighted by the ratio up to `clip_ratio_c`, on tokens that are kept: those within a divergence
 * from the old policy, or on their way back. Here `clip_ratio_low` and `clip_ratio_high` are bounds on the divergence.
 */
import type { Node } from "../../../graph/node.ts";
import * as o from "../../../graph/ops.ts";
import type { LossParts } from "../aggregate.ts";
import {
  clipRange,
  indicator,
  type PolicyConfig,
  type PolicyLoss,
  type PolicyTerms,
  safeLogRatio,
} from "./policy-loss.ts";

/** Total variation of the token's own probability: |p - p_old|. */
export const dppo_tv: PolicyLoss = {
  name: "dppo_tv",
  build(terms, config) {
    const { low, high } = clipRange(config);
    const moved = o.sub(o.exp(terms.logprobs), o.exp(terms.oldLogprobs));
    const isOut = o.where(o.greater(terms.advantages, 0), over(moved, high), over(o.neg(moved), low));
    return truncated(terms, config, o.sub(1, isOut));
  },
};

/** KL between "this token" and "any other", under the old and the new policy. */
export const dppo_kl: PolicyLoss = {
  name: "dppo_kl",
  build(terms, config) {
    const { low, high } = clipRange(config);
    const [p, old] = [o.exp(terms.logprobs), o.exp(terms.oldLogprobs)];
    const rest = (probability: Node) => o.log(o.add(o.maximum(o.sub(1, probability), 0), 1e-8));
    const kl = o.sub(o.mul(o.sub(1, old), o.sub(rest(old), rest(p))), o.mul(old, terms.logRatio));
    const isOut = o.where(
      o.greater(terms.advantages, 0),
      o.mul(over(kl, high), indicator(o.greater(p, old))),
      o.mul(over(kl, low), indicator(o.greater(old, p))),
    );
    return truncated(terms, config, o.sub(1, isOut));
  },
};

const over = (x: Node, bound: number): Node => indicator(o.greater(x, bound));

/** REINFORCE with the ratio up to `clip_ratio_c` as a weight, on kept tokens. */
function truncated(terms: PolicyTerms, { clip_ratio_c: most }: PolicyConfig, kept: Node): LossParts {
  const logRatio = safeLogRatio(terms);
  const ratio = o.stopGradient(o.exp(logRatio));
  const weight = o.mul(o.minimum(ratio, most), o.stopGradient(kept));
  return {
    loss: terms.total(o.neg(o.mul(o.mul(weight, terms.advantages), terms.logprobs))),
    metrics: {
      "actor/pg_clipfrac": terms.mean(o.sub(1, kept)),
      "actor/ppo_kl": terms.mean(o.neg(logRatio)),
      "actor/pg_clipfrac_lower": terms.mean(o.mul(kept, indicator(o.greater(ratio, most)))),
    },
  };
}
