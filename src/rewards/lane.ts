/**
 * A lane runs reward functions, one process or Python interpreter each; the pool (`pool.ts`) hands it calls and knows it
 * by these messages only.
 *
 * Calls are begun in the order they are sent, without a break between those of one `send`. So once a lane has said
 * `received`, the first of them that is neither answered nor pending is the one that is running.
 */
import type { Outcome } from "./outcome.ts";
import type { RewardInput } from "./reward.ts";

/** One call of a reward function: one sample, or several where the function takes batches. */
export type Call = { readonly id: number; readonly inputs: readonly RewardInput[] };

export type LaneEvent =
  /** The reward function is loaded; calls may be sent. */
  | { readonly kind: "ready" }
  /** The reward function cannot be loaded: a message for the user. */
  | { readonly kind: "refused"; readonly message: string }
  /** The calls sent last are being begun. */
  | { readonly kind: "received" }
  /** The call returned a promise, and the next one is begun. */
  | { readonly kind: "pending"; readonly id: number }
  /** One outcome per sample of the call. */
  | { readonly kind: "answer"; readonly id: number; readonly outcomes: readonly Outcome[] }
  /** Something was thrown outside of any call, such as in a timer that a call left behind. */
  | { readonly kind: "stray"; readonly message: string }
  /** The lane ended by itself, and will say nothing more: the rest of a sentence that begins with the function. */
  | { readonly kind: "gone"; readonly message: string };

export type Lane = {
  /** Only while no call that was sent before is running or waits to be begun. */
  send(calls: readonly Call[]): void;
  /** End it at once, whatever it is doing; it says nothing afterwards. */
  stop(): Promise<void>;
};

export type OpenLane = (say: (event: LaneEvent) => void) => Lane;
