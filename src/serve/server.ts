/**
 * The running server: listens, and stops in an orderly way.
 *
 * Stopping: what comes is refused with 503, what is under way goes on until it is done or the deadline has passed, then
 * connections are closed. It does not own the model; whoever opened that closes it afterwards.
 */
import { createServer } from "node:http";
import { getRequestListener } from "@hono/node-server";
import type { Tokenizer } from "../text/tokenizer.ts";
import { messageOf } from "../util/errors.ts";
import { listen } from "../util/listen.ts";
import { type AppOptions, createApp } from "./app.ts";
import { Gate, type GateLimits } from "./gate.ts";
import { Metrics } from "./metrics.ts";
import { errorBody, Refusal } from "./refusal.ts";
import type { ServedModel } from "./sampler.ts";
import type { Service } from "./service.ts";

export type ServerOptions = AppOptions &
  GateLimits & {
    readonly host: string;
    /** 0 for any that is free. */
    readonly port: number;
    readonly names: Service["names"];
    readonly maxLength: number;
    readonly chatTemplate: string | null;
  };

export type RunningServer = {
  readonly port: number;
  /** Where it is, without a path. */
  readonly url: string;
  /** Let requests under way end, for so long; then stop. */
  stop(deadlineMs: number): Promise<void>;
};

/** How long clients may take to fetch the ends of their answers once everything else is done. */
const lingerMs = 2000;

/** Start to serve a model. */
export async function startServer(
  model: ServedModel,
  tokenizer: Tokenizer,
  options: ServerOptions,
): Promise<RunningServer> {
  const { names, maxLength, chatTemplate, host } = options;
  const gate = new Gate(options);
  const app = createApp({ model, tokenizer, names, maxLength, chatTemplate, gate, metrics: new Metrics() }, options);
  const listener = getRequestListener((request, env) => app.fetch(request, env), {
    overrideGlobalObjects: false,
    errorHandler: (error) => {
      const refusal = new Refusal(400, `The request cannot be read: ${messageOf(error)}.`);
      return Response.json(errorBody(refusal), { status: 400 });
    },
  });
  // Longer than the pools of usual clients keep a connection, so that none is closed under a request.
  const server = createServer({ keepAliveTimeout: 75_000 }, (incoming, outgoing) => void listener(incoming, outgoing));
  const port = await listen(server, options.host, options.port);
  return {
    port,
    url: `http://${host.includes(":") ? `[${host}]` : host}:${port}`,
    async stop(deadlineMs) {
      await gate.stop(deadlineMs);
      const closed = new Promise<void>((resolve) => server.close(() => resolve()));
      const idle = setInterval(() => server.closeIdleConnections(), 20); // as each gets the end of its answer
      const linger = setTimeout(() => server.closeAllConnections(), lingerMs);
      await closed;
      clearInterval(idle);
      clearTimeout(linger);
    },
  };
}
