/**
 * One writer per run folder: a lock file that names its process.
 *
 * A process that was killed cannot remove its lock, so a lock whose process is gone is taken over. A process is more
 * than its number: numbers are reused, and a reboot or another container starts them again, so the lock also holds the
 * start time and the boot id where the system has them. A process that has ended and that nobody waits for (a zombie, as
 * in a container whose first process does not collect them) is gone too. The lock of another machine (a shared disk) counts as gone once
 * its holder has not touched it for a minute.
 *
 * The lock appears with its whole content at once (a hard link), and replacing a dead one needs a claim that only one
 * process can hold, so of many that start together exactly one gets the folder.
 */
import { link, readFile, rename, rm, stat, utimes, writeFile } from "node:fs/promises";
import { hostname } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";
import { z } from "zod";
import { codeOf, UserError } from "../util/errors.ts";
import { explainWrite, temporaryName } from "../util/files.ts";

const Owner = z.object({
  pid: z.int(),
  host: z.string(),
  boot: z.string(), // "" where the system does not have it
  started: z.string(), // clock ticks since boot, or "" where the system does not have it
});
type Owner = z.infer<typeof Owner>;

const touchEveryMs = 10_000;
const silentAfterMs = 60_000;

/** A lock that this process holds, until `release`. */
export type Lock = { release(): Promise<void> };

/** Take the lock at `path`; if another process has it, the error names that process. */
export async function takeLock(path: string, dir: string, key = "trainer.default_local_dir"): Promise<Lock> {
  const mine: Owner = {
    pid: process.pid,
    host: hostname(),
    boot: await bootId(),
    started: (await statOf(process.pid)).started,
  };
  try {
    while (!((await claim(path, mine)) || (await replaceDead(path, mine, { dir, key })))) await sleep(20);
  } catch (error) {
    throw explainWrite(path, error);
  }
  const touch = setInterval(() => {
    const now = new Date();
    utimes(path, now, now).catch(() => {}); // one missed touch is harmless: only other machines look, and only after a minute
  }, touchEveryMs);
  touch.unref();
  return {
    async release() {
      clearInterval(touch);
      const holder = await read(path);
      if (holder !== null && isSame(holder, mine)) await rm(path, { force: true });
    },
  };
}

/** Create the file with our process in it, unless it exists. */
async function claim(path: string, mine: Owner): Promise<boolean> {
  const temporary = temporaryName(path);
  const text = `${JSON.stringify(mine)}\n`;
  try {
    await writeFile(temporary, text, { flag: "wx" });
    await link(temporary, path);
    return true;
  } catch (error) {
    // ENOENT: the holder of the folder removed our temporary file. The next try will find its lock.
    if (codeOf(error) === "EEXIST" || codeOf(error) === "ENOENT") return false;
    if (!noHardLinks.has(codeOf(error))) throw error;
    return await writeFile(path, text, { flag: "wx" }).then(
      () => true,
      (cause) => {
        if (codeOf(cause) === "EEXIST") return false;
        throw cause;
      },
    );
  } finally {
    await rm(temporary, { force: true }).catch(() => {});
  }
}

const noHardLinks = new Set(["EPERM", "ENOTSUP", "EOPNOTSUPP", "ENOSYS", "EMLINK"]);

/** What is locked, and the key that chooses it, for messages. */
type Locked = { readonly dir: string; readonly key: string };

/** Replace the lock of a process that is gone; false means: try again. */
async function replaceDead(path: string, mine: Owner, locked: Locked): Promise<boolean> {
  const holder = await read(path);
  if (holder === null) return false;
  if (await isAlive(holder, path, mine)) throw new UserError(describe(holder, path, locked, mine));
  const right = `${path}.${holder.host}-${holder.pid}-${holder.started}.claim`;
  if (!(await claim(right, mine))) {
    const claimant = await read(right);
    if (claimant !== null && !(await isAlive(claimant, right, mine))) await rm(right, { force: true });
    return false;
  }
  // Only the owner of this claim may replace the holder. The holder may have been replaced before we got the claim.
  const still = await read(path);
  if (still === null || !isSame(still, holder)) {
    await rm(right, { force: true });
    return false;
  }
  await rename(right, path);
  return true;
}

/** The owner named in a lock; for an unreadable lock one that no process matches; null if there is no lock. */
async function read(path: string): Promise<Owner | null> {
  let text: string;
  try {
    text = await readFile(path, "utf8");
  } catch (error) {
    if (codeOf(error) === "ENOENT") return null;
    throw error;
  }
  try {
    return Owner.parse(JSON.parse(text));
  } catch {
    return { pid: 0, host: hostname(), boot: "", started: "" };
  }
}

async function isAlive(owner: Owner, path: string, mine: Owner): Promise<boolean> {
  if (owner.host !== mine.host) return (await silentMs(path)) < silentAfterMs;
  if (owner.pid <= 0) return false;
  if (owner.boot !== mine.boot) return false;
  try {
    process.kill(owner.pid, 0);
  } catch (error) {
    if (codeOf(error) === "ESRCH") return false; // EPERM: it runs, under another user
  }
  const { state, started } = await statOf(owner.pid);
  if (state === "Z" || state === "X") return false;
  return started === owner.started || started === "" || owner.started === "";
}

/** Time since the lock was touched, by the clock of its own file system. */
async function silentMs(path: string): Promise<number> {
  const probe = temporaryName(path);
  try {
    await writeFile(probe, "");
    return (await stat(probe)).mtimeMs - (await stat(path)).mtimeMs;
  } catch (error) {
    if (codeOf(error) === "ENOENT") return Number.POSITIVE_INFINITY; // released meanwhile
    throw error;
  } finally {
    await rm(probe, { force: true });
  }
}

function describe(owner: Owner, path: string, { dir, key }: Locked, mine: Owner): string {
  const where = owner.host === mine.host ? "" : ` on ${owner.host}`;
  const end = owner.host === mine.host ? `\`kill ${owner.pid}\`` : `once it is gone for a minute, or delete ${path}`;
  return (
    `${dir} is being written by process ${owner.pid}${where}. ` +
    `Wait for it or end it (${end}), or choose another path with \`${key}\`.`
  );
}

const isSame = (a: Owner, b: Owner): boolean =>
  a.pid === b.pid && a.host === b.host && a.boot === b.boot && a.started === b.started;

async function bootId(): Promise<string> {
  return (await readFile("/proc/sys/kernel/random/boot_id", "utf8").catch(() => "")).trim();
}

/** The state of a process and its start time in clock ticks since boot: fields 3 and 22 of its stat line. "" for none. */
async function statOf(pid: number): Promise<{ readonly state: string; readonly started: string }> {
  const line = await readFile(`/proc/${pid}/stat`, "utf8").catch(() => "");
  // The second field is the program's name in parentheses and may hold anything, parentheses included.
  const fields = line.slice(line.lastIndexOf(")") + 2).split(" ");
  return { state: fields[0] ?? "", started: fields[19] ?? "" };
}
