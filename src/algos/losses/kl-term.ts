/** The penalty of the actor's loss on the KL to the reference, whose log-probs it reads as `refLogprobs`. */
import * as o from "../../graph/ops.ts";
import { UserError } from "../../util/errors.ts";
import { bool, field, nameOf, type Resolved, real } from "../../util/field.ts";
import { type KlName, klEstimate, klNames, klPenalty } from "../kl/estimates.ts";
import { type AggregateOptions, aggregate, masked, named, scalarNames } from "./aggregate.ts";
import type { LossTerm } from "./token-loss.ts";

/** Keys of `actor_rollout_ref.actor`. */
export const klTermFields = {
  use_kl_loss: field(bool, false, "Add the KL to the reference to the loss; a reference model is kept for it."),
  kl_loss_coef: field(real, 0.001, "Weight of that KL."),
  kl_loss_type: field(nameOf<KlName>("a KL estimate", klNames()), "low_var_kl", "How that KL is estimated."),
};

/** The term, or none without `use_kl_loss`. */
export function klTerm(settings: AggregateOptions & Resolved<typeof klTermFields>): LossTerm[] {
  const { use_kl_loss: isUsed, kl_loss_coef: weight, kl_loss_type: kind } = settings;
  if (!Number.isFinite(weight)) {
    throw new UserError(`\`kl_loss_coef\` is ${weight}. Give a number; 0 turns it off.`);
  }
  if (!isUsed) return [];
  klEstimate(kind); // an unknown kind is refused now, not in the first update
  return [
    {
      name: "actor/kl_loss",
      weight,
      heads: ["logprobs"],
      extra: ["refLogprobs"],
      scalars: scalarNames,
      build(tensors) {
        const reference = o.stopGradient(masked(named(tensors, "refLogprobs"), tensors.mask));
        const kl = klPenalty(masked(named(tensors, "logprobs"), tensors.mask), reference, kind);
        return { loss: aggregate(kl, tensors, settings) };
      },
    },
  ];
}
