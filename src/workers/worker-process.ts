/**
 * The process in which a function runs: it loads one, and answers calls until it is ended. `node-lane.ts` is the other
 * end.
 *
 * It imports other files late, after the compile cache is on. So Node keeps the parsed code for the next process, which
 * then starts in a third of the time.
 */
import { enableCompileCache, flushCompileCache } from "node:module";
import { Worker } from "node:worker_threads";
import type { CallRunner } from "./call-runner.ts";
import type { HandlerModule } from "./handler.ts";
import type { Call, LaneEvent } from "./lane.ts";

/** The first message to the process; all others are lists of calls. */
export type ProcessSettings = {
  /** The address of a `HandlerModule`, and what its `load` is called with. */
  readonly module: string;
  readonly settings: unknown;
  readonly timeoutMs: number;
  readonly memoryMb: number;
  /** What messages call the function. */
  readonly what: string;
};

const report = (event: LaneEvent<unknown>) => void process.send?.(event);
let runner: CallRunner<unknown> | null = null;

enableCompileCache();
process.once("disconnect", () => process.kill(process.pid, "SIGKILL"));
process.once("message", async (settings: ProcessSettings) => {
  const { siblingModule } = await import("../util/sibling-module.ts");
  const workerData = { memoryMb: settings.memoryMb, parent: process.ppid };
  new Worker(siblingModule("watchdog", import.meta.url), { workerData }).unref();
  const { describeThrown, describeUnloadable } = await import("./result.ts");
  process.on("uncaughtException", (error) => {
    const message = describeUnloadable(settings.what, `threw ${describeThrown(error, null)}`);
    if (runner === null) report({ kind: "refused", message });
    else runner.uncaught(error);
  });
  await serve(settings);
  flushCompileCache(); // such a process is always killed, and would not do it at its end
});

/** Load the function and answer calls. */
async function serve({ module, settings, timeoutMs }: ProcessSettings): Promise<void> {
  const { callRunner } = await import("./call-runner.ts");
  const { messageOf, UserError } = await import("../util/errors.ts");
  try {
    // Whoever opened the lane names a module with this export, and sends the settings and inputs that it takes.
    const { load }: HandlerModule<unknown, unknown, unknown> = await import(module);
    const loaded = callRunner(await load(settings), timeoutMs, report);
    runner = loaded;
    process.on("message", (calls: readonly Call<unknown>[]) => loaded.run(calls));
    report({ kind: "ready" });
  } catch (error) {
    const isOurs = !(error instanceof UserError);
    report({ kind: "refused", message: isOurs ? `internal: ${messageOf(error)}` : error.message });
  }
}
