/**
 * The run folders in a folder, at any depth: a run is a folder with metrics.jsonl, and no run contains another.
 */
import { readdir, stat } from "node:fs/promises";
import { basename, dirname, join, resolve } from "node:path";
import { metricsPath, stepOf } from "../run/names.ts";
import { codeOf, messageOf, UserError } from "../util/errors.ts";

/** The search ends after this many folders. */
const mostFolders = 10_000;

/** The paths of runs below `folder`, sorted, with `/` between names; "." for the folder itself. */
export async function findRuns(folder: string): Promise<string[]> {
  const found: string[] = [];
  const queue = [""];
  for (let seen = 0; queue.length > 0 && seen < mostFolders; seen++) {
    const path = queue.shift()!;
    const entries = await readdir(join(folder, path), { withFileTypes: true }).catch(() => []);
    if (entries.some((entry) => entry.name === metricsName && !entry.isDirectory())) {
      found.push(path === "" ? "." : path);
      continue;
    }
    for (const entry of entries) {
      const isHidden = entry.name.startsWith(".") || entry.name === "node_modules";
      if (entry.isDirectory() && !isHidden) queue.push(path === "" ? entry.name : `${path}/${entry.name}`);
    }
  }
  return found.sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
}

const metricsName = basename(metricsPath(""));

/** Refuse a folder that is not a run and contains none. */
export async function checkHoldsRuns(folder: string): Promise<void> {
  const info = await stat(folder).catch((error: unknown) => error);
  if (info instanceof Error)
    throw new UserError(
      codeOf(info) === "ENOENT"
        ? `${folder} does not exist. Name a run folder, or a folder that holds runs: trainyard dashboard checkpoints/project/experiment.`
        : `${folder} cannot be read: ${messageOf(info)}.`,
    );
  if ((await findRuns(folder)).length > 0) return;
  const parent = dirname(resolve(folder));
  const isInRun = stepOf(folder) !== null && (await findRuns(parent))[0] === ".";
  throw new UserError(
    `${folder} is not a run folder and contains none: there is no ${metricsName} in it. ` +
      (isInRun
        ? `It is a checkpoint of the run ${parent}: name that.`
        : "Name the folder in `trainer.default_local_dir` of a run, or one above it."),
  );
}
