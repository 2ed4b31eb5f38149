/**
 * The default driver: sampling and learning take turns, so every token is drawn by the weights that learn from it. After
 * each step come validation, the log, the user's hooks and the checkpoint, where they are due.
 *
 * A run that is killed at any moment and started again ends with the same weights and metrics, byte for byte.
 */
import type { PpoConfig } from "../../config/ppo/schema.ts";
import { bestPath, checkpointPath, roleDir } from "../../run/names.ts";
import { info } from "../../util/log.ts";
import { sayDone } from "../endings.ts";
import { checkSkipped } from "../skipped-updates.ts";
import type { TrainingRun } from "../with-run.ts";
import type { RlContext } from "./context.ts";
import type { MachineExpiry } from "./machine-expiry.ts";
import { unlessStopped } from "./produce.ts";
import { hasWeights } from "./role-checkpoint.ts";
import { rolloutGroups } from "./rollout-log.ts";
import { openSaver } from "./saver.ts";
import type { RlState } from "./state.ts";
import { takeStep } from "./step.ts";
import { validate } from "./validate.ts";

type Start = { readonly initial: RlState; readonly expiry: MachineExpiry };

/** Take all steps of a run. */
export async function trainInTurns(context: RlContext, run: TrainingRun, { initial, expiry }: Start): Promise<void> {
  const { config, prompts, rows, progress, signal } = context;
  const { trainer } = config;
  const isDue = (step: number, every: number | null) =>
    every === null ? step === run.totalSteps : every > 0 && (step === run.totalSteps || step % every === 0);
  const canValidate = prompts.validation.length > 0;
  await using saver = openSaver(context, run);
  let state = initial;
  let savedStep = run.firstStep - 1;
  let longestStep = 0;

  if (trainer.val_before_train && canValidate) {
    const step = run.firstStep - 1;
    const { metrics, best } = await validate(context, run, { step, best: state.best, signal });
    state = { ...state, best };
    if (run.start === null) await run.log(step, metrics);
    else run.trackers.log(step, metrics); // the run folder has the checkpoint's step already, as without interruption
  }
  for (let step = run.firstStep; step <= run.totalSteps; step++) {
    progress.begin(step);
    const began = performance.now();
    const taken = await unlessStopped(signal, takeStep(context, step, state));
    if (taken === null) {
      // Sampling was cut short, so nothing has been learnt since the step before.
      if (step - 1 > savedStep) await saver.save(step - 1, state);
      await saver.saved();
      return await run.stop(step - 1);
    }
    const { klControl, hasSkipped } = taken;
    const skippedInARow = hasSkipped ? state.skippedInARow + 1 : 0;
    state = { ...state, klControl, skippedInARow };
    checkSkipped(step, skippedInARow, trainer.max_skipped_updates);

    const { metrics } = taken;
    if (canValidate && isDue(step, trainer.test_freq)) {
      const validated = await validate(context, run, { step, best: state.best, signal: NEVER });
      state = { ...state, best: validated.best };
      Object.assign(metrics, validated.metrics);
    }
    progress.end();
    if (trainer.logged_tokens > 0)
      await run.folder.logRollouts(step, "train", rolloutGroups(taken.episodes, taken.log, prompts));
    await run.log(step, metrics);
    await rows.update({ step, groups: taken.groups, metrics });
    state = { ...state, ...rows.state() };

    longestStep = Math.max(longestStep, (performance.now() - began) / 1000);
    const isExpiring = trainer.save_freq !== -1 && expiry(longestStep);
    if (isExpiring) info(`Step ${step} is saved: the machine is taken away soon.`);
    if (signal.aborted || isExpiring || isDue(step, trainer.save_freq)) {
      await saver.save(step, state);
      savedStep = step;
    }
    if (signal.aborted) {
      await saver.saved();
      return await run.stop(step);
    }
  }
  await saver.saved();
  await run.finish();
  await sayDone(run.totalSteps, lastModel(config, run, state));
}

/** The model that a finished run leaves, or why it leaves none. */
function lastModel({ trainer, actor_rollout_ref: { actor } }: PpoConfig, run: TrainingRun, { best }: RlState) {
  const { dir } = run.folder;
  const role = "actor" as const;
  const isSaved = trainer.save_freq !== -1;
  if (isSaved && hasWeights(actor.checkpoint.save_contents))
    return { folder: roleDir(checkpointPath(dir, run.totalSteps), role), role };
  if (best !== null) return { folder: bestPath(dir), role };
  return isSaved
    ? "`actor_rollout_ref.actor.checkpoint.save_contents` has no `model`, so checkpoints have no weights."
    : "`trainer.save_freq` is -1. Leave it out to save the last step, or set it to the number of steps between checkpoints.";
}

/** After its update, the validation of a step is not cut short: its metrics are those of a run without interruption. */
const NEVER = AbortSignal.any([]);
