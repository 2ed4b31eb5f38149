/** The entropy bonus of the actor's loss. It is read only if it has a weight: it costs a good part of a forward pass. */
import { UserError } from "../../util/errors.ts";
import { field, type Resolved, real } from "../../util/field.ts";
import { type AggregateOptions, aggregate, named, scalarNames } from "./aggregate.ts";
import type { LossTerm } from "./token-loss.ts";

/** Keys of `actor_rollout_ref.actor`. */
export const entropyFields = {
  entropy_coeff: field(real, 0, "Weight of the entropy bonus."),
};

/** The term, or none where its weight is 0. */
export function entropyTerm(settings: AggregateOptions & Resolved<typeof entropyFields>): LossTerm[] {
  const { entropy_coeff: weight } = settings;
  if (!Number.isFinite(weight)) {
    throw new UserError(`\`entropy_coeff\` is ${weight}. Give a number; 0 turns it off.`);
  }
  if (weight === 0) return [];
  return [
    {
      name: "actor/entropy_loss",
      weight: -weight,
      heads: ["entropy"],
      scalars: scalarNames,
      build: (tensors) => ({ loss: aggregate(named(tensors, "entropy"), tensors, settings) }),
    },
  ];
}
