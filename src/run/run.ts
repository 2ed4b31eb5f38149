/**
 * The run folder, held by one process.
 *
 * Claiming it finds where training starts and changes nothing. So an error before `begin` (in weights, data or device)
 * leaves the files of an earlier run as they were. `begin` then sets the folder to the start: the pointer names it, and
 * metrics and rollouts end at its step. From then on, step N is first logged and then checkpoint N is saved. If the
 * process is killed between the two, step N is repeated; the other order would lose its metrics.
 */
import { closeSync, openSync, writeSync } from "node:fs";
import { mkdir, rmdir, writeFile } from "node:fs/promises";
import { dirname, resolve } from "node:path";
import { invariant, messageOf } from "../util/errors.ts";
import { explainWrite, writeFileAtomic } from "../util/files.ts";
import { writeFolder } from "../util/folders.ts";
import { counted } from "../util/format.ts";
import { mirrorTo, warn } from "../util/log.ts";
import type { Checkpoint, LineCounts, ResumeMode, Retention } from "./checkpoint.ts";
import {
  clearLeftovers,
  explainSave,
  findStart,
  isOwn,
  latestCheckpoint,
  pointAt,
  prune,
  saveCheckpoint,
} from "./checkpoint.ts";
import { JsonLinesFile } from "./json-lines.ts";
import type { Lock } from "./lock.ts";
import { takeLock } from "./lock.ts";
import type { Metrics } from "./metrics.ts";
import {
  bestInfoPath,
  bestPath,
  configPath,
  lockPath,
  logPath,
  metricsPath,
  rolloutsPath,
  setKeysPath,
  skippedInfoPath,
  skippedPath,
} from "./names.ts";
import { type NewGroup, type RolloutKind, rolloutRecord } from "./rollouts.ts";

export type RunOptions = {
  /** `trainer.resume_mode`; auto resumes from the latest checkpoint if there is one. */
  readonly resumeMode?: ResumeMode;
  /** `trainer.resume_from_path`, for the mode `resume_path`. */
  readonly resumeFromPath?: string | null;
  /** `trainer.max_ckpt_to_keep`; null keeps all. */
  readonly keep?: number | null;
  /** Models of which fewer are kept. */
  readonly keepOf?: Retention["keepOf"];
};

/** Claim `dir` for a run; a folder that another process holds is refused. */
export async function claimRun(dir: string, options: RunOptions = {}): Promise<RunClaim> {
  const { resumeMode = "auto", resumeFromPath = null, keep = null, keepOf = {} } = options;
  invariant(keep === null || keep >= 1, `keep is ${keep}, and a run keeps at least one checkpoint`);
  const retention = { keep, keepOf };
  let created: string | undefined;
  try {
    created = await mkdir(dir, { recursive: true });
  } catch (error) {
    throw explainWrite(dir, error);
  }
  const lock = await takeLock(lockPath(dir), dir);
  try {
    await clearLeftovers(dir);
    const start = await findStart(dir, resumeMode, resumeFromPath);
    return new RunClaim({ dir, start, retention, resumeMode, lock, created });
  } catch (error) {
    await lock.release();
    throw explainWrite(dir, error);
  }
}

type Claimed = {
  readonly dir: string;
  readonly start: Checkpoint | null;
  readonly retention: Retention;
  readonly resumeMode: ResumeMode;
  readonly lock: Lock;
  /** The topmost folder that claiming created; undefined if `dir` existed before. */
  readonly created: string | undefined;
};

/** A run folder that this process holds. `close` releases it, and removes it if no run was started in it. */
class RunClaim {
  readonly dir: string;
  /** The checkpoint to resume from; null for a new run. */
  readonly start: Checkpoint | null;
  readonly #claimed: Claimed;
  #run: Run | null = null;

  constructor(claimed: Claimed) {
    this.dir = claimed.dir;
    this.start = claimed.start;
    this.#claimed = claimed;
  }

  /** Set the folder to the start and open it for writing; `set` are the keys of the config that the user has set. */
  async begin(config: unknown, set: readonly string[] = []): Promise<Run> {
    const { dir, start, retention, resumeMode } = this.#claimed;
    try {
      await pointAt(dir, start);
      // The process may have been killed between a save and its deletions. A run that starts over deletes nothing before its first save.
      if (resumeMode === "auto" && start !== null) await prune(dir, retention);
      await writeFileAtomic(configPath(dir), `${JSON.stringify(config, null, 2)}\n`);
      await writeFileAtomic(setKeysPath(dir), `${JSON.stringify(set, null, 2)}\n`);
      const metrics = await JsonLinesFile.open(metricsPath(dir), start?.step ?? null);
      const rollouts = await JsonLinesFile.open(rolloutsPath(dir), start?.step ?? null);
      if (start !== null && isOwn(dir, start))
        tellLost(dir, start, { metrics: metrics.lines, rollouts: rollouts.lines });
      this.#run = new Run({ dir, start, retention, metrics, rollouts, stopLog: mirrorLog(dir) });
      return this.#run;
    } catch (error) {
      throw explainWrite(dir, error);
    }
  }

