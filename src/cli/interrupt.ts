/**
 * Ctrl-C and SIGTERM: the first asks the work to stop, the second ends the program at once.
 *
 * npm and our launcher pass on a signal that the terminal has already sent to every process, so one key press can
 * arrive twice. A repeat within 300 ms is therefore the same press.
 */
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

/** Run `work` with a signal that Ctrl-C and SIGTERM abort; returns whether one of them came. */
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
  process.on("SIGINT", onSignal);
  process.on("SIGTERM", onSignal);
  try {
    await work(controller.signal);
  } catch (error) {
    if (!controller.signal.aborted || !isAbort(error)) throw error;
  } finally {
    process.off("SIGINT", onSignal);
    process.off("SIGTERM", onSignal);
  }
  return controller.signal.aborted;
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
