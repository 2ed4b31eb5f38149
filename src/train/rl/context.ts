/** What every part of a reinforcement-learning step works with. */
import type { PpoConfig } from "../../config/ppo/schema.ts";
import type { Progress } from "../progress.ts";
import type { SkippedUpdate } from "../skipped-updates.ts";
import type { Prompts } from "./prompts.ts";
import type { Roles } from "./roles.ts";
import type { RolloutClient } from "./rollout-client.ts";
import type { TrainRows } from "./train-rows.ts";

export type RlContext = {
  readonly config: PpoConfig;
  readonly prompts: Prompts;
  readonly roles: Roles;
  readonly rollout: RolloutClient;
  readonly rows: TrainRows;
  readonly progress: Progress;
  readonly totalSteps: number;
  /** Floating-point operations per second of a plain product on the run's engine; null where it is not measured. */
  readonly peak: number | null;
  /** Keep what an update without a finite gradient was computed from. */
  readonly saveSkipped: (step: number, skipped: SkippedUpdate) => Promise<void>;
  readonly signal: AbortSignal;
};
