/**
 * A child process that can be ended at any moment, with all it has started, and whose end is always told.
 *
 * It stands in a process group of its own: an interrupt in the terminal does not reach it, and ending the group ends
 * what a reward function may have started. A process, not a thread, because a thread that runs out of memory (a `Map` that
 * grows, an array that is spread) aborts the whole program, and no limit of worker threads prevents it; that is also
 * why no pool of threads such as piscina is used.
 */
import type { ChildProcess } from "node:child_process";
import type { Readable } from "node:stream";
import { codeOf } from "../util/errors.ts";
import { Output } from "./output.ts";

/** How long the last words of a process that has ended may take to arrive. */
const LAST_WORDS_MS = 200;

/** Options of `spawn` and `fork` that make a process one that can be ended. */
export const ownGroup = { detached: process.platform !== "win32", windowsHide: true } as const;

/** Handles to a process that is being watched. */
export type Killable = {
  /** End it and all it has started; settles when it is gone. Nothing is told of it any more. */
  stop(): Promise<void>;
};

/** What to do about a process. */
export type Watching = {
  readonly child: ChildProcess;
  /** The streams that what it prints comes through; it goes to the log. */
  readonly printed: readonly (Readable | null)[];
  readonly memoryMb: number;
  /** Told why it ended, unless it was stopped. */
  onGone(message: string): void;
};

/** Watch over a process until it has ended. */
export function watch({ child, printed, memoryMb, onGone }: Watching): Killable {
  const output = new Output();
  for (const stream of printed) stream?.on("data", (bytes: Buffer) => output.write(bytes));
  let isStopped = false;
  const ended = new Promise<void>((resolve) => {
    const end = (message: string) => {
      resolve();
      output.end();
      if (!isStopped) onGone(message);
      isStopped = true;
    };
    child.once("error", (error) => end(`could not be started (${codeOf(error) || error.message})`));
    child.once("exit", (code, signal) => {
      killGroup(child);
      const message = describeEnd(code, signal, memoryMb);
      child.once("close", () => end(message)); // all it has said and printed has arrived
      setTimeout(() => end(message), LAST_WORDS_MS).unref();
    });
  });
  return {
    stop() {
      isStopped = true;
      killGroup(child);
      return ended;
    },
  };
}

function killGroup(child: ChildProcess): void {
  if (child.pid === undefined) return;
  try {
    process.kill(ownGroup.detached ? -child.pid : child.pid, "SIGKILL");
  } catch (error) {
    if (codeOf(error) !== "ESRCH" && codeOf(error) !== "EPERM") throw error; // gone already
  }
}

function describeEnd(code: number | null, signal: NodeJS.Signals | null, memoryMb: number): string {
  if (signal === null) return `ended its process with exit code ${code}`;
  const cause = signal === "SIGSEGV" ? "" : `, most likely because it needed more than ${memoryMb} MB of memory`;
  return `had its process ended by ${signal}${cause}`;
}
