/** The best validation so far by `trainer.best_metric`, whose model is kept beside the checkpoints. */
import { z } from "zod";
import { nearest, UserError } from "../util/errors.ts";

export const Best = z.object({ step: z.number(), value: z.number() });
export type Best = z.infer<typeof Best>;

/** This validation if it is better than the best before it, which is the earlier one of equals; else null. */
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
    const close = nearest(metric, Object.keys(metrics), 3).map((name) => `\`${name}\``);
    throw new UserError(
      `\`trainer.best_metric\` is ${metric}, which the validation does not measure. ` +
        (close.length === 0 ? "Give `data.val_files`." : `Nearest: ${close.join(", ")}.`),
    );
  }
  return Number.isFinite(value) && (best === null || value > best.value) ? { step, value } : null;
}
