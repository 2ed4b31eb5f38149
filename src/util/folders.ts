/**
 * Folders that are complete or absent: filled under a temporary name, flushed, and renamed.
 *
 * A folder cannot be renamed over another, so the old one is first renamed aside. If the process is killed between the
 * two renames, `restoreAside` gives the old one its name back.
 */
import { access, mkdir, open, readdir, rename, rm } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { syncDirectory, temporaryName } from "./files.ts";

/** Make `target` a folder that `write` fills. */
export async function writeFolder(target: string, write: (dir: string) => Promise<void>): Promise<void> {
  const temporary = temporaryName(target);
  try {
    await mkdir(temporary, { recursive: true });
    await write(temporary);
    await syncTree(temporary);
    await putInPlace(temporary, target);
  } catch (error) {
    await rm(temporary, { recursive: true, force: true }).catch(() => {});
    throw error;
  }
}

/** Rename back every folder in `dir` that was moved aside and not replaced, and remove those that were replaced. */
export async function restoreAside(dir: string): Promise<void> {
  for (const entry of await readdir(dir)) {
    const name = /^\.(.+)\.aside$/.exec(entry)?.[1];
    if (name === undefined) continue;
    const target = join(dir, name);
    if (await isThere(target)) await rm(join(dir, entry), { recursive: true, force: true });
    else await rename(join(dir, entry), target);
  }
}

async function putInPlace(temporary: string, target: string): Promise<void> {
  const aside = join(dirname(target), `.${basename(target)}.aside`);
  const replaces = await isThere(target);
  await rm(aside, { recursive: true, force: true });
  if (replaces) await rename(target, aside);
  try {
    await rename(temporary, target);
  } catch (error) {
    if (replaces) await rename(aside, target);
    throw error;
  }
  await syncDirectory(dirname(target));
  if (replaces) await rm(aside, { recursive: true, force: true });
}

function isThere(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  );
}

/** Flush every file below `dir`, then the folders that name them. */
async function syncTree(dir: string): Promise<void> {
  for (const entry of await readdir(dir, { withFileTypes: true })) {
    const path = join(dir, entry.name);
    if (entry.isDirectory()) await syncTree(path);
    else if (entry.isFile()) await syncFile(path);
  }
  await syncDirectory(dir);
}

async function syncFile(path: string): Promise<void> {
  const file = await open(path, "r");
  try {
    await file.sync();
  } finally {
    await file.close();
  }
}
