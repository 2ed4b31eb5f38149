/**
 * The loss of rollout correction in bypass mode, where the log-probs of the sampler are used as the old policy's.
 *
 * `oldLogprobs` are the sampler's. The mask is what rejection left over and `rolloutWeights` are the importance
 * weights of the current policy over the sampler; both are computed by `correction/correct.ts` from whole batches,
 * so that micro-batches add up. Departure: verl computes them again in every micro-batch.
 */
import { unknownName } from "../../../util/errors.ts";
import type { BypassLoss } from "../../correction/config.ts";
import { vanilla } from "./clip.ts";
import { reinforce } from "./gradient.ts";
import { policyLoss } from "./policy-loss.ts";

/** `rollout_correction.loss_type`: PPO's clip, whose ratio already is current over sampler, or weighted REINFORCE. */
export const bypass_mode = policyLoss({
  name: "bypass_mode",
  fields: vanilla.fields,
  check(settings) {
    const { loss_type: type } = settings.rollout_correction;
    if (!Object.hasOwn(losses, type)) throw unknownName("`rollout_correction.loss_type`", type, Object.keys(losses));
    if (type === "ppo_clip") vanilla.check?.(settings);
  },
  build: (tensors, settings) => losses[settings.rollout_correction.loss_type](tensors, settings),
});

const losses: Readonly<Record<BypassLoss, typeof vanilla.build>> = {
  ppo_clip: (tensors, settings) => vanilla.build(tensors.unweighted(), settings),
  reinforce: (tensors, settings) => reinforce.build(tensors, settings),
};
