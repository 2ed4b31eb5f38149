/** Updates whose gradient is not finite: they change no weight, the user gets a warning, and too many in a row end the run. */
import type { Model, TokenRow } from "../engine/contract.ts";
import { UserError } from "../util/errors.ts";
import { counted } from "../util/format.ts";
import { warn } from "../util/log.ts";

/** What an update that changed nothing was computed from: with the weights of that moment it can be computed again. */
export type SkippedUpdate = {
  readonly role: "actor" | "critic";
  readonly model: Model;
  readonly gradNorm: number;
  readonly loss: string;
  readonly scalars: Readonly<Record<string, number>>;
  readonly rows: readonly TokenRow[];
};

export type OnSkipped = (skipped: SkippedUpdate) => Promise<void>;

/** Say that a step changed no weight because the norm of its gradient is not finite. */
export function warnSkipped(step: number, gradNorm: number, count: number): void {
  warn(`Step ${step}: the gradient norm is ${gradNorm}, so the step was skipped (${count} so far).`);
}

/** Warn about a step with a skipped update, and end the run after more than `most` such steps in a row. */
export function checkSkipped(step: number, skippedInARow: number, most: number): void {
  if (skippedInARow === 0) return;
  warn(`At step ${step} an update had a gradient that is not finite and changed no weight.`);
  if (skippedInARow <= most) return;
  throw new UserError(
    `${counted(skippedInARow, "step")} in a row had a gradient that is not finite (\`trainer.max_skipped_updates\` is ${most}). ` +
      "Checkpoints of earlier steps are complete. Lower the learning rate, or look at the rewards and at the data of these steps.",
  );
}
