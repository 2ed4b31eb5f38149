/**
 * The routes: the endpoint of each path, authentication, and errors with OpenAI's error body.
 *
 * Paths under /v1, /tokenize, /detokenize and /reload_weights need the API key if there is one; /health, /version and
 * /metrics never do. Unknown fields of a request are named in the header `x-trainyard-ignored`, and once in the log.
 */
import { createHash, timingSafeEqual } from "node:crypto";
import type { HttpBindings } from "@hono/node-server";
import { type Context, Hono } from "hono";
import { cors } from "hono/cors";
import type { ContentfulStatusCode } from "hono/utils/http-status";
import { info } from "../util/log.ts";
import { discardBody, type JsonObject, readBody } from "./body.ts";
import { chatCompletions } from "./chat.ts";
import { completions } from "./completions.ts";
import { eventStream, limitStall } from "./event-stream.ts";
import { show } from "./fields.ts";
import type { Reply } from "./reply.ts";
import { errorBody, RequestError, statusOf } from "./request-error.ts";
import { responses } from "./responses.ts";
import type { Service } from "./service.ts";
import { detokenize, tokenize } from "./tokenize.ts";

export type AppOptions = {
  readonly apiKey: string | null;
  readonly maxBodyBytes: number;
  /** Origins that browsers may call from; none by default. */
  readonly allowedOrigins: readonly string[];
  /** Without a key, let programs on this machine replace the weights. */
  readonly allowsReload: boolean;
  readonly version: string;
  /** The model as it was given on the command line. */
  readonly root: string;
};

type Env = { Bindings: HttpBindings };
type Answer = (c: Context<Env>) => Response | Promise<Response>;
type Route = { readonly method: "GET" | "POST"; readonly isOpen?: boolean; readonly answer: Answer };

/** The server as a function from requests to responses. */
export function createApp(service: Service, options: AppOptions): Hono<Env> {
  const app = new Hono<Env>();
  const routes = routesOf(service, options);
  app.use(async (c, next) => {
    await next();
    const isRead = await discardBody(c.env.incoming);
    if (service.limiter.isStopping || !isRead) c.header("connection", "close");
    if (!isStream(c.res)) limitStall(c.env.outgoing);
    service.metrics.countAnswer(
      c.req.method,
      labelOf(c.req.path, routes),
      statusOf(c.error) === 499 ? 499 : c.res.status,
    );
  });
  if (options.allowedOrigins.length > 0) app.use(cors({ origin: [...options.allowedOrigins] }));
  for (const [path, { method, isOpen = false, answer }] of Object.entries(routes)) {
    app.on(method, path, async (c) => {
      if (!isOpen) checkKey(c.req.header("authorization"), options.apiKey);
      return answer(c);
    });
    app.all(path, (c) => {
      c.header("allow", method);
      throw new RequestError(405, `${c.req.method} ${path} does not exist; use ${method}.`, {
        code: "method_not_allowed",
      });
    });
  }
  app.notFound((c) => toResponse(c, notFound(c.req.method, c.req.path)));
  app.onError((error, c) => toResponse(c, error));
  return app;
}

function routesOf(service: Service, options: AppOptions): Record<string, Route> {
  const { model, metrics, names, limiter } = service;
  const created = Math.floor(Date.now() / 1000);
  const card = (id: string) => ({
    id,
    object: "model",
    created,
    owned_by: "trainyard",
    root: options.root,
    max_model_len: service.maxLength,
  });
  const post = (endpoint: (service: Service, body: JsonObject) => Reply): Route => ({
    method: "POST",
    answer: async (c) => {
      limiter.check();
      const body = await readBody(c.env.incoming, options.maxBodyBytes);
      checkModel(service, body.model);
      return sendReply(c, endpoint(service, body));
    },
  });
  return {
    "/v1/models": { method: "GET", answer: (c) => c.json({ object: "list", data: [card(names[0])] }) },
    "/v1/models/:id{.+}": {
      method: "GET",
      answer: (c) => {
        checkModel(service, c.req.param("id"));
        return c.json(card(names[0]));
      },
    },
    "/v1/completions": post(completions),
    "/v1/chat/completions": post(chatCompletions),
    "/v1/responses": post(responses),
    "/v1/embeddings": {
      method: "POST",
      answer: () => {
        throw noEmbeddings();
      },
    },
    "/tokenize": post(tokenize),
    "/detokenize": post(detokenize),
    "/reload_weights": { method: "POST", answer: (c) => reload(c, service, options) },
    "/health": { method: "GET", isOpen: true, answer: (c) => c.body(null, limiter.isStopping ? 503 : 200) },
    "/version": { method: "GET", isOpen: true, answer: (c) => c.json({ version: options.version }) },
    "/metrics": {
      method: "GET",
      isOpen: true,
      answer: (c) =>
        c.text(metrics.text(names[0], model.samplerStats()), 200, { "content-type": "text/plain; version=0.0.4" }),
    },
  };
}

