/**
 * Server-sent events with a bounded memory: a client that stops reading loses its connection, not the others' time.
 *
 * Headers are sent with the first event, so that what is refused before it has its proper status. What goes wrong later
 * is an event with OpenAI's error body. Cancelling works both ways: a closed connection aborts the request's signal.
 */
import type { ServerResponse } from "node:http";
import { errorBody } from "./refusal.ts";

/** Bytes that may wait for a client. At some 250 bytes per token this is thousands of tokens behind. */
const maxWaitingBytes = 1 << 20;

export type Send = (data: object) => void;

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
  const write = (line: string) => {
    if (isOver || queue === undefined) return;
    queue.enqueue(encoder.encode(`data: ${line}\n\n`));
    if ((queue.desiredSize ?? 0) >= 0) return;
    isOver = true;
    outgoing.destroy(); // it closes, and with it the request's signal aborts
  };
  const finish = () => {
    write("[DONE]");
    if (isOver) return;
    isOver = true;
    queue?.close();
    limitStall(outgoing);
  };
  return new Promise((resolve, reject) => {
    let isBegun = false;
    const send: Send = (data) => {
      write(JSON.stringify(data));
      if (isBegun) return;
      isBegun = true;
      resolve(new Response(body, { headers: { ...headers, ...eventHeaders } }));
    };
    produce(send).then(finish, (error) => {
      if (!isBegun) return reject(error);
      write(JSON.stringify(errorBody(error)));
      finish();
    });
  });
}

const eventHeaders = {
  "content-type": "text/event-stream; charset=utf-8",
  "cache-control": "no-cache",
  // As nginx reads it: pass events on as they come.
  "x-accel-buffering": "no",
};

/** The rest of an answer must move: a connection that takes nothing for so long is closed. */
const stallMs = 60_000;

/** Close the connection if the finished answer is not taken. */
export function limitStall(outgoing: ServerResponse): void {
  if (!outgoing.writableFinished) outgoing.setTimeout(stallMs);
}
