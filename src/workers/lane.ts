/**
 * A lane runs the calls of one function: in a Node process, in a Python interpreter, or on the main thread. The pool
 * (`pool.ts`) gives it calls, and knows it only by these messages.
 *
 * A lane starts calls in the order they were sent, without a break between those of one `send`. So once a lane has
 * reported `received`, the first call that is neither answered nor pending is the one that is running.
 */
import type { CallResult } from "./result.ts";

/** One call of the function. */
export type Call<Input> = { readonly id: number; readonly input: Input };

export type LaneEvent<Output> =
  /** The function is loaded; calls may be sent. */
  | { readonly kind: "ready" }
  /** The function cannot be loaded: a message for the user. */
  | { readonly kind: "refused"; readonly message: string }
  /** The lane is starting the calls that were sent last. */
  | { readonly kind: "received" }
  /** The call returned a promise, and the next call is started. */
  | { readonly kind: "pending"; readonly id: number }
  | { readonly kind: "answer"; readonly id: number; readonly result: CallResult<Output> }
  /** Something was thrown outside of any call, such as in a timer that a call left behind. */
  | { readonly kind: "uncaught"; readonly message: string }
  /** The lane ended by itself, and reports nothing more: the rest of a sentence that begins with the function. */
  | { readonly kind: "gone"; readonly message: string };

export type Lane<Input> = {
  /** Allowed only while no call that was sent before is running or waits to be started. */
  send(calls: readonly Call<Input>[]): void;
  /** End it at once, whatever it is doing; it reports nothing afterwards. */
  stop(): Promise<void>;
};

export type OpenLane<Input, Output> = (report: (event: LaneEvent<Output>) => void) => Lane<Input>;

/** What the messages and the log call the function. */
export type FunctionName = {
  /** In a sentence: "the reward function". */
  readonly what: string;
  /** Before each line that it prints: "reward". */
  readonly logPrefix: string;
};
