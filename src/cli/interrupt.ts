/**
 * Ctrl-C, SIGTERM and SIGHUP (the terminal was closed): the first asks the work to stop, the second ends the program at
 * once. Under nohup, SIGHUP has no effect.
 *
 * npm and our launcher pass on a signal that the terminal has already sent to every process, so one key press can
 * arrive twice. A repeat within 300 ms is therefore the same press.
 */
import { readFileSync, readlinkSync } from "node:fs";
import { info } from "../util/log.ts";

/** The exit code of an interrupted program. */
const interrupted = 130;

const samePressMs = 300;

/** Run `work` with a signal that Ctrl-C aborts; returns 0, or 130 when it was interrupted. */
export async function withInterrupt(work: (signal: AbortSignal) => Promise<void>): Promise<number> {
  const notice = "Stopping, what is done is kept. Press Ctrl-C again to stop at once.";
  // A shell reports the end by SIGINT as 130 too.
  return (await untilSignal(work, { notice, endBy: "SIGINT" })) ? interrupted : 0;
}

type SignalOptions = {
  /** What to say at the first signal. */
  readonly notice: string;
  /** The signal that ends the program at the second one; by default the one that came. */
  readonly endBy?: NodeJS.Signals;
};

/** Run `work` with a signal that Ctrl-C, SIGTERM and SIGHUP abort; returns whether one of them came. */
export async function untilSignal(
  work: (signal: AbortSignal) => Promise<void>,
  { notice, endBy }: SignalOptions,
): Promise<boolean> {
  const controller = new AbortController();
  let firstAt = 0;
  const onSignal = (name: NodeJS.Signals) => {
    if (!controller.signal.aborted) {
      firstAt = performance.now();
      info(notice);
      controller.abort();
    } else if (performance.now() - firstAt > samePressMs) {
      endAtOnce(endBy ?? name);
    }
  };
  const onHangUp = isUnderNohup() ? () => undefined : onSignal;
  process.on("SIGINT", onSignal);
  process.on("SIGTERM", onSignal);
  process.on("SIGHUP", onHangUp);
  try {
    await work(controller.signal);
  } catch (error) {
    if (!controller.signal.aborted || !isAbort(error)) throw error;
  } finally {
    process.off("SIGINT", onSignal);
    process.off("SIGTERM", onSignal);
    process.off("SIGHUP", onHangUp);
  }
  return controller.signal.aborted;
}

/**
 * Whether nohup started this program. Node does not keep an ignored SIGHUP, so the trace that nohup leaves is looked for:
 * a standard input that is /dev/null, open for writing only.
 */
function isUnderNohup(): boolean {
  try {
    const flags = /^flags:\s*([0-7]+)$/m.exec(readFileSync("/proc/self/fdinfo/0", "utf8"))?.[1] ?? "0";
    return readlinkSync("/proc/self/fd/0") === "/dev/null" && (Number.parseInt(flags, 8) & 3) === 1;
  } catch {
    return false; // a system without /proc
  }
}

/**
 * End by the signal itself. `process.exit` would wait until the engine thread has finished its pass, and then abort
 * because onnxruntime finds that the JavaScript of that thread is gone.
 */
function endAtOnce(signal: NodeJS.Signals): void {
  process.removeAllListeners(signal);
  process.kill(process.pid, signal);
}

function isAbort(error: unknown): boolean {
  return error instanceof Error && error.name === "AbortError";
}
