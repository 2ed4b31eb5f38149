/**
 * What the actor is trained on: a policy loss, minus a bonus for entropy, plus a penalty on the KL to the reference.
 *
 * All three are aggregated in the same way. Entropy and reference are read only when they weigh something, for both
 * cost a good part of a forward pass.
 */
import * as o from "../../graph/ops.ts";
import { UserError } from "../../util/errors.ts";
import { klEstimate, klPenalty } from "../kl/estimates.ts";
import {
  aggregate,
  type LossParts,
  masked,
  named,
  scalarNames,
  type TokenTensors,
  type TracedLoss,
} from "./aggregate.ts";
import { type PolicyConfig, policyDefaults, policyExtra, policyTerms } from "./policy/policy-loss.ts";
import { findPolicyLoss } from "./policy/registry.ts";

/** Keys of `actor_rollout_ref.actor`, with verl's names. */
export type ActorConfig = PolicyConfig & {
  readonly policy_loss: PolicyConfig["policy_loss"] & { readonly loss_mode: string };
  readonly entropy_coeff: number;
  readonly use_kl_loss: boolean;
  readonly kl_loss_coef: number;
  readonly kl_loss_type: string;
};

export const actorDefaults: ActorConfig = {
  ...policyDefaults,
  policy_loss: { ...policyDefaults.policy_loss, loss_mode: "vanilla" },
  entropy_coeff: 0,
  use_kl_loss: false,
  kl_loss_coef: 0.001,
  kl_loss_type: "low_var_kl",
};

/**
 * The actor's loss. It reads `oldLogprobs`, `advantages`, what the policy loss names, `refLogprobs` with `use_kl_loss`
 * and `rolloutWeights` with `hasRolloutWeights`; its scalars are `batchScalars`.
 */
export function actorLoss(config: ActorConfig, { hasRolloutWeights = false } = {}): TracedLoss {
  const policy = findPolicyLoss(config.policy_loss.loss_mode);
  const { entropy_coeff, use_kl_loss, kl_loss_coef, kl_loss_type } = config;
  for (const [key, value] of Object.entries({ entropy_coeff, kl_loss_coef })) {
    if (!Number.isFinite(value)) throw new UserError(`\`${key}\` is ${value}. Give a number; 0 turns it off.`);
  }
  if (use_kl_loss) klEstimate(kl_loss_type); // an unknown kind is told now, not in the first update
  const hasEntropy = entropy_coeff !== 0;
  const terms: ((tensors: TokenTensors) => { name: string; value: LossParts["loss"]; weight: number })[] = [];
  if (hasEntropy) {
    terms.push((tensors) => ({
      name: "actor/entropy_loss",
      value: aggregate(named(tensors, "entropy"), tensors, config),
      weight: -entropy_coeff,
    }));
  }
  if (use_kl_loss) {
    terms.push((tensors) => {
      const reference = o.stopGradient(masked(named(tensors, "refLogprobs"), tensors.mask));
      const kl = klPenalty(masked(named(tensors, "logprobs"), tensors.mask), reference, kl_loss_type);
      return { name: "actor/kl_loss", value: aggregate(kl, tensors, config), weight: kl_loss_coef };
    });
  }
  return {
    key: `actor ${hasRolloutWeights} ${JSON.stringify(config)}`,
    heads: hasEntropy ? ["logprobs", "entropy"] : ["logprobs"],
    extra: [
      ...policyExtra,
      ...(policy.extra ?? []),
      ...(use_kl_loss ? ["refLogprobs"] : []),
      ...(hasRolloutWeights ? ["rolloutWeights"] : []),
    ],
    scalars: scalarNames,
    build(tensors) {
      const { loss, metrics } = policy.build(policyTerms(tensors, config), config);
      const parts = terms.map((term) => term(tensors));
      return {
        loss: parts.reduce((total, { value, weight }) => o.add(total, o.mul(value, weight)), loss),
        metrics: {
          "actor/pg_loss": loss,
          ...metrics,
          ...Object.fromEntries(parts.map(({ name, value }) => [name, value])),
        },
      };
    },
  };
}
