/** What a step of reinforcement learning is taken with. */
import type { PpoConfig } from "../../config/ppo/schema.ts";
import type { Loader } from "../../data/loader.ts";
import type { Model, TokenRow } from "../../engine/contract.ts";
import type { Progress } from "../progress.ts";
import type { OpenPlayer, Prompts, Roles } from "./setup.ts";

/** What an update that changed nothing was computed from: with the weights of that moment it can be computed again. */
export type Skipped = {
  readonly role: "actor" | "critic";
  readonly model: Model;
  readonly gradNorm: number;
  readonly loss: string;
  readonly scalars: Readonly<Record<string, number>>;
  readonly rows: readonly TokenRow[];
};

export type Scene = {
  readonly config: PpoConfig;
  readonly prompts: Prompts;
  readonly roles: Roles;
  readonly player: OpenPlayer;
  readonly loader: Loader;
  readonly progress: Progress;
  readonly totalSteps: number;
  /** Keep what an update without a finite gradient was computed from. */
  readonly keepSkipped: (step: number, skipped: Skipped) => Promise<void>;
  readonly signal: AbortSignal;
};
