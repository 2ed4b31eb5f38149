/**
 * The loss of rollout correction in bypass mode, where the log-probs of the sampler stand in for the old policy's.
 *
 * `oldLogprobs` are the sampler's. The mask is what rejection left over and `rolloutWeights` are the importance
 * weights of the current policy over the sampler; both are computed by `rollout-correction.ts` from whole batches and
 * given, so that micro-batches add up. Departure: verl computes them anew in every micro-batch.
 */
import { unknownName } from "../../../util/errors.ts";
import { vanilla } from "./clip.ts";
import { reinforce } from "./gradient.ts";
import type { PolicyLoss } from "./policy-loss.ts";

/** `rollout_correction.loss_type`: PPO's clip, whose ratio already is current over sampler, or weighted REINFORCE. */
export const bypass_mode: PolicyLoss = {
  name: "bypass_mode",
  build(terms, config) {
    const { loss_type: type } = config.policy_loss.rollout_correction;
    if (type === "ppo_clip") return vanilla.build(terms.unweighted(), config);
    if (type === "reinforce") return reinforce.build(terms, config);
    throw unknownName("`rollout_correction.loss_type`", type, ["ppo_clip", "reinforce"]);
  },
};
