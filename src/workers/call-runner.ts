/**
 * Calls a function and watches its promises. It runs inside a worker process, and on the main thread for a function
 * that cannot leave it.
 *
 * A promise that is not settled at its deadline is a failure, and its later result is ignored. A call that does not
 * return cannot be ended from here: the pool sees that the lane reports nothing more, and ends the process.
 */
import { messageOf } from "../util/errors.ts";
import type { Handler } from "./handler.ts";
import type { Call, LaneEvent, OpenLane } from "./lane.ts";
import { type CallResult, describeThrown, failedCall, lateCall, thrownCall } from "./result.ts";

/** Runs calls in their order. */
export type CallRunner<Input> = {
  run(calls: readonly Call<Input>[]): void;
  /** Something was thrown outside of any call. If exactly one promise is pending, that call threw it. */
  uncaught(error: unknown): void;
};

export function callRunner<Input, Output>(
  handler: Handler<Input, Output>,
  timeoutMs: number,
  report: (event: LaneEvent<Output>) => void,
): CallRunner<Input> {
  const deadlines = new Map<number, NodeJS.Timeout>(); // of the calls that are pending, by their id

  const answer = (id: number, result: CallResult<Output>) => {
    try {
      report({ kind: "answer", id, result });
    } catch (error) {
      const message = `returned a value that cannot be sent: ${messageOf(error)}`;
      report({ kind: "answer", id, result: failedCall("threw", message) });
    }
  };

  /** Only the first end of a pending call counts; a later one is ignored. */
  const settle = (id: number, result: CallResult<Output>) => {
    clearTimeout(deadlines.get(id));
    if (deadlines.delete(id)) answer(id, result);
  };

  const wait = (id: number, promise: Promise<Output>) => {
    deadlines.set(
      id,
      setTimeout(() => settle(id, lateCall(timeoutMs)), timeoutMs),
    );
    report({ kind: "pending", id });
    promise.then(
      (output) => settle(id, { output }),
      (error) => settle(id, thrownCall(error, handler.file)),
    );
  };

  const start = ({ id, input }: Call<Input>) => {
    let result: CallResult<Output>;
    try {
      const output = handler.run(input);
      if (isPromise(output)) return wait(id, Promise.resolve(output));
      result = { output };
    } catch (error) {
      result = thrownCall(error, handler.file);
    }
    answer(id, result);
  };

  return {
    run(calls) {
      report({ kind: "received" });
      for (const call of calls) start(call);
    },
    uncaught(error) {
      const [only, ...others] = deadlines.keys();
      if (only !== undefined && others.length === 0) settle(only, thrownCall(error, handler.file));
      else report({ kind: "uncaught", message: describeThrown(error, handler.file) });
    },
  };
}

/** A lane on the main thread. A function that never returns stops the whole program, so only promises have a deadline. */
export function localLane<Input, Output>(handler: Handler<Input, Output>, timeoutMs: number): OpenLane<Input, Output> {
  return (report) => {
    let isStopped = false;
    const runner = callRunner(handler, timeoutMs, (event) => isStopped || report(event));
    setImmediate(() => report({ kind: "ready" }));
    return {
      send: (calls) => void setImmediate(() => isStopped || runner.run(calls)),
      async stop() {
        isStopped = true;
      },
    };
  };
}

/** Whether a function's result is a promise, its own or of another library. */
export function isPromise<T>(value: T | PromiseLike<T>): value is PromiseLike<T> {
  return typeof value === "object" && value !== null && "then" in value && typeof value.then === "function";
}
