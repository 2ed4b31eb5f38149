/**
 * Server-sent events with bounded memory: a client that stops reading loses its connection and does not slow others down.
 *
 * Headers are sent with the first event, so that an earlier error has its own status. A later error is an event with
 * OpenAI's error body. A closed connection aborts the request's signal.
 */
import type { ServerResponse } from "node:http";
import { errorBody } from "./request-error.ts";

/** Bytes that may wait for a client. At about 250 bytes per token this is thousands of tokens. */
const maxWaitingBytes = 1 << 20;

/** An event with a `type` also has it as its name, as OpenAI's responses do. */
export type EventData = { readonly type?: string; readonly [name: string]: unknown };

export type Send = (data: EventData) => void;

/** An answer whose events `produce` sends; resolves with the first event. */
export async function eventStream(
  outgoing: ServerResponse,
  headers: Readonly<Record<string, string>>,
  produce: (send: Send) => Promise<void>,
): Promise<Response> {
  const encoder = new TextEncoder();
  let isOver = false;
  let queue: ReadableStreamDefaultController<Uint8Array> | undefined;
  const body = new ReadableStream<Uint8Array>(
    {
      start(controller) {
        queue = controller;
      },
      cancel() {
        isOver = true;
      },
    },
    new ByteLengthQueuingStrategy({ highWaterMark: maxWaitingBytes }),
  );
  const write = (data: EventData | "[DONE]") => {
    if (isOver || queue === undefined) return;
    const name = typeof data === "object" && data.type !== undefined ? `event: ${data.type}\n` : "";
    queue.enqueue(encoder.encode(`${name}data: ${typeof data === "object" ? JSON.stringify(data) : data}\n\n`));
    if ((queue.desiredSize ?? 0) >= 0) return;
    isOver = true;
    outgoing.destroy(); // this also aborts the request's signal
  };
  const finish = () => {
    write("[DONE]");
    if (isOver) return;
    isOver = true;
    queue?.close();
    limitStall(outgoing);
  };
  return new Promise((resolve, reject) => {
    let hasStarted = false;
    const send: Send = (data) => {
      write(data);
      if (hasStarted) return;
      hasStarted = true;
      resolve(new Response(body, { headers: { ...headers, ...eventHeaders } }));
    };
    produce(send).then(finish, (error) => {
      if (!hasStarted) return reject(error);
      write(errorBody(error));
      finish();
    });
  });
}

const eventHeaders = {
  "content-type": "text/event-stream; charset=utf-8",
  "cache-control": "no-cache",
  // For nginx: pass events on as they come.
  "x-accel-buffering": "no",
};

/** A connection whose client reads nothing for this long is closed. */
const stallMs = 60_000;

/** Close the connection if the client does not read the finished answer. */
export function limitStall(outgoing: ServerResponse): void {
  if (!outgoing.writableFinished) outgoing.setTimeout(stallMs);
}
