/**
 * Checkpoints: folders `global_step_N` that are complete or absent, and a pointer to the one to resume from.
 *
 * A checkpoint is filled under a temporary name, flushed, and renamed; the pointer is written last. If the process is
 * killed between any two of these, the earlier checkpoint still counts. A folder is renamed before it is deleted, so a
 * kill never leaves a half-deleted one under its name. `state.json` marks a folder as ours and complete.
 */
import { existsSync } from "node:fs";
import { readdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { basename, join, resolve } from "node:path";
import { z } from "zod";
import { codeOf, messageOf, UserError } from "../util/errors.ts";
import { explainWrite, temporaryName, writeFileAtomic } from "../util/files.ts";
import { restoreAside, writeFolder } from "../util/folders.ts";
import { info, warn } from "../util/log.ts";
import {
  checkpointPath,
  isLeftover,
  linesPath,
  pointerPath,
  roleDir,
  statePath,
  stepOf,
  type TrainedRole,
  trainedRoles,
} from "./names.ts";

/** A saved state of training: weights and optimizer in `dir`, everything else in `state`. */
export type Checkpoint = {
  readonly step: number;
  readonly dir: string;
  readonly state: unknown;
  /** How many lines the run's files had; null for a checkpoint that does not say so. */
  readonly lines: LineCounts | null;
};

/** Lines of metrics.jsonl and rollouts.jsonl. */
const LineCounts = z.object({ metrics: z.int(), rollouts: z.int() });
export type LineCounts = z.infer<typeof LineCounts>;

type NewCheckpoint = {
  write(dir: string): Promise<void>;
  readonly state: unknown;
  readonly lines: LineCounts;
};

/** verl's `trainer.resume_mode`. */
export type ResumeMode = "auto" | "disable" | "resume_path";

/** Save a checkpoint: `write` fills the folder it is given, `state` is written to `state.json`. */
export async function saveCheckpoint(dir: string, step: number, { write, state, lines }: NewCheckpoint): Promise<void> {
  const target = checkpointPath(dir, step);
  try {
    await writeFolder(target, async (temporary) => {
      await write(temporary);
      await writeFile(linesPath(temporary), `${JSON.stringify(lines)}\n`);
      await writeFile(statePath(temporary), `${JSON.stringify(state, null, 2)}\n`);
    });
    await writePointer(dir, step);
  } catch (error) {
    throw explainSave(target, error);
  }
}

/** An error that names the checkpoint instead of the file with the temporary name. */
export function explainSave(target: string, error: unknown): unknown {
  const reason = error instanceof UserError ? error.cause : error;
  const explained = explainWrite(target, reason);
  return explained === reason ? error : explained;
}

/** How many checkpoints stay. */
export type Retention = {
  /** Null keeps all. */
  readonly keep: number | null;
  /** Models of which fewer stay. A checkpoint without one of its models loses its state.json: it cannot be resumed from. */
  readonly keepOf: Readonly<Partial<Record<TrainedRole, number>>>;
};

/** Delete the oldest checkpoints and models of them beyond what is kept, never of the checkpoint that the pointer names. */
export async function prune(dir: string, { keep, keepOf }: Retention): Promise<void> {
  const current = (await readPointer(dir)) ?? 0;
  const steps = (await stepsIn(dir)).filter((step) => step !== current);
  // Steps after the pointer are of a run that was started over from an earlier step, so they count as the oldest.
  const oldestFirst = [...steps.filter((step) => step > current), ...steps.filter((step) => step < current)];
  const beyond = (count: number) => oldestFirst.slice(0, Math.max(0, steps.length + 1 - count));
  for (const step of keep === null ? [] : beyond(keep)) await discard(checkpointPath(dir, step), dir);
  for (const role of trainedRoles) {
    for (const step of beyond(keepOf[role] ?? Number.POSITIVE_INFINITY)) {
      const checkpoint = checkpointPath(dir, step);
      if (!existsSync(roleDir(checkpoint, role))) continue;
      await rm(statePath(checkpoint), { force: true }); // first, so that a kill leaves no checkpoint that looks complete
      await discard(roleDir(checkpoint, role), dir);
    }
  }
}

/** Delete a folder of the run folder `dir`: renamed there first, as `clearLeftovers` finds it. */
async function discard(path: string, dir: string): Promise<void> {
  const leaving = temporaryName(join(dir, basename(path)));
  try {
    await rename(path, leaving);
    await rm(leaving, { recursive: true, force: true });
  } catch (error) {
    warn(`${path} is beyond the number of checkpoints to keep, and could not be deleted: ${messageOf(error)}`);
  }
}

/** The checkpoint that the pointer names, or else the newest complete one before it; null if there is none. */
export async function latestCheckpoint(dir: string): Promise<Checkpoint | null> {
  const named = (await readPointer(dir)) ?? (await newestStep(dir));
  if (named === NO_STEP) return null;
  for (const step of (await stepsIn(dir)).reverse()) {
    if (step > named) continue;
    const found = await readCheckpoint(checkpointPath(dir, step), step);
    if (found === null) continue;
    if (step !== named) warn(`${checkpointPath(dir, named)} is missing or incomplete; resuming from step ${step}`);
    return found;
  }
  warn(`${checkpointPath(dir, named)} is missing or incomplete and there is no earlier checkpoint in ${dir}`);
  return null;
}

/** Where training starts: verl's `trainer.resume_mode` and `trainer.resume_from_path`. */
export async function findStart(dir: string, mode: ResumeMode, path: string | null): Promise<Checkpoint | null> {
  if (mode === "disable") return null;
  if (mode === "auto") return await latestCheckpoint(dir);
  if (path === null || path === "") {
    throw new UserError(
      "`trainer.resume_mode` is resume_path, and `trainer.resume_from_path` is not set. " +
        "Set it to a checkpoint folder, such as checkpoints/project/experiment/global_step_100.",
    );
  }
  const step = stepOf(path);
  if (step === null) {
    throw new UserError(
      `\`trainer.resume_from_path\` is ${path}, which does not end in global_step_N. ` +
        "Set it to a checkpoint folder, such as checkpoints/project/experiment/global_step_100.",
    );
  }
  const found = await readCheckpoint(path, step);
  if (found !== null) return found;
  const steps = await stepsIn(join(path, ".."));
  throw new UserError(
    `\`trainer.resume_from_path\` is ${path}, which ${steps.includes(step) ? "has no readable state.json" : "does not exist"}. ` +
      (steps.length === 0
        ? "There is no checkpoint beside it either; check the path."
        : `The checkpoints beside it are of the steps ${steps.join(", ")}.`),
  );
}

/** Point to the checkpoint that a run starts from, so that a later `auto` agrees with the metrics that are kept. */
export async function pointAt(dir: string, start: Checkpoint | null): Promise<void> {
  const own = start !== null && isOwn(dir, start) ? start.step : null;
  const named = await readPointer(dir);
  if (own !== null && named !== own) return await writePointer(dir, own);
  // Without checkpoints there is nothing to point away from.
  if (own !== null || named === NO_STEP || (await stepsIn(dir)).length === 0) return;
  await writePointer(dir, NO_STEP);
  info(`Starting over in ${dir}: existing checkpoints stay until newer ones replace them.`);
}

/** Whether a checkpoint is one of the run folder's; `resume_path` may name another run's. */
export function isOwn(dir: string, { dir: checkpoint, step }: Checkpoint): boolean {
  return resolve(checkpoint) === resolve(checkpointPath(dir, step));
}

/** Remove the temporary files and folders of a killed process, and finish what it had begun to replace. */
export async function clearLeftovers(dir: string): Promise<void> {
  await restoreAside(dir);
  for (const name of await readdir(dir)) {
    if (isLeftover(name)) await rm(join(dir, name), { recursive: true, force: true });
  }
}

/** In the pointer file: the run has no checkpoint yet, whatever folders an earlier run has left. */
const NO_STEP = 0;

/** The newest checkpoint of a run folder whose pointer is gone. */
async function newestStep(dir: string): Promise<number> {
  const newest = (await stepsIn(dir)).at(-1);
  if (newest === undefined) return NO_STEP;
  warn(`${pointerPath(dir)} is missing; taking the newest checkpoint, of step ${newest}`);
  return newest;
}

async function writePointer(dir: string, step: number): Promise<void> {
  await writeFileAtomic(pointerPath(dir), `${step}`); // no newline: verl reads it with int()
}

/** The step in the pointer file; null if there is no file or no number in it. */
async function readPointer(dir: string): Promise<number | null> {
  try {
    const text = (await readFile(pointerPath(dir), "utf8")).trim();
    if (/^\d+$/.test(text)) return Number(text);
    const steps = await stepsIn(dir);
    warn(
      `${pointerPath(dir)} holds ${JSON.stringify(text.slice(0, 40))} instead of a step; taking the newest checkpoint`,
    );
    return steps.at(-1) ?? null;
  } catch (error) {
    if (codeOf(error) === "ENOENT") return null;
    throw error;
  }
}

/** Read a checkpoint's state; null if the folder is not a complete checkpoint. */
async function readCheckpoint(dir: string, step: number): Promise<Checkpoint | null> {
  try {
    return { step, dir, state: JSON.parse(await readFile(statePath(dir), "utf8")), lines: await readLines(dir) };
  } catch {
    return null; // no folder, no state.json, or one that was cut short: training cannot resume from it
  }
}

async function readLines(checkpoint: string): Promise<LineCounts | null> {
  try {
    return LineCounts.parse(JSON.parse(await readFile(linesPath(checkpoint), "utf8")));
  } catch {
    return null; // an older checkpoint; nothing but a warning depends on it
  }
}

/** The steps of the checkpoint folders in `dir`, ascending. */
async function stepsIn(dir: string): Promise<number[]> {
  const names = await readdir(dir).catch(() => []);
  return names
    .map(stepOf)
    .filter((step) => step !== null)
    .sort((a, b) => a - b);
}
