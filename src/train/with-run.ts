/**
 * What every training run does around its steps: it claims the run folder, finds where to start, opens the trackers, and
 * then logs, saves and stops. What a step is belongs to the caller.
 *
 * Things are opened in an order in which mistakes show early and cost nothing: the checkpoint is checked before models
 * are opened, and models and trackers are open before the run folder changes. The metrics of a step are written before
 * its checkpoint, so a kill between the two repeats the step and loses nothing. So the time that a checkpoint took is
 * logged with the next step.
 */
import type { PpoConfig } from "../config/ppo/schema.ts";
import type { RewardConfig } from "../config/reward/schema.ts";
import type { SftConfig } from "../config/sft/schema.ts";
import type { Checkpoint, Retention } from "../run/checkpoint.ts";
import { roleDir, type TrainedRole } from "../run/names.ts";
import { claimRun, type Run } from "../run/run.ts";
import { openTrackers, type Trackers } from "../track/open.ts";
import { clearStatus, info } from "../util/log.ts";
import type { TrainContext } from "./context.ts";
import { sayComplete } from "./endings.ts";
import { memoryMetrics } from "./memory-metrics.ts";
import type { Launch } from "./open-engine.ts";
import { Progress } from "./progress.ts";

export type RunConfig = SftConfig | RewardConfig | PpoConfig;

/** A run between its start and its end. */
export type TrainingRun = {
  /** The run folder. */
  readonly folder: Run;
  /** The checkpoint that the run started from; null at the very beginning. */
  readonly start: Checkpoint | null;
  readonly firstStep: number;
  readonly totalSteps: number;
  readonly trackers: Trackers;
  readonly progress: Progress;
  /** Aborted when the user asks to stop: the step under way ends, is saved, and the run stops. */
  readonly signal: AbortSignal;
  /** Write the metrics of a step to the run folder and to the trackers, with memory and the time of the last save. */
  log(step: number, metrics: Record<string, number>): Promise<void>;
  /** Save a checkpoint: `write` fills its folder, `state` is everything that is not weights. */
  save(step: number, write: (dir: string) => Promise<void>, state: unknown): Promise<void>;
  /** Close the trackers because the user asked to stop after `step`. */
  stop(step: number): Promise<void>;
  /** Close the trackers because all steps are done. */
  finish(): Promise<void>;
};

export type RunPlan<Opened extends AsyncDisposable> = {
  readonly totalSteps: number;
  /** How many checkpoints to keep; null keeps all. */
  readonly keep: number | null;
  /** Models of which fewer are kept. */
  readonly keepOf?: Retention["keepOf"];
  /** Run even if all steps are done: a validation alone. */
  readonly isRepeatable?: boolean;
  /** The trained model that a checkpoint is for. */
  readonly role: TrainedRole;
  /** Check the checkpoint and open what the run works with; `dir` is the run folder. */
  open(start: Checkpoint | null, dir: string): Promise<Opened>;
  /** Say what is about to be trained on what. */
  announce(opened: Opened): void;
  /** Take the steps. */
  train(opened: Opened, run: TrainingRun): Promise<void>;
};

/** Run a plan on the engine of a launch, from its checkpoint to the end or until the user stops it. */
export async function withRun<Opened extends AsyncDisposable>(
  { engine, resumeMode, onSaved }: Launch,
  config: RunConfig,
  plan: RunPlan<Opened>,
  { signal, env, set }: TrainContext,
): Promise<void> {
  const { totalSteps } = plan;
  const { default_local_dir: dir, resume_from_path: resumeFromPath } = config.trainer;
  await using claim = await claimRun(dir, { resumeMode, resumeFromPath, keep: plan.keep, keepOf: plan.keepOf ?? {} });
  const { start } = claim;
  if (start !== null && start.step >= totalSteps && !plan.isRepeatable) {
    const limit = `trainer.${config.trainer.total_training_steps === null ? "total_epochs" : "total_training_steps"}`;
    const { role } = plan;
    return await sayComplete({ totalSteps, step: start.step, limit }, { folder: roleDir(start.dir, role), role });
  }
  await engine.checkFolder?.(claim.dir);
  await using opened = await plan.open(start, claim.dir);
  await using trackers = await trackRun(config, { startStep: start?.step ?? null, totalSteps, env });
  const resolved = { ...config, trainer: { ...config.trainer, total_training_steps: totalSteps } };
  const folder = await claim.begin(resolved, set);
  plan.announce(opened);
  info(`${start === null ? "" : `Resuming from ${start.dir}. `}The run folder is ${dir}.`);

  const firstStep = (start?.step ?? 0) + 1;
  using progress = new Progress(firstStep, totalSteps);
  let saving: Record<string, number> = {};
  await plan.train(opened, {
    folder,
    start,
    firstStep,
    totalSteps,
    trackers,
    progress,
    signal,
    async log(step, metrics) {
      const all = { ...metrics, ...saving, ...memoryMetrics() };
      saving = {};
      await folder.logMetrics(step, all);
      trackers.log(step, all);
    },
    async save(step, write, state) {
      progress.say("saving");
      const start = performance.now();
      await folder.saveCheckpoint(step, write, state);
      saving = { "timing_s/save_checkpoint": (performance.now() - start) / 1000 };
      onSaved();
    },
    async stop(step) {
      await trackers.close("stopped");
      sayStopped(step, totalSteps, dir);
    },
    async finish() {
      await trackers.close("finished");
      clearStatus();
    },
  });
}

type Tracking = Pick<TrainContext, "env"> & { readonly startStep: number | null; readonly totalSteps: number };

async function trackRun(config: RunConfig, { startStep, totalSteps, env }: Tracking): Promise<Trackers> {
  const { logger, project_name: project, experiment_name: experiment, default_local_dir: dir } = config.trainer;
  const consoleStyle = "console" in config.trainer ? config.trainer.console : "table";
  return await openTrackers(logger, { project, experiment, config, dir, startStep, totalSteps, env, consoleStyle });
}

function sayStopped(step: number, totalSteps: number, dir: string): void {
  clearStatus();
  info(
    step === 0
      ? "Stopped in the first step, before any update. The same command starts again."
      : `Stopped after step ${step} of ${totalSteps} and saved. The same command resumes from ${dir}.`,
  );
}
