/**
 * Files that are either complete or absent: written under a temporary name, flushed to the disk, renamed.
 */
import { randomBytes } from "node:crypto";
import { mkdir, open, rename, rm } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { codeOf, messageOf, UserError } from "./errors.ts";

/** A temporary name in the same folder, which no reader takes for the finished file. */
export function temporaryName(path: string): string {
  return join(dirname(path), `.${basename(path)}.${randomBytes(4).toString("hex")}.tmp`);
}

/** Write a whole file; after this returns it survives a power cut. */
export async function writeFileAtomic(path: string, data: string | Uint8Array): Promise<void> {
  const temporary = temporaryName(path);
  try {
    await mkdir(dirname(path), { recursive: true });
    const file = await open(temporary, "wx");
    try {
      await file.writeFile(data);
      await file.sync();
    } finally {
      await file.close();
    }
    await rename(temporary, path);
    await syncDirectory(dirname(path));
  } catch (error) {
    await rm(temporary, { force: true }).catch(() => {}); // the first error is the one to report
    throw explainWrite(path, error);
  }
}

/** Flush a directory's entries, so that a rename inside it is not lost. */
export async function syncDirectory(path: string): Promise<void> {
  const directory = await open(path, "r");
  try {
    await directory.sync();
  } finally {
    await directory.close();
  }
}

/** Turn the error of a write that the disk refused into a message for the user; other errors stay as they are. */
export function explainWrite(path: string, error: unknown): unknown {
  const reason = writeProblems[writeCode(error)];
  if (reason === undefined) return error;
  return new UserError(`${path} cannot be written: ${reason} (${messageOf(error)})`, { cause: error });
}

/** Where the file system is read-only, Node's recursive `mkdir` says ENOENT; there is no other way to get that from it. */
function writeCode(error: unknown): string {
  const code = codeOf(error);
  const isMkdir = error instanceof Error && "syscall" in error && error.syscall === "mkdir";
  return code === "ENOENT" && isMkdir ? "EROFS" : code;
}

const writeProblems: Record<string, string | undefined> = {
  ENOSPC: "the disk is full. Free some space or choose another folder, then run the same command again",
  EDQUOT: "the disk quota is used up. Free some space or choose another folder, then run the same command again",
  EACCES: "the folder does not allow it. Choose another folder or change its permissions",
  EPERM: "the folder does not allow it. Choose another folder or change its permissions",
  EROFS: "the file system is read-only. Choose another folder",
  ENOTDIR: "a part of the path is a file, not a folder. Choose another folder",
  EEXIST: "a part of the path is a file, not a folder. Choose another folder",
  EISDIR: "there is a folder of that name. Choose another name",
  EFBIG: "the file system does not take files of this size. Choose another folder",
};
