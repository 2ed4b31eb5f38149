/**
 * The names of everything in a run folder. No other room spells them.
 *
 *   config.json                            the resolved config
 *   metrics.jsonl                          one {"step": n, "data": {name: number}} per line
 *   rollouts.jsonl                         some prompts with their responses, see rollouts.ts
 *   log.txt                                what the program said
 *   global_step_N/                         one checkpoint; state.json inside it is everything that is not weights
 *   latest_checkpointed_iteration.txt      N of the checkpoint to go on from
 *   best/                                  the actor with the best value of `trainer.best_metric`, and best.json
 *   skipped_step_N/                        what a step without a finite gradient was computed from
 *   rollout_weights/                       weights on their way to servers that sample, while the run goes on
 *   run.lock                               who is writing here
 */
import { basename, join } from "node:path";

export const configPath = (dir: string): string => join(dir, "config.json");
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

/** The step of a path that ends in `global_step_N`, or null. */
export function stepOf(path: string): number | null {
  const match = /^global_step_(\d+)$/.exec(basename(path));
  return match === null ? null : Number(match[1]);
}

/** Whether a killed writer left this entry: see `temporaryName` in util/files. */
export const isLeftover = (name: string): boolean => /^\..+\.[0-9a-f]{8}\.tmp$/.test(name);
