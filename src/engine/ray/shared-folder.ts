/**
 * Whether a folder is the same one on every machine of the workers. Each writes its part of a checkpoint, so a folder
 * that only some of them share would end up with some of the parts, and nothing would say so.
 */
import { randomBytes } from "node:crypto";
import { rm, writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { explainWrite } from "../../util/files.ts";
import type { Shim } from "./shim.ts";

/** Refuse a folder in which a worker does not see what this process writes, or cannot write. */
export async function checkShared(shim: Shim, folder: string): Promise<void> {
  const mark = `.shared-${randomBytes(8).toString("hex")}`;
  const path = join(folder, mark);
  try {
    await writeFile(path, "");
    await shim.call(
      "see",
      shim.workers.map(() => ({ folder: resolve(folder), mark })),
    );
  } catch (error) {
    throw explainWrite(folder, error);
  } finally {
    await rm(path, { force: true }).catch(() => {}); // never hide what was wrong
  }
}
