/** The policy losses by name (`policy_loss.loss_mode`): verl's, and those that users register. */
import { mergeTrees, type NoFields, type Registered, type Tree } from "../../../util/field.ts";
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

/** The names of ours, for typed configs; `registry.test.ts` compares them with the values. */
export type PolicyLossName =
  | "vanilla"
  | "gspo"
  | "sapo"
  | "gpg"
  | "clip_cov"
  | "kl_cov"
  | "geo_mean"
  | "cispo"
  | "bypass_mode"
  | "dppo_tv"
  | "dppo_kl"
  | "dro";

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
 * `actor_rollout_ref.actor.policy_loss.own.NAME.KEY`. The result is the loss; its `name` goes into a typed config.
 */
export function registerPolicyLoss<const Fields extends Tree = NoFields>(
  loss: PolicyLoss<Fields>,
): Registered<PolicyLoss<Fields>> {
  registry.register(loss);
  return loss as Registered<PolicyLoss<Fields>>; // now it is
}

/** The keys that registered losses bring, below their names. */
export const ownPolicyLossFields = (): Tree => registry.ownFields();
