/**
 * When the machine of a run is taken away: the end of its capacity block, as the platform names it in a variable of the
 * environment (verl's ESI). A run saves a checkpoint when another step may not end before it.
 */
import { warn } from "../../util/log.ts";

type Env = Readonly<Record<string, string | undefined>>;

/** Seconds that verl keeps for the save itself. */
const SAVE_SECONDS = 60;

/** The variables, in the order in which they are looked for; each holds seconds since 1970. */
const platforms = [
  { name: "MLP_CURRENT_CAPACITY_BLOCK_EXPIRATION_TIMESTAMP", savesAfterEnd: false },
  { name: "SAGEMAKER_CURRENT_CAPACITY_BLOCK_EXPIRATION_TIMESTAMP", savesAfterEnd: true },
] as const;

/** Whether to save now; `longestStep` is the longest step of the run so far, in seconds. */
export type MachineExpiry = (longestStep: number, nowSeconds?: number) => boolean;

/** The rule of an environment; `redundantSeconds` is `trainer.esi_redundant_time`. */
export function machineExpiry(env: Env, redundantSeconds: number): MachineExpiry {
  const platform = platforms.find(({ name }) => (env[name] ?? "") !== "");
  if (platform === undefined) return () => false;
  const end = Number(env[platform.name]);
  if (!Number.isFinite(end)) {
    warn(
      `${platform.name} is ${JSON.stringify(env[platform.name])}, not a time in seconds, so no checkpoint is saved by it.`,
    );
    return () => false;
  }
  return (longestStep, nowSeconds = Date.now() / 1000) => {
    const left = end - nowSeconds;
    const needed = SAVE_SECONDS + longestStep + redundantSeconds;
    return platform.savesAfterEnd ? left < needed : left > 0 && longestStep > 0 && left <= needed;
  };
}
