/**
 * Ctrl-C: the first asks the work to stop and save, the second ends the program at once.
 *
 * npm and our launcher pass on a signal that the terminal has already sent to everyone, so one key press can arrive
 * twice; a repeat within a moment is therefore the same press.
 */
import { info } from "../util/log.ts";

/** The exit code of an interrupted program. */
const interrupted = 130;

const samePressMs = 300;

/** Run `work` with a signal that Ctrl-C aborts; returns 0, or 130 when it was interrupted. */
export async function withInterrupt(work: (signal: AbortSignal) => Promise<void>): Promise<number> {
  const controller = new AbortController();
  let firstAt = 0;
  const onSignal = () => {
    if (!controller.signal.aborted) {
      firstAt = performance.now();
      info("Stopping, what is done is kept. Press Ctrl-C again to stop at once.");
      controller.abort();
    } else if (performance.now() - firstAt > samePressMs) {
      endAtOnce();
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
  return controller.signal.aborted ? interrupted : 0;
}

/**
 * Die by the signal itself, which a shell reports as 130 too. `process.exit` would wait for the engine thread to come
 * out of the pass it is in, and then abort when onnxruntime finds that thread's JavaScript gone.
 */
function endAtOnce(): void {
  process.removeAllListeners("SIGINT");
  process.kill(process.pid, "SIGINT");
}

function isAbort(error: unknown): boolean {
  return error instanceof Error && error.name === "AbortError";
}
