/** What a checkpoint of a reinforcement-learning run remembers besides weights and optimizers. */
import { z } from "zod";
import type { KlControl } from "../../algos/kl/control.ts";
import type { PpoConfig } from "../../config/ppo/schema.ts";
import { klSettings } from "../../config/ppo/settings.ts";
import type { Loader } from "../../data/loader.ts";
import type { Checkpoint } from "../../run/checkpoint.ts";
import { UserError } from "../../util/errors.ts";
import type { RunModels } from "../same-models.ts";
import { Best } from "./best.ts";

const RlState = z.object({
  loader: z.unknown(),
  /** Of the training prompts. */
  fingerprint: z.string(),
  klControl: z.custom<KlControl>((value) => typeof value === "object" && value !== null && "kl_coef" in value),
  /** Steps in a row with an update that was skipped. */
  skippedInARow: z.number(),
  /** The best validation so far, where `trainer.best_metric` asks for one. */
  best: Best.nullable(),
});
export type RlState = z.infer<typeof RlState> & { readonly models: RunModels };

/** The state that a run starts with, but for its models, which `checkModels` adds. The loader is set to its position; a checkpoint of other prompts is refused. */
export function stateAt(
  start: Checkpoint | null,
  config: PpoConfig,
  loader: Loader,
  fingerprint: string,
): Omit<RlState, "models"> {
  if (start === null) {
    return { loader: loader.state(), fingerprint, klControl: klSettings(config), skippedInARow: 0, best: null };
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
  loader.restore(parsed.data.loader);
  return parsed.data;
}
