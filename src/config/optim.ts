/**
 * The keys of an optimizer, which every verb that trains has: AdamW and the schedule of its learning rate.
 *
 * `min_lr` and `lr_decay_steps` are Megatron's. The first is turned into `min_lr_ratio`, which is what the schedule reads.
 */
import { UserError } from "../util/errors.ts";
import { choice, field, int, nullable, number, orNull, pair, type Resolved } from "../util/field.ts";

export const optim = {
  lr: field(number(0), 1e-3, "Learning rate at the end of the warm-up."),
  betas: field(pair(number(0, 1)), [0.9, 0.999], "Decay of AdamW's two running means."),
  weight_decay: field(number(0), 0.01, "AdamW's decoupled weight decay."),
  clip_grad: field(number(0), 1.0, "Largest norm of the gradient; a longer one is scaled down to it."),
  lr_scheduler_type: field(
    choice("constant", "cosine", "wsd"),
    "constant",
    "How the learning rate changes after the warm-up.",
  ),
  lr_warmup_steps: field(
    orNull({ ...int(-1), expects: "a whole number of at least 0, or -1 to use lr_warmup_steps_ratio" }, -1),
    -1,
    "Steps of linear warm-up.",
  ),
  lr_warmup_steps_ratio: field(number(0, 1), 0.0, "Warm-up as a share of all steps, when lr_warmup_steps is -1."),
  min_lr_ratio: field(number(0, 1), 0.0, "Lowest learning rate of the cosine and wsd schedules, as a share of lr."),
  min_lr: field(nullable(number(0)), null, "The same as a rate; null for what min_lr_ratio gives."),
  lr_decay_steps: field(
    nullable(int(1)),
    null,
    "Step at which the lowest rate is reached; null for the last of the run.",
  ),
  num_cycles: field(number(0), 0.5, "Waves of the cosine schedule; 0.5 falls once from lr to the lowest."),
};

/** What decides the lowest rate and when it is reached. */
export type Rates = Pick<
  Resolved<typeof optim>,
  "lr" | "lr_scheduler_type" | "lr_warmup_steps" | "min_lr" | "min_lr_ratio" | "lr_decay_steps"
>;

/** The keys below `key` with the lowest rate in one place, and notices about those without effect. */
export function settleOptim<T extends Rates>(key: string, optim: T): { optim: T; notices: string[] } {
  const { lr, min_lr: least, min_lr_ratio: ratio, lr_scheduler_type: type, lr_decay_steps: decay } = optim;
  if (decay !== null && optim.lr_warmup_steps >= decay) {
    throw new UserError(
      `\`${key}.lr_warmup_steps\` is ${optim.lr_warmup_steps}, and \`${key}.lr_decay_steps\`=${decay} has the rate at its lowest by then. ` +
        "Shorten the warm-up, or raise the other.",
    );
  }
  if (least !== null && least > lr)
    throw new UserError(`\`${key}.min_lr\` is ${least}, above \`${key}.lr\`=${lr}. Lower it, or raise the rate.`);
  const asRatio = least === null || lr === 0 ? null : least / lr;
  if (asRatio !== null && ratio > 0 && ratio !== asRatio) {
    throw new UserError(
      `\`${key}.min_lr\` is ${least} and \`${key}.min_lr_ratio\` is ${ratio} of \`${key}.lr\`=${lr}: two lowest rates. Keep one of them.`,
    );
  }
  const idle = Object.entries({ min_lr: least, lr_decay_steps: decay }).filter(
    ([, value]) => value !== null && value > 0,
  );
  const notices =
    type === "constant"
      ? idle.map(
          ([name, value]) => `\`${key}.${name}\`=${value} has no effect: \`${key}.lr_scheduler_type\` is constant.`,
        )
      : [];
  return { optim: { ...optim, min_lr_ratio: asRatio ?? ratio }, notices };
}
