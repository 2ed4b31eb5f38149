/**
 * The running server: it listens, and it can be stopped.
 *
 * When it stops, new requests get a 503, running requests continue until they are done or the deadline is over, and then
 * connections are closed. The server does not own the model: the caller that opened it closes it afterwards.
 */
import { createServer } from "node:http";
import { getRequestListener } from "@hono/node-server";
import type { Tokenizer } from "../text/tokenizer.ts";
import { messageOf } from "../util/errors.ts";
import { listen } from "../util/listen.ts";
import { type AppOptions, createApp } from "./app.ts";
import { Metrics } from "./metrics.ts";
import { errorBody, RequestError } from "./request-error.ts";
import { RequestLimiter, type RequestLimits } from "./request-limiter.ts";
import type { ServedModel } from "./served-model.ts";
import type { Service } from "./service.ts";

export type ServerOptions = AppOptions &
  RequestLimits & {
    readonly host: string;
    /** 0 for any free port. */
    readonly port: number;
    readonly names: Service["names"];
    readonly maxLength: number;
    readonly chatTemplate: string | null;
  };

export type RunningServer = {
  readonly port: number;
  /** Its address, without a path. */
  readonly url: string;
  /** Let running requests end until the deadline, then stop. */
  stop(deadlineMs: number): Promise<void>;
};

/** How long clients may take to read the ends of their answers when everything else is done. */
const lingerMs = 2000;

/** Start a server for a model. */
export async function startServer(
  model: ServedModel,
  tokenizer: Tokenizer,
  options: ServerOptions,
): Promise<RunningServer> {
  const { names, maxLength, chatTemplate, host } = options;
  const limiter = new RequestLimiter(options);
  const app = createApp({ model, tokenizer, names, maxLength, chatTemplate, limiter, metrics: new Metrics() }, options);
  const listener = getRequestListener((request, env) => app.fetch(request, env), {
    overrideGlobalObjects: false,
    errorHandler: (error) => {
      const refusal = new RequestError(400, `The request cannot be read: ${messageOf(error)}.`);
      return Response.json(errorBody(refusal), { status: 400 });
    },
  });
  // Longer than the connection pools of usual clients keep a connection, so that none is closed during a request.
  const server = createServer({ keepAliveTimeout: 75_000 }, (incoming, outgoing) => void listener(incoming, outgoing));
  const port = await listen(server, options.host, options.port);
  return {
    port,
    url: `http://${host.includes(":") ? `[${host}]` : host}:${port}`,
    async stop(deadlineMs) {
      await limiter.stop(deadlineMs);
      const closed = new Promise<void>((resolve) => server.close(() => resolve()));
      const idle = setInterval(() => server.closeIdleConnections(), 20); // each connection when its client has read the answer
      const linger = setTimeout(() => server.closeAllConnections(), lingerMs);
      await closed;
      clearInterval(idle);
      clearTimeout(linger);
    },
  };
}
