/** The policy losses by name (`policy_loss.loss_mode`): verl's, and those that users register. */
import { mergeTrees, type NoFields, type Tree } from "../../../util/field.ts";
import { registryOf } from "../../registry.ts";
import { bypass_mode } from "./bypass.ts";
import { cispo, sapo, vanilla } from "./clip.ts";
import { clip_cov, kl_cov } from "./covariance.ts";
import { dppo_kl, dppo_tv } from "./divergence.ts";
import { dro, gpg } from "./gradient.ts";
import { type PolicyLoss, sharedSettings } from "./policy-loss.ts";
import { geo_mean, gspo } from "./sequence.ts";

const builtIn = [
  vanilla,
  gspo,
  sapo,
  gpg,
  clip_cov,
  kl_cov,
  geo_mean,
  cispo,
  bypass_mode,
  dppo_tv,
  dppo_kl,
  dro,
] as const;

/** The keys of our losses: keys of `actor_rollout_ref.actor`. */
export const policyLossFields = mergeTrees(builtIn.map(({ fields }) => fields));

const registry = registryOf<PolicyLoss>(builtIn, {
  what: "a policy loss",
  subject: "`policy_loss.loss_mode`",
  shared: [...sharedSettings, ...Object.keys(policyLossFields)],
});

/** The names of all losses, in order of registration. */
export const policyLossNames = (): string[] => registry.names();

/** The loss of that name. */
export const findPolicyLoss = (name: string): PolicyLoss => registry.find(name);

/**
 * Make a loss of one's own available as `policy_loss.loss_mode`; its `fields` become the keys
 * `actor_rollout_ref.actor.policy_loss.own.NAME.KEY`. The result is the loss.
 */
export function registerPolicyLoss<const Fields extends Tree = NoFields>(loss: PolicyLoss<Fields>): PolicyLoss<Fields> {
  registry.register(loss);
  return loss;
}

/** The keys that registered losses bring, below their names. */
export const ownPolicyLossFields = (): Tree => registry.ownFields();
