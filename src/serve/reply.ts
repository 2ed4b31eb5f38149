/** The answer of an endpoint, independent of HTTP. */
import { randomUUID } from "node:crypto";
import type { Send } from "./event-stream.ts";

/** An answer as one object, or event by event. */
export type Reply = {
  /** Unknown fields of the request. */
  readonly ignored: readonly string[];
  whole(client: AbortSignal): Promise<object>;
  /** Set if the request asks for a stream. */
  stream?(client: AbortSignal, send: Send): Promise<void>;
};

/** A new id such as `chatcmpl-3f…`. */
export function newId(prefix: string): string {
  return `${prefix}-${randomUUID().replaceAll("-", "")}`;
}

/** Seconds since 1970, as OpenAI's `created`. */
export function secondsNow(): number {
  return Math.floor(Date.now() / 1000);
}
