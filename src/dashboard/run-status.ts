/**
 * Whether a run is live, finished or stopped, read from its folder without changing it.
 *
 * The holder of a run touches its lock every ten seconds, so a lock that was touched within a minute is a live one,
 * unless it names a process of this machine that is gone. So a copied folder soon counts as
 * stopped or finished.
 */
import { readFile, stat } from "node:fs/promises";
import { hostname } from "node:os";
import { z } from "zod";
import { bytesAt, openIfThere } from "../run/json-lines.ts";
import { configPath, lockPath, logPath, setKeysPath } from "../run/names.ts";
import { codeOf } from "../util/errors.ts";
import type { RunStatus } from "./api.ts";

const silentAfterMs = 60_000;
const logTailBytes = 8192;

const Holder = z.object({ pid: z.int(), host: z.string() });
const SetKeys = z.array(z.string());
const Planned = z.object({ trainer: z.object({ total_training_steps: z.int().positive() }) });

/** The status of a run whose last logged step is `step`, and how many steps it will have (null: not known). */
export async function statusOf(dir: string, step: number): Promise<{ status: RunStatus; total: number | null }> {
  const [isHeld, config] = await Promise.all([isLive(dir), readConfig(dir)]);
  const planned = Planned.safeParse(config).data?.trainer.total_training_steps ?? null;
  if (isHeld) return { status: "live", total: planned };
  const end = await readEnd(dir);
  const total = planned ?? end.total;
  const isDone = total === null ? end.isDone : step >= total;
  return { status: isDone ? "finished" : "stopped", total };
}

/** The resolved config; null if it cannot be read. */
export async function readConfig(dir: string): Promise<unknown> {
  return parse(await readFile(configPath(dir), "utf8").catch(() => ""));
}

/** The keys of the config that the user has set; none if that is not known. */
export async function readSetKeys(dir: string): Promise<readonly string[]> {
  return SetKeys.safeParse(parse(await readFile(setKeysPath(dir), "utf8").catch(() => ""))).data ?? [];
}

async function isLive(dir: string): Promise<boolean> {
  const path = lockPath(dir);
  const touchedAt = await stat(path).then(
    ({ mtimeMs }) => mtimeMs,
    () => null,
  );
  if (touchedAt === null || Date.now() - touchedAt > silentAfterMs) return false;
  const holder = Holder.safeParse(parse(await readFile(path, "utf8").catch(() => ""))).data;
  return holder !== undefined && (holder.host !== hostname() || isRunning(holder.pid));
}

function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return codeOf(error) === "EPERM"; // it runs, under another user
  }
}

/** From the last message of the program, for runs whose number of steps depends on the data. */
async function readEnd(dir: string): Promise<{ isDone: boolean; total: number | null }> {
  const file = await openIfThere(logPath(dir));
  try {
    const size = file === null ? 0 : (await file.stat()).size;
    const tail = file === null ? "" : (await bytesAt(file, Math.max(0, size - logTailBytes), size)).toString("utf8");
    const said = [...tail.matchAll(/^\S+ (?:Done: |Stopped after step \d+ of (\d+))/gm)].at(-1);
    return { isDone: said !== undefined && said[1] === undefined, total: said?.[1] ? Number(said[1]) : null };
  } finally {
    await file?.close();
  }
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
