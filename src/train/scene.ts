/** What a step of reinforcement learning is taken with. */
import type { PpoConfig } from "../config/ppo.ts";
import type { Loader } from "../data/loader.ts";
import type { Progress } from "./progress.ts";
import type { OpenPlayer, Prompts, Roles } from "./rl-setup.ts";

export type Scene = {
  readonly config: PpoConfig;
  readonly prompts: Prompts;
  readonly roles: Roles;
  readonly player: OpenPlayer;
  readonly loader: Loader;
  readonly progress: Progress;
  readonly totalSteps: number;
  readonly signal: AbortSignal;
};
