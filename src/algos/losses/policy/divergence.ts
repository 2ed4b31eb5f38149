/**
 * DPPO (arXiv:2602.04879): a token stops learning when its own probability has moved too far, not its ratio.
 *
 * A ratio means little for rare tokens, whose probability may double without consequence, and for likely ones. Both
 * losses are REINFORCE weighted by the ratio up to `clip_ratio_c`, on tokens that are kept: those within a divergence
 * from the old policy, or on their way back. Here `clip_ratio_low` and `clip_ratio_high` are bounds on the divergence.
 */
import type { Node } from "../../../graph/node.ts";
import * as o from "../../../graph/ops.ts";
import type { LossParts } from "../token-loss.ts";
import {
  clip_ratio_c,
  clipFields,
  clipRange,
  indicator,
  type PolicySettings,
  type PolicyTensors,
  policyLoss,
  safeLogRatio,
} from "./policy-loss.ts";

const dppoFields = { ...clipFields, clip_ratio_c };

/** Total variation of the token's own probability: |p - p_old|. */
export const dppo_tv = policyLoss({
  name: "dppo_tv",
  paper: "arXiv:2602.04879",
  fields: dppoFields,
  check: (settings) => void clipRange(settings),
  build(tensors, settings) {
    const { low, high } = clipRange(settings);
    const moved = o.sub(o.exp(tensors.logprobs), o.exp(tensors.oldLogprobs));
    const isOut = o.where(o.greater(tensors.advantages, 0), over(moved, high), over(o.neg(moved), low));
    return truncated(tensors, settings, o.sub(1, isOut));
  },
});

/** KL between "this token" and "any other", under the old and the new policy. */
export const dppo_kl = policyLoss({
  name: "dppo_kl",
  paper: "arXiv:2602.04879",
  fields: dppoFields,
  check: (settings) => void clipRange(settings),
  build(tensors, settings) {
    const { low, high } = clipRange(settings);
    const [p, old] = [o.exp(tensors.logprobs), o.exp(tensors.oldLogprobs)];
    const rest = (probability: Node) => o.log(o.add(o.maximum(o.sub(1, probability), 0), 1e-8));
    const kl = o.sub(o.mul(o.sub(1, old), o.sub(rest(old), rest(p))), o.mul(old, tensors.logRatio));
    const isOut = o.where(
      o.greater(tensors.advantages, 0),
      o.mul(over(kl, high), indicator(o.greater(p, old))),
      o.mul(over(kl, low), indicator(o.greater(old, p))),
    );
    return truncated(tensors, settings, o.sub(1, isOut));
  },
});

const over = (x: Node, bound: number): Node => indicator(o.greater(x, bound));

/** REINFORCE with the ratio up to `clip_ratio_c` as a weight, on kept tokens. */
function truncated(
  tensors: PolicyTensors,
  { clip_ratio_c: most }: PolicySettings<typeof dppoFields>,
  kept: Node,
): LossParts {
  const logRatio = safeLogRatio(tensors);
  const ratio = o.stopGradient(o.exp(logRatio));
  const weight = o.mul(o.minimum(ratio, most), o.stopGradient(kept));
  return {
    loss: tensors.total(o.neg(o.mul(o.mul(weight, tensors.advantages), tensors.logprobs))),
    metrics: {
      "actor/pg_clipfrac": tensors.mean(o.sub(1, kept)),
      "actor/ppo_kl": tensors.mean(o.neg(logRatio)),
      "actor/pg_clipfrac_lower": tensors.mean(o.mul(kept, indicator(o.greater(ratio, most)))),
    },
  };
}
