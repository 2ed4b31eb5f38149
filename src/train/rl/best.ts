/** The best validation so far by `trainer.best_metric`, whose model is kept beside the checkpoints. */
import { z } from "zod";
import type { PpoConfig } from "../../config/ppo/schema.ts";
import { nearest, UserError } from "../../util/errors.ts";

export const Best = z.object({ metric: z.string(), step: z.number(), value: z.number() });
export type Best = z.infer<typeof Best>;

/** Refuse to look for the best of validations that never take place. */
export function checkBest(
  { best_metric: metric, test_freq: every, val_only }: PpoConfig["trainer"],
  prompts: number,
): void {
  if (metric === null || val_only || (prompts > 0 && every > 0)) return;
  const why =
    prompts === 0
      ? "`data.val_files` gives no prompt. Name a file to validate on"
      : `\`trainer.test_freq\` is ${every}. Set it to the steps between validations`;
  throw new UserError(
    `\`trainer.best_metric\` is ${metric}, and no step is validated: ${why}, or leave the metric out.`,
  );
}

/**
 * This validation if it is better than the best before it, which is the earlier one of equals; else null. A best by
 * another metric, from before a run went on with this one, does not count.
 */
export function betterBest(
  metric: string,
  {
    step,
    metrics,
    best,
  }: { readonly step: number; readonly metrics: Record<string, number>; readonly best: Best | null },
): Best | null {
  const value = metrics[metric];
  if (value === undefined) {
    const names = Object.keys(metrics);
    const close = nearest(metric, names, 3);
    const some = close.length > 0 ? close : names.filter((name) => name.startsWith("val-core/"));
    throw new UserError(
      `\`trainer.best_metric\` is ${metric}, which the validation does not measure. ` +
        `${close.length > 0 ? "Nearest" : "It measures"}: ${some.map((name) => `\`${name}\``).join(", ")}.`,
    );
  }
  const isBetter = best === null || best.metric !== metric || value > best.value;
  return Number.isFinite(value) && isBetter ? { metric, step, value } : null;
}
