/** What runs have in common: the course of the learning rate, how batches are cut, what is said. */
import type { PpoConfig } from "../config/ppo/schema.ts";
import type { RewardConfig } from "../config/reward/schema.ts";
import type { SftConfig } from "../config/sft/schema.ts";
import type { MicroBatching } from "../engine/contract.ts";
import type { Schedule } from "../nn/schedule.ts";
import type { Checkpoint } from "../run/checkpoint.ts";
import { openTrackers, type Trackers } from "../track/open.ts";
import { UserError } from "../util/errors.ts";
import { counted } from "../util/format.ts";
import { clearStatus, info, warn } from "../util/log.ts";
import type { TrainContext } from "./context.ts";

/** The learning-rate schedule of a run of so many steps. */
export function scheduleOf(optim: Omit<SftConfig["optim"], "clip_grad">, totalSteps: number): Schedule {
  const { lr, lr_warmup_steps: steps, lr_warmup_steps_ratio: ratio } = optim;
  const warmupSteps = steps >= 0 ? steps : Math.floor(ratio * totalSteps);
  const { lr_scheduler_type: type, min_lr_ratio: minRatio, num_cycles: cycles, lr_decay_steps: end } = optim;
  return { type, lr, warmupSteps, totalSteps: end ?? totalSteps, minRatio, cycles };
}

type Cut = Pick<SftConfig["data"], "use_dynamic_bsz" | "max_token_len_per_gpu" | "micro_batch_size_per_gpu">;

/** How the keys say that batches are cut. */
export function microOf(data: Cut): MicroBatching {
  return data.use_dynamic_bsz ? { maxTokens: data.max_token_len_per_gpu } : { rows: data.micro_batch_size_per_gpu };
}

type Course = Pick<TrainContext, "env"> & { readonly start: Checkpoint | null; readonly totalSteps: number };

/** Open the trackers of a run. */
export async function trackRun(config: SftConfig | RewardConfig | PpoConfig, course: Course): Promise<Trackers> {
  const { logger, project_name: project, experiment_name: experiment } = config.trainer;
  const { default_local_dir: dir } = config.trainer;
  const consoleStyle = "console" in config.trainer ? config.trainer.console : "table";
  const { start, totalSteps, env } = course;
  const startStep = start?.step ?? null;
  return await openTrackers(logger, { project, experiment, config, dir, startStep, totalSteps, env, consoleStyle });
}

/** Say that there is nothing left to do. */
export function sayFinished(step: number, totalSteps: number, model: string): void {
  const more = "Raise `trainer.total_epochs` to train on, or start over with `trainer.resume_mode=disable`.";
  info(`The run has all its ${counted(totalSteps, "step")}; the model of step ${step} is in ${model}. ${more}`);
}

/** Say that a step changed no weight because its gradient is no number. */
export function saySkipped(step: number, gradNorm: number, count: number): void {
  warn(`Step ${step}: the gradient's norm is ${gradNorm}, so the step was skipped (${count} so far).`);
}

/** Stop where too many steps in a row had an update without a finite gradient. */
export function checkSkipped(step: number, skippedInARow: number, most: number): void {
  if (skippedInARow === 0) return;
  warn(`At step ${step} an update had a gradient that is not finite and changed no weight.`);
  if (skippedInARow <= most) return;
  throw new UserError(
    `${counted(skippedInARow, "step")} in a row had a gradient that is not finite (\`trainer.max_skipped_updates\` is ${most}). ` +
      "Checkpoints of earlier steps are whole. Lower the learning rate, or look at the rewards and at the data of these steps.",
  );
}

/** Say where an interrupted run goes on. */
export function sayStopped(step: number, totalSteps: number, dir: string): void {
  clearStatus();
  info(
    step === 0
      ? "Stopped in the first step, before anything was learnt. The same command starts anew."
      : `Stopped after step ${step} of ${totalSteps} and saved. The same command goes on from ${dir}.`,
  );
}

/** Say where the run starts and where it is written. */
export function sayStart(start: Checkpoint | null, dir: string): void {
  info(`${start === null ? "" : `Going on from ${start.dir}. `}The run folder is ${dir}.`);
}