async function sendReply(c: Context<Env>, reply: Reply): Promise<Response> {
  const headers = ignoredHeader(reply.ignored);
  const client = c.req.raw.signal;
  const { stream } = reply;
  if (stream === undefined) return c.json(await reply.whole(client), 200, headers);
  return eventStream(c.env.outgoing, headers, (send) => stream(client, send));
}

/** Load new weights of the same shapes from a folder on this machine, for a trainer in another process. */
async function reload(
  c: Context<Env>,
  service: Service,
  { apiKey, allowsReload, maxBodyBytes }: AppOptions,
): Promise<Response> {
  const isLocal = /^(127\.|::1$|::ffff:127\.)/.test(c.env.incoming.socket.remoteAddress ?? "");
  if (apiKey === null && !(allowsReload && isLocal)) {
    throw new RequestError(
      403,
      "Replacing weights needs the API key: start the server with `--api-key`, or with `--allow-reload` " +
        "for programs on the same machine.",
      { code: "reload_not_allowed" },
    );
  }
  const { path } = await readBody(c.env.incoming, maxBodyBytes);
  if (typeof path !== "string" || path === "") {
    const message = `\`path\` is ${path === undefined ? "missing" : show(path)}; it should be the folder of a checkpoint on the server.`;
    throw new RequestError(400, message, { param: "path" });
  }
  const startedAt = performance.now();
  await service.limiter.runExclusive(() => service.model.load(path));
  const seconds = (performance.now() - startedAt) / 1000;
  info(`New weights from ${path}, in use after ${seconds.toFixed(1)} s.`);
  return c.json({ path, seconds });
}

/** Both keys are hashed first, so that the comparison takes the same time for any key. */
function checkKey(header: string | undefined, apiKey: string | null): void {
  if (apiKey === null) return;
  const digest = (text: string) => createHash("sha256").update(text).digest();
  const [, sent = ""] = /^bearer +(.*)$/i.exec(header ?? "") ?? [];
  if (timingSafeEqual(digest(sent), digest(apiKey))) return;
  const found =
    header === undefined ? "There is no API key in this request" : "The API key is not the one of this server";
  throw new RequestError(401, `${found}. Send it as Authorization: Bearer KEY.`, { code: "invalid_api_key" });
}

function checkModel({ names }: Service, model: unknown): void {
  if (model === undefined || model === null || names.some((name) => name === model)) return;
  if (typeof model !== "string") {
    throw new RequestError(400, `\`model\` is ${show(model)}; it should be the name of a model.`, { param: "model" });
  }
  throw new RequestError(404, `The model ${show(model)} does not exist. This server has ${show(names[0])}.`, {
    param: "model",
    code: "model_not_found",
  });
}

function noEmbeddings(): RequestError {
  const message =
    "This server has no embeddings: it serves a language model, which completes text (/v1/completions, /v1/chat/completions, /v1/responses).";
  return new RequestError(404, message, { code: "not_found" });
}

function notFound(method: string, path: string): RequestError {
  return new RequestError(404, `There is no ${method} ${path.slice(0, 200)} here.`, { code: "not_found" });
}

function toResponse(c: Context<Env>, error: unknown): Response {
  const status = statusOf(error);
  if (status === 429 || status === 503) c.header("retry-after", "1");
  if (status === 401) c.header("www-authenticate", "Bearer");
  // Safe: hono's type is a list of the registered codes, and 499, the only other one here, is never sent to a client.
  return c.json(errorBody(error), status as ContentfulStatusCode);
}

const logged = new Set<string>();

/** The names of ignored fields, safe in a header; each is also logged once. */
function ignoredHeader(names: readonly string[]): Record<string, string> {
  if (names.length === 0) return {};
  const shown = names.slice(0, 20).map((name) => name.replace(/[^\w.[\]-]/g, "?").slice(0, 60));
  for (const name of shown) {
    if (logged.has(name) || logged.size > 200) continue;
    logged.add(name);
    info(`Requests have the field \`${name}\`, which this server does not know; it is ignored.`);
  }
  return { "x-trainyard-ignored": shown.join(", ") };
}

function isStream(response: Response): boolean {
  return response.headers.get("content-type")?.startsWith("text/event-stream") ?? false;
}

/** The pattern of a route: the path as a client writes it must not become a label. */
function labelOf(path: string, routes: Readonly<Record<string, Route>>): string {
  if (Object.hasOwn(routes, path)) return path;
  return path.startsWith("/v1/models/") ? "/v1/models/:id" : "other";
}
