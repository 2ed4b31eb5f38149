/** What a checkpoint of a reinforcement-learning run remembers besides weights and optimizers. */
import { z } from "zod";
import type { KlControl } from "../../algos/kl/control.ts";
import type { PpoConfig } from "../../config/ppo/schema.ts";
import { klSettings } from "../../config/ppo/settings.ts";
import type { Checkpoint } from "../../run/checkpoint.ts";
import { UserError } from "../../util/errors.ts";
import type { RunModels } from "../same-models.ts";
import { Best } from "./best.ts";
import { RowsState, type TrainRows } from "./train-rows.ts";

const RlState = RowsState.extend({
  /** Of the training prompts. */
  fingerprint: z.string(),
  klControl: z.custom<KlControl>((value) => typeof value === "object" && value !== null && "kl_coef" in value),
  /** Steps in a row with an update that was skipped. */
  skippedInARow: z.number(),
  /** The best validation so far, where `trainer.best_metric` asks for one. */
  best: Best.nullable(),
});
export type RlState = z.infer<typeof RlState> & { readonly models: RunModels };

/**
 * The state that a run starts with, but for its models, which `checkModels` adds. The rows are set to their position; a
 * checkpoint of other prompts is refused.
 */
export function stateAt(
  start: Checkpoint | null,
  config: PpoConfig,
  rows: TrainRows,
  fingerprint: string,
): Omit<RlState, "models"> {
  if (start === null) {
    return { ...rows.state(), fingerprint, klControl: klSettings(config), skippedInARow: 0, best: null };
  }
  const parsed = RlState.safeParse(start.state);
  if (!parsed.success) {
    throw new UserError(
      `${start.dir} is not a checkpoint of \`trainyard ppo\`. Choose another one, or another run folder.`,
    );
  }
  if (parsed.data.fingerprint !== fingerprint) {
    throw new UserError(
      `${start.dir} was made with other prompts. Give the same files and limits, or start over with \`trainer.resume_mode=disable\`.`,
    );
  }
  rows.restore(parsed.data);
  return parsed.data;
}