  async close(): Promise<void> {
    const { lock, created } = this.#claimed;
    await this.#run?.close();
    await lock.release();
    if (this.#run === null && created !== undefined) await removeEmpty(this.dir, created);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}

/** Say which lines of the run's files are gone: cut off, garbled or deleted since the checkpoint was saved. */
function tellLost(dir: string, { step, lines }: Checkpoint, now: LineCounts): void {
  for (const [path, had, has] of [
    [metricsPath(dir), lines?.metrics ?? 0, now.metrics],
    [rolloutsPath(dir), lines?.rollouts ?? 0, now.rollouts],
  ] as const) {
    if (has >= had) continue;
    warn(
      `${path} has lost ${counted(had - has, "line")}: it had ${counted(had, "line")} at step ${step} and has ${has} that ` +
        "can be read. The run goes on; what was lost stays lost.",
    );
  }
}

/** Remove folders from `from` up to `to` as long as they are empty. */
async function removeEmpty(from: string, to: string): Promise<void> {
  const top = resolve(to);
  for (let path = resolve(from); path.startsWith(top); path = dirname(path)) {
    const isGone = await rmdir(path).then(
      () => true,
      () => false, // it is not empty, so it is not removed
    );
    if (!isGone) return;
  }
}

type Parts = {
  readonly dir: string;
  readonly start: Checkpoint | null;
  readonly retention: Retention;
  readonly metrics: JsonLinesFile;
  readonly rollouts: JsonLinesFile;
  readonly stopLog: () => void;
};

/** A run that is being written; its claim closes it. */
export class Run {
  readonly dir: string;
  readonly start: Checkpoint | null;
  readonly #parts: Parts;
  #savedStep: number;

  constructor(parts: Parts) {
    this.dir = parts.dir;
    this.start = parts.start;
    this.#parts = parts;
    this.#savedStep = parts.start?.step ?? -1;
  }

  /** Append the metrics of a step; a value that is not finite is written as null. */
  async logMetrics(step: number, data: Metrics): Promise<void> {
    this.#checkOrder(step);
    await this.#parts.metrics.append(step, { data });
  }

  /** Append prompts of a step with their responses, for people to look at; the caller limits how many. */
  async logRollouts(step: number, kind: RolloutKind, groups: readonly NewGroup[]): Promise<void> {
    this.#checkOrder(step);
    await this.#parts.rollouts.append(step, rolloutRecord(kind, groups));
  }

  #checkOrder(step: number): void {
    const saved = this.#savedStep;
    invariant(step > saved, `step ${step} is logged after checkpoint ${saved}: a kill would lose it`);
  }

  /** Save a checkpoint: `write` fills a folder with weights and optimizer, `state` is everything else. */
  async saveCheckpoint(step: number, write: (dir: string) => Promise<void>, state: unknown): Promise<void> {
    const { metrics, rollouts } = this.#parts;
    const lines = { metrics: metrics.lines, rollouts: rollouts.lines }; // now: later steps may be logged meanwhile
    // Flush first: a power cut after the checkpoint must not lose the lines of its steps.
    await Promise.all([metrics.sync(), rollouts.sync()]);
    await saveCheckpoint(this.dir, step, { write, state, lines });
    this.#savedStep = step;
    await prune(this.dir, this.#parts.retention);
  }

  /** Save a model as the best so far, replacing the last one; `about` says which step it is of, and why. */
  async saveBest(write: (dir: string) => Promise<void>, about: unknown): Promise<void> {
    await this.#saveBeside(bestPath(this.dir), bestInfoPath, { write, about });
  }

  /** Save the batch of a step whose update was skipped; returns the folder. */
  async saveSkipped(step: number, write: (dir: string) => Promise<void>, about: unknown): Promise<string> {
    const target = skippedPath(this.dir, step);
    await this.#saveBeside(target, skippedInfoPath, { write, about });
    return target;
  }

  async #saveBeside(
    target: string,
    infoPath: (folder: string) => string,
    { write, about }: { write: (dir: string) => Promise<void>; about: unknown },
  ): Promise<void> {
    try {
      await writeFolder(target, async (dir) => {
        await write(dir);
        await writeFile(infoPath(dir), `${JSON.stringify(about)}\n`);
      });
    } catch (error) {
      throw explainSave(target, error);
    }
  }

  /** The checkpoint that `auto` would resume from now. */
  async latest(): Promise<Checkpoint | null> {
    return await latestCheckpoint(this.dir);
  }

  async close(): Promise<void> {
    this.#parts.stopLog();
    await this.#parts.metrics.close();
    await this.#parts.rollouts.close();
  }
}

/** Copy every log line to log.txt, with its time; returns a function that stops it. */
function mirrorLog(dir: string): () => void {
  const path = logPath(dir);
  const file = openSync(path, "a");
  const stop = mirrorTo((line) => {
    try {
      writeSync(file, `${new Date().toISOString()} ${line}\n`);
    } catch (error) {
      stop(); // the run goes on without the log
      warn(`${path} is no longer written: ${messageOf(error)}`);
    }
  });
  return () => {
    stop();
    closeSync(file);
  };
}
