/**
 * The names of everything in a run folder. Other rooms take them from here and never write them out.
 *
 *   config.json                            the resolved config
 *   set_keys.json                          the keys of it that the user has set
 *   metrics.jsonl                          one {"step": n, "data": {name: number}} per line
 *   rollouts.jsonl                         some prompts with their responses, see rollouts.ts
 *   log.txt                                the messages of the program
 *   global_step_N/                         one checkpoint
 *     state.json                           everything that is not weights: loader, random numbers, KL controller
 *     lines.json                           how many lines metrics.jsonl and rollouts.jsonl had
 *     actor/, critic/, reward/             one trained model each, as a Hugging Face folder
 *       optimizer/                         the state of its optimizer
 *   latest_checkpointed_iteration.txt      N of the checkpoint to resume from
 *   best/                                  the actor with the best value of `trainer.best_metric`, and best.json
 *   skipped_step_N/                        the batch of a step whose gradient was not finite, and batch.json
 *   rollout_weights/                       weights for servers that sample, replaced while the run goes on
 *   run.lock                               the process that writes here
 */
import { basename, join } from "node:path";

export const configPath = (dir: string): string => join(dir, "config.json");
export const setKeysPath = (dir: string): string => join(dir, "set_keys.json");
export const metricsPath = (dir: string): string => join(dir, "metrics.jsonl");
export const rolloutsPath = (dir: string): string => join(dir, "rollouts.jsonl");
export const logPath = (dir: string): string => join(dir, "log.txt");
export const pointerPath = (dir: string): string => join(dir, "latest_checkpointed_iteration.txt");
export const bestPath = (dir: string): string => join(dir, "best");
export const skippedPath = (dir: string, step: number): string => join(dir, `skipped_step_${step}`);
export const rolloutWeightsPath = (dir: string): string => join(dir, "rollout_weights");
export const lockPath = (dir: string): string => join(dir, "run.lock");
export const checkpointPath = (dir: string, step: number): string => join(dir, `global_step_${step}`);
export const statePath = (checkpoint: string): string => join(checkpoint, "state.json");
export const linesPath = (checkpoint: string): string => join(checkpoint, "lines.json");
/** What a best actor or a skipped batch is, inside its folder. */
export const bestInfoPath = (best: string): string => join(best, "best.json");
export const skippedInfoPath = (skipped: string): string => join(skipped, "batch.json");

/** The models that a checkpoint may hold, in the order in which one is chosen when nobody names one. */
export const trainedRoles = ["actor", "reward", "critic"] as const;
export type TrainedRole = (typeof trainedRoles)[number];

/** The model folder of a role in a checkpoint. */
export const roleDir = (checkpoint: string, role: TrainedRole): string => join(checkpoint, role);
/** The optimizer's folder in the folder of a role. */
export const optimizerDir = (role: string): string => join(role, "optimizer");

/** The step of a path that ends in `global_step_N`, or null. */
export function stepOf(path: string): number | null {
  const match = /^global_step_(\d+)$/.exec(basename(path));
  return match === null ? null : Number(match[1]);
}

/** Whether a writer that was killed left this entry: see `temporaryName` in util/files. */
export const isLeftover = (name: string): boolean => /^\..+\.[0-9a-f]{8}\.tmp$/.test(name);
