/**
 * A child process that can be ended at any moment, with everything it has started, and whose end is always reported.
 *
 * It has a process group of its own: an interrupt in the terminal does not reach it, and ending the group also ends what
 * the user's function may have started. It is a process and not a thread, because a thread that runs out of memory (a
 * `Map` that grows, an array that is spread) aborts the whole program, and no limit of worker threads prevents it. For
 * the same reason no pool of threads such as piscina is used.
 */
import type { ChildProcess } from "node:child_process";
import type { Readable } from "node:stream";
import { codeOf } from "../util/errors.ts";
import { PrintedLines } from "./printed-lines.ts";

/** How long the last output of a process that has ended may take to arrive. */
const LAST_OUTPUT_MS = 200;

/** Options of `spawn` and `fork` that give a process its own group. */
export const ownGroup = { detached: process.platform !== "win32", windowsHide: true } as const;

/** A process that is being watched. */
type WatchedProcess = {
  /** End it and everything it has started; settles when it is gone. `onGone` is not called afterwards. */
  stop(): Promise<void>;
};

type WatchOptions = {
  readonly child: ChildProcess;
  /** The streams with what it prints; their lines go to the log. */
  readonly printed: readonly (Readable | null)[];
  /** Stands before each printed line in the log. */
  readonly logPrefix: string;
  readonly memoryMb: number;
  /** Called with the reason why it ended, unless it was stopped. */
  onGone(message: string): void;
};

/** Watch a process until it has ended. */
export function watch({ child, printed, logPrefix, memoryMb, onGone }: WatchOptions): WatchedProcess {
  const lines = new PrintedLines(logPrefix);
  for (const stream of printed) stream?.on("data", (bytes: Buffer) => lines.write(bytes));
  let isStopped = false;
  const ended = new Promise<void>((resolve) => {
    const end = (message: string) => {
      resolve();
      lines.end();
      if (!isStopped) onGone(message);
      isStopped = true;
    };
    child.once("error", (error) => end(`could not be started (${codeOf(error) || error.message})`));
    child.once("exit", (code, signal) => {
      killGroup(child);
      const message = describeEnd(code, signal, memoryMb);
      child.once("close", () => end(message)); // all its messages and all it printed have arrived
      setTimeout(() => end(message), LAST_OUTPUT_MS).unref();
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
    if (codeOf(error) !== "ESRCH" && codeOf(error) !== "EPERM") throw error; // it is gone already
  }
}

function describeEnd(code: number | null, signal: NodeJS.Signals | null, memoryMb: number): string {
  if (signal === null) return `ended its process with exit code ${code}`;
  const cause = signal === "SIGSEGV" ? "" : `, most likely because it needed more than ${memoryMb} MB of memory`;
  return `had its process ended by ${signal}${cause}`;
}
