/**
 * The process in which reward functions run: it loads one, and answers calls until it is ended; `node-lane.ts` is the
 * other end.
 *
 * What it imports is imported late, so that Node keeps the parsed code for the next process: it starts in a third of the
 * time.
 */
import { enableCompileCache, flushCompileCache } from "node:module";
import { Worker } from "node:worker_threads";
import type { CallRunner } from "./calls.ts";
import type { RewardSource } from "./custom.ts";
import type { Call, LaneEvent } from "./lane.ts";

/** The first message to the process; all others are lists of calls. */
export type ProcessSettings = {
  readonly source: RewardSource;
  readonly timeoutMs: number;
  readonly memoryMb: number;
};

const say = (event: LaneEvent) => void process.send?.(event);
let runner: CallRunner | null = null;

enableCompileCache();
process.once("disconnect", () => process.kill(process.pid, "SIGKILL"));
process.once("message", async ({ source, timeoutMs, memoryMb }: ProcessSettings) => {
  const file = import.meta.url.endsWith(".ts") ? "./watchdog.ts" : "./watchdog.js";
  const workerData = { memoryMb, parent: process.ppid };
  new Worker(new URL(file, import.meta.url), { workerData }).unref();
  const { describeThrown } = await import("./outcome.ts");
  process.on("uncaughtException", (error) => {
    const message = `The reward function cannot be loaded: it threw ${describeThrown(error, null)}.`;
    if (runner === null) say({ kind: "refused", message });
    else runner.stray(error);
  });
  await serve(source, timeoutMs);
  flushCompileCache(); // such a process is always killed, and would not do it at its end
});

/** Load the reward function and answer calls. */
async function serve(source: RewardSource, timeoutMs: number): Promise<void> {
  const { callRunner } = await import("./calls.ts");
  const { loadReward } = await import("./custom.ts");
  const { messageOf, UserError } = await import("../util/errors.ts");
  try {
    const loaded = callRunner(await loadReward(source), timeoutMs, say);
    runner = loaded;
    process.on("message", (calls: readonly Call[]) => loaded.run(calls));
    say({ kind: "ready" });
  } catch (error) {
    const isOurs = !(error instanceof UserError);
    say({ kind: "refused", message: isOurs ? `internal: ${messageOf(error)}` : error.message });
  }
}
