/** A lane that is a Node process with one function loaded; `worker-process.ts` runs in it. */
import { fork } from "node:child_process";
import { fileURLToPath } from "node:url";
import { messageOf } from "../util/errors.ts";
import { siblingModule } from "../util/sibling-module.ts";
import { ownGroup, watch } from "./child-process.ts";
import type { Call, FunctionName, LaneEvent, OpenLane } from "./lane.ts";
import { failedCall } from "./result.ts";
import type { ProcessSettings } from "./worker-process.ts";

type NodeLaneOptions = FunctionName & {
  /** The module that the process imports: a `HandlerModule`. */
  readonly module: URL;
  /** What its `load` is called with: data that can be sent to another process. */
  readonly settings: unknown;
  readonly timeoutMs: number;
  readonly memoryMb: number;
};

/** A process for each lane; `Input` and `Output` are those of the module, and have to be data too. */
export function nodeLane<Input, Output>(options: NodeLaneOptions): OpenLane<Input, Output> {
  const { module, settings, timeoutMs, memoryMb, what, logPrefix } = options;
  return (report) => {
    const child = fork(fileURLToPath(siblingModule("worker-process", import.meta.url)), [], {
      ...ownGroup,
      execArgv: [`--max-old-space-size=${memoryMb}`],
      serialization: "advanced", // dates and big integers stay what they are
      stdio: ["ignore", "pipe", "pipe", "ipc"],
    });
    const { stop } = watch({
      child,
      printed: [child.stdout, child.stderr],
      logPrefix,
      memoryMb,
      onGone: (message) => report({ kind: "gone", message }),
    });
    let isStopped = false;
    child.on("message", (event) => isStopped || report(event as LaneEvent<Output>)); // only `worker-process.ts` sends
    const send = (message: object) => void child.send(message, () => {}); // if it cannot arrive, the process is gone
    const first: ProcessSettings = { module: module.href, settings, timeoutMs, memoryMb, what };
    send(first);
    return {
      send(calls) {
        try {
          send(calls);
        } catch {
          send(calls.filter((call) => isSendable(call, report)));
        }
      },
      stop() {
        isStopped = true;
        return stop();
      },
    };
  };
}

/** Answer a call whose input cannot be sent to another process, such as one that holds a function. */
function isSendable<Output>(call: Call<unknown>, report: (event: LaneEvent<Output>) => void): boolean {
  try {
    structuredClone(call.input);
    return true;
  } catch (error) {
    const message = `cannot be given its input: ${messageOf(error)}`;
    setImmediate(() => report({ kind: "answer", id: call.id, result: failedCall("threw", message) }));
    return false;
  }
}
