/**
 * One address for several servers: a small HTTP proxy on this machine, which a reward function calls (verl's
 * `reward_router_address`). A request goes to the least busy server; one that fails is sent to another.
 *
 * It listens on the loopback interface only. The API key is added here, so functions need not know it.
 */
import { createServer } from "node:http";
import { getRequestListener } from "@hono/node-server";
import { messageOf } from "../util/errors.ts";
import { isTransientStatus, retry, TransientError } from "../util/http-retry.ts";
import { listen } from "../util/listen.ts";
import { warn } from "../util/log.ts";
import { nextTarget, restTarget, type Target, targetsAt, wakeTarget } from "./targets.ts";

export type Router = {
  /** Such as `127.0.0.1:41234`, as verl gives it. */
  readonly address: string;
  close(): Promise<void>;
};

type RouterOptions = { readonly addresses: readonly string[]; readonly apiKey?: string; readonly signal: AbortSignal };

/** How often a request is sent at most, per server. */
const TRIES = 3;
const FIRST_WAIT_MS = 500;
const HOST = "127.0.0.1";

/** Start a router in front of some servers. */
export async function openRouter({ addresses, apiKey, signal }: RouterOptions): Promise<Router> {
  const targets = targetsAt("The judge", addresses.map(rootOf));
  const forward = (request: Request) => forwarded(request, targets, { apiKey, signal });
  const listener = getRequestListener(forward, { overrideGlobalObjects: false });
  const server = createServer((incoming, outgoing) => void listener(incoming, outgoing));
  const port = await listen(server, HOST, 0);
  return {
    address: `${HOST}:${port}`,
    async close() {
      const closed = new Promise<void>((resolve) => server.close(() => resolve()));
      server.closeAllConnections();
      await closed;
    },
  };
}

/** The address without the part that callers write themselves: `/v1/…` or `/classify`. */
function rootOf(address: string): string {
  return address.replace(/\/+$/, "").replace(/\/(v1(\/chat\/completions)?|classify)$/, "");
}

/** Headers that belong to one connection. */
const ofConnection = ["host", "connection", "content-length", "transfer-encoding", "content-encoding", "keep-alive"];

async function forwarded(
  request: Request,
  targets: readonly Target[],
  { apiKey, signal }: { readonly apiKey: string | undefined; readonly signal: AbortSignal },
): Promise<Response> {
  const { pathname, search } = new URL(request.url);
  const body = request.method === "GET" || request.method === "HEAD" ? null : await request.arrayBuffer();
  const headers = new Headers(request.headers);
  for (const name of ofConnection) headers.delete(name);
  if (apiKey !== undefined && !headers.has("authorization")) headers.set("authorization", `Bearer ${apiKey}`);
  let target: Target | null = null;
  let answer: Response | null = null;
  const attempt = async () => {
    target = nextTarget(targets, target);
    target.inFlight++;
    try {
      const url = `${target.url.href.replace(/\/+$/, "")}${pathname}${search}`;
      answer = await fetch(url, { method: request.method, headers, body, signal });
    } catch (error) {
      signal.throwIfAborted();
      answer = null;
      throw new TransientError(messageOf(error instanceof Error ? (error.cause ?? error) : error), { cause: error });
    } finally {
      target.inFlight--;
    }
    if (isTransientStatus.service(answer.status)) throw new TransientError(`it answers ${answer.status}`);
    wakeTarget(target);
    return answer;
  };
  try {
    const found = await retry(attempt, {
      firstWaitMs: FIRST_WAIT_MS,
      signal,
      onFailure(error, { tries, waitMs }) {
        if (!target!.isDown && targets.length > 1) warn(`${target!.url}: ${error.message}; another server is asked.`);
        const hasOther = restTarget(target!, targets);
        if (tries >= TRIES * targets.length) throw error;
        return hasOther ? 0 : waitMs;
      },
    });
    return passedOn(found);
  } catch (error) {
    if (answer !== null) return passedOn(answer);
    return Response.json({ error: { message: `No server answers: ${messageOf(error)}.` } }, { status: 502 });
  }
}

function passedOn(answer: Response): Response {
  const headers = new Headers(answer.headers);
  for (const name of ofConnection) headers.delete(name);
  return new Response(answer.body, { status: answer.status, headers });
}
