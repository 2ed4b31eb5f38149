/**
 * Controllers of the weight that the KL has in the reward (arXiv:1909.08593).
 *
 * A controller is plain data, so that a checkpoint can hold it.
 */
import { UserError, unknownName } from "../../util/errors.ts";
import { choice, field, positive, type Resolved, real } from "../../util/field.ts";

/** Keys of `algorithm.kl_ctrl`. */
export const klControlFields = {
  type: field(choice("fixed", "adaptive"), "fixed", "Whether the weight of that KL changes."),
  kl_coef: field(real, 0.001, "Its weight, at the start."),
  horizon: field(positive, 10000, "Responses in which an adaptive weight changes by at most a fifth."),
  target_kl: field(positive, 0.1, "The KL that an adaptive weight aims at."),
};

/** How much the KL weighs in the reward. Only `kl_coef` changes; keys are verl's. */
export type KlControl =
  | { readonly type: "fixed"; readonly kl_coef: number }
  | {
      readonly type: "adaptive";
      readonly kl_coef: number;
      readonly target_kl: number;
      /** The weight changes by at most a fifth in this many rows. */
      readonly horizon: number;
    };

/** A controller in its first state. */
export function klControl({ type, kl_coef, target_kl, horizon }: Resolved<typeof klControlFields>): KlControl {
  if (!Number.isFinite(kl_coef)) throw new UserError(`\`kl_ctrl.kl_coef\` is ${kl_coef}. Give a number.`);
  if (type === "fixed") return { type, kl_coef };
  if (type !== "adaptive") throw unknownName("`kl_ctrl.type`", type, ["fixed", "adaptive"]);
  for (const [key, value] of Object.entries({ target_kl, horizon })) {
    if (!(value > 0)) throw new UserError(`\`kl_ctrl.${key}\` is ${value}. Give a number above 0.`);
  }
  return { type, kl_coef, target_kl, horizon };
}

/** The controller after a batch of `rows` whose mean KL was `currentKl`. */
export function adapt(control: KlControl, currentKl: number, rows: number): KlControl {
  if (control.type === "fixed") return control;
  const error = Math.min(Math.max(currentKl / control.target_kl - 1, -0.2), 0.2);
  return { ...control, kl_coef: control.kl_coef * (1 + (error * rows) / control.horizon) };
}
