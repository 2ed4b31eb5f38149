/**
 * One file from the hub into the cache: `<blob>.incomplete` grows, by HTTP ranges if needed, until it is complete.
 *
 * Invariant: a blob under its final name has the size and the checksum that the hub announced. A process that is killed
 * leaves the part that it has; the next one continues from there.
 */
import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";
import { copyFile, mkdir, open, rename, rm, stat, symlink } from "node:fs/promises";
import { dirname, relative } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { codeOf, messageOf, UserError } from "../util/errors.ts";
import { explainWrite } from "../util/files.ts";
import { formatBytes } from "../util/format.ts";

export type BlobRequest = {
  /** What messages call it: `model.safetensors of owner/name`. */
  readonly name: string;
  readonly url: string;
  readonly blob: string;
  readonly size: number;
  /** SHA-256 of the content, or SHA-1 of the git object for files outside of LFS. */
  readonly checksum: string;
  readonly fetch: typeof fetch;
  /** Called with the bytes that are on the disk. */
  readonly report: (bytes: number) => void;
};

/** How many times in sequence a transfer may break off without a new byte. */
const maxFailures = 4;

/** Bring a blob into the cache, or leave it as it is when it is there already. */
export async function fetchBlob(request: BlobRequest): Promise<void> {
  if ((await sizeOf(request.blob)) === request.size) return;
  const partial = `${request.blob}.incomplete`;
  try {
    await mkdir(dirname(request.blob), { recursive: true });
    await transfer(request, partial);
    const size = await sizeOf(partial);
    if (size !== request.size || (await checksumOf(partial, request)) !== request.checksum) {
      await rm(partial);
      throw new UserError(
        `${request.name} arrived damaged: it is not the ${request.size} bytes with the checksum ${request.checksum} that ` +
          "the hub announced. What arrived was removed; run the same command again.",
      );
    }
    await rename(partial, request.blob);
  } catch (error) {
    throw explainWrite(request.blob, error);
  }
}

/** Make `path` a link to the blob, relative so that the cache can be moved; a copy where there are no links. */
export async function linkBlob(blob: string, path: string): Promise<void> {
  try {
    await mkdir(dirname(path), { recursive: true });
    await rm(path, { force: true });
    await symlink(relative(dirname(path), blob), path).catch(() => copyFile(blob, path));
  } catch (error) {
    throw explainWrite(path, error);
  }
}

/** The cause of "fetch failed". */
export function reasonOf(error: unknown): string {
  const cause = error instanceof Error && error.cause !== undefined ? error.cause : error;
  return codeOf(cause) || messageOf(cause);
}

/** Returns when a response is complete; the checksum decides whether it is the right file. */
async function transfer(request: BlobRequest, partial: string): Promise<void> {
  for (let failures = 0; ; ) {
    const have = await sizeOf(partial);
    if (have === request.size) return;
    let reason = "the server has no more of it";
    try {
      if (await append(request, partial, have)) return;
    } catch (error) {
      // A refusal by the hub, a full disk and an abort are final; a broken connection is not.
      if (error instanceof UserError || codeOf(error) !== "") throw error;
      reason = reasonOf(error);
    }
    const now = await sizeOf(partial);
    failures = now > have ? 0 : failures + 1;
    if (failures === maxFailures) {
      throw new UserError(
        `The download of ${request.name} broke off after ${formatBytes(Math.max(0, now))} of ` +
          `${formatBytes(request.size)} (${reason}). Run the same command again: it goes on from there.`,
      );
    }
    if (failures > 0) await delay(200 * 2 ** failures);
  }
}

/** One request; false when the server has nothing from this position on, so that the download must start again. */
async function append({ url, fetch, report, size }: BlobRequest, partial: string, have: number): Promise<boolean> {
  const start = have < size ? have : 0;
  const response = await fetch(url, {
    // A compressed answer would have neither the ranges nor the size of the file.
    headers: { "accept-encoding": "identity", ...(start > 0 ? { range: `bytes=${start}-` } : {}) },
  });
  const goesOn = response.status === 206 && response.headers.get("content-range")?.startsWith(`bytes ${start}-`);
  const file = await open(partial, goesOn ? "a" : "w");
  try {
    let bytes = goesOn ? start : 0;
    report(bytes);
    if (response.status === 416) return false;
    for await (const chunk of response.body ?? []) {
      await file.writeFile(chunk);
      bytes += chunk.length;
      report(bytes);
    }
    await file.sync();
    return true;
  } finally {
    await file.close();
  }
}

async function checksumOf(path: string, { checksum, size }: BlobRequest): Promise<string> {
  const isGit = checksum.length === 40;
  const hash = createHash(isGit ? "sha1" : "sha256");
  if (isGit) hash.update(`blob ${size}\0`);
  for await (const chunk of createReadStream(path, { highWaterMark: 1 << 20 })) hash.update(chunk);
  return hash.digest("hex");
}

async function sizeOf(path: string): Promise<number> {
  const found = await stat(path).catch(() => null);
  return found?.size ?? -1;
}
