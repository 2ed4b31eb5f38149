/**
 * What the actor is trained on: a policy loss, minus a bonus for entropy, plus a penalty on the KL to the reference.
 *
 * All three are aggregated in the same way. A further term is one more file and one more line here.
 */
import type { Resolved } from "../../util/field.ts";
import { scalarNames } from "./aggregate.ts";
import { type entropyFields, entropyTerm } from "./entropy-term.ts";
import { klTerm, type klTermFields } from "./kl-term.ts";
import { type PolicySettings, policyExtra, policyTensors } from "./policy/policy-loss.ts";
import { findPolicyLoss, type policyLossFields } from "./policy/registry.ts";
import { combineTerms, type LossTerm, type TokenLoss } from "./token-loss.ts";

/** Keys of `actor_rollout_ref.actor`, with verl's names, and the own keys of a registered policy loss beside them. */
export type ActorSettings = PolicySettings<typeof policyLossFields> &
  Resolved<typeof entropyFields & typeof klTermFields> & {
    readonly policy_loss: { readonly loss_mode: string };
  } & Readonly<Record<string, unknown>>;

type ActorLossOptions = {
  /** Whether rows have weights of rollout correction, `rolloutWeights`. */
  readonly hasRolloutWeights?: boolean;
};

/** The actor's loss. */
export function actorLoss(settings: ActorSettings, { hasRolloutWeights = false }: ActorLossOptions = {}): TokenLoss {
  const terms = [policyTerm(settings, hasRolloutWeights), ...entropyTerm(settings), ...klTerm(settings)];
  return combineTerms("actor", `actor ${hasRolloutWeights} ${JSON.stringify(settings)}`, terms);
}

/** The policy loss of `policy_loss.loss_mode`. */
function policyTerm(settings: ActorSettings, hasRolloutWeights: boolean): LossTerm {
  const policy = findPolicyLoss(settings.policy_loss.loss_mode);
  policy.check?.(settings);
  return {
    name: "actor/pg_loss",
    weight: 1,
    heads: ["logprobs"],
    extra: [...policyExtra, ...(policy.extra ?? []), ...(hasRolloutWeights ? ["rolloutWeights"] : [])],
    scalars: scalarNames,
    build: (tensors) => policy.build(policyTensors(tensors, settings), settings),
  };
}
