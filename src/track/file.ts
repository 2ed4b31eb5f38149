/**
 * verl's `file` logger: one `{"step": n, "data": {name: number}}` per line, at a path that an environment variable may set.
 *
 * The same lines as the run folder's metrics.jsonl, in a place of the user's choice. A resumed run keeps what was
 * logged up to its start, where verl would start with an empty file.
 */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { codeOf } from "../util/errors.ts";
import { AppendFile, fileOutbox } from "./append-file.ts";
import type { TrackContext, Tracker } from "./tracker.ts";

export async function openFile(context: TrackContext): Promise<Tracker> {
  const path = filePath(context);
  const file = await AppendFile.create(path, await keptLines(path, context.startStep));
  const outbox = fileOutbox("file", file);
  return {
    log: (step, data) => outbox.put(Buffer.from(`${JSON.stringify({ step, data })}\n`)),
    logSamples: () => {},
    async close() {
      await outbox.close();
      await file.close();
    },
  };
}

/** VERL_FILE_LOGGER_PATH, or `{project}/{experiment}.jsonl` in VERL_FILE_LOGGER_ROOT or the working directory. */
export function filePath({ project, experiment, env }: Pick<TrackContext, "project" | "experiment" | "env">): string {
  if (env.VERL_FILE_LOGGER_PATH) return env.VERL_FILE_LOGGER_PATH;
  const root = (env.VERL_FILE_LOGGER_ROOT || ".").replace(/^~(?=\/|$)/, env.HOME ?? "~");
  return join(root, project, `${experiment}.jsonl`);
}

/** The lines of an earlier part of the run, without a half-written last line. */
async function keptLines(path: string, startStep: number | null): Promise<Uint8Array> {
  if (startStep === null) return new Uint8Array();
  const text = await readFile(path, "utf8").catch((error: unknown) => {
    if (codeOf(error) === "ENOENT") return "";
    throw error;
  });
  const whole = text.slice(0, text.lastIndexOf("\n") + 1).split("\n");
  const past = whole.findIndex((line) => line !== "" && !(stepOf(line) <= startStep));
  const kept = past < 0 ? whole : [...whole.slice(0, past), ""];
  return Buffer.from(kept.join("\n"));
}

/** The step of a line; NaN, which is never kept, for a line that this program did not write. */
function stepOf(line: string): number {
  return Number(/^\{"step":(\d+),/.exec(line)?.[1] ?? Number.NaN);
}
