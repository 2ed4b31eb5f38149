/**
 * Checks that a folder is the same one on every machine of the workers. Each worker writes its part of a checkpoint, so
 * a folder that only some machines share would get only some of the parts, without any error.
 */
import { randomBytes } from "node:crypto";
import { rm, writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { explainWrite } from "../../util/files.ts";
import type { WorkerGroup } from "./worker-group.ts";

/** Throws a `UserError` if a worker does not see the files that this process writes there, or cannot write there. */
export async function checkShared(group: WorkerGroup, folder: string): Promise<void> {
  const marker = `.shared-${randomBytes(8).toString("hex")}`;
  const path = join(folder, marker);
  try {
    await writeFile(path, "");
    await group.call("check_folder", () => ({ folder: resolve(folder), marker }));
  } catch (error) {
    throw explainWrite(folder, error);
  } finally {
    await rm(path, { force: true }).catch(() => {}); // report the first error
  }
}
