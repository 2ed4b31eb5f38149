/**
 * Calls reward functions and watches their promises. It runs inside a reward process, and on the main thread for a
 * function that cannot leave it.
 *
 * A promise that does not settle by the deadline is a failure and is forgotten. A call that does not return cannot be
 * ended from in here: the pool sees that nothing more is said, and ends the process.
 */
import { checkBatch, checkReward } from "./check.ts";
import type { LoadedReward } from "./custom.ts";
import type { Call, LaneEvent, OpenLane } from "./lane.ts";
import { describeThrown, failed, type Outcome, overdue, threw } from "./outcome.ts";

/** Runs calls in their order. */
export type CallRunner = {
  run(calls: readonly Call[]): void;
  /** Something was thrown outside of any call: by the only promise that is pending, or by nobody knows whom. */
  stray(error: unknown): void;
};

export function callRunner(reward: LoadedReward, timeoutMs: number, say: (event: LaneEvent) => void): CallRunner {
  const deadlines = new Map<Call, NodeJS.Timeout>(); // of the calls that are pending

  const answer = ({ id }: Call, outcomes: readonly Outcome[]) => say({ kind: "answer", id, outcomes });
  const checked = (value: unknown, { inputs }: Call) =>
    reward.isBatch ? checkBatch(value, inputs) : inputs.map((input) => checkReward(value, input));
  const thrown = (error: unknown, { inputs }: Call) => inputs.map((input) => threw(input, error, reward.file));
  const late = ({ inputs }: Call) => inputs.map((input) => failed(input, "deadline", overdue(timeoutMs)));

  /** The first end of a pending call counts; what its promise does later does not. */
  const settle = (call: Call, outcomes: () => readonly Outcome[]) => {
    clearTimeout(deadlines.get(call));
    if (deadlines.delete(call)) answer(call, outcomes());
  };

  const wait = (call: Call, promise: Promise<unknown>) => {
    deadlines.set(
      call,
      setTimeout(() => settle(call, () => late(call)), timeoutMs),
    );
    say({ kind: "pending", id: call.id });
    promise.then(
      (value) => settle(call, () => checked(value, call)),
      (error) => settle(call, () => thrown(error, call)),
    );
  };

  const begin = (call: Call) => {
    let outcomes: readonly Outcome[];
    try {
      const value = reward.run(call.inputs);
      if (isPromise(value)) return wait(call, Promise.resolve(value));
      outcomes = checked(value, call);
    } catch (error) {
      outcomes = thrown(error, call);
    }
    answer(call, outcomes);
  };

  return {
    run(calls) {
      say({ kind: "received" });
      for (const call of calls) begin(call);
    },
    stray(error) {
      const [only, ...others] = deadlines.keys();
      if (only !== undefined && others.length === 0) settle(only, () => thrown(error, only));
      else say({ kind: "stray", message: describeThrown(error, reward.file) });
    },
  };
}

/** A lane on the main thread. A function that never returns stops the whole program, so only promises have a deadline. */
export function localLane(reward: LoadedReward, timeoutMs: number): OpenLane {
  return (say) => {
    let isStopped = false;
    const runner = callRunner(reward, timeoutMs, (event) => isStopped || say(event));
    setImmediate(() => say({ kind: "ready" }));
    return {
      send: (calls) => void setImmediate(() => isStopped || runner.run(calls)),
      async stop() {
        isStopped = true;
      },
    };
  };
}

function isPromise(value: unknown): value is PromiseLike<unknown> {
  return typeof value === "object" && value !== null && "then" in value && typeof value.then === "function";
}
