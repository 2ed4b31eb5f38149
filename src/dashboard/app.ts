/**
 * The routes: the page's files, and the content of run folders as JSON.
 *
 * It only reads, and only run folders that were found below the shown folder: a request names a run, never a path.
 * Requests with a host name that is not this machine's are refused, so that no web page can reach the dashboard through
 * a name of its own (DNS rebinding). A strict content policy lets the page load its own files only.
 */
import { createHash } from "node:crypto";
import { isIP } from "node:net";
import { hostname } from "node:os";
import { join } from "node:path";
import { type Context, Hono } from "hono";
import type { ContentfulStatusCode } from "hono/utils/http-status";
import { ApiError, messageOf } from "../util/errors.ts";
import type { RunList } from "./api.ts";
import { findRuns } from "./find-runs.ts";
import { importMapHash, loadPage } from "./page-files.ts";
import { RunView } from "./run-view.ts";

type AppOptions = {
  /** A run folder, or a folder that holds runs. */
  readonly folder: string;
  /** The host name that the server listens on. */
  readonly host: string;
};

const contentPolicy = [
  "default-src 'none'",
  `script-src 'self' '${importMapHash}'`,
  "style-src 'self'",
  "img-src 'self'",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
  "require-trusted-types-for 'script'",
  "trusted-types 'none'",
].join("; ");

const headers: Readonly<Record<string, string>> = {
  "content-security-policy": contentPolicy,
  "x-content-type-options": "nosniff",
  "referrer-policy": "no-referrer",
  "cross-origin-resource-policy": "same-origin",
  "cross-origin-opener-policy": "same-origin",
  "cache-control": "no-cache",
};

type App = {
  fetch(request: Request): Response | Promise<Response>;
  /** Read the newest run before the first request: most likely it is the one to be shown. */
  warm(): Promise<void>;
};

/** The dashboard as a function from requests to responses. */
export function createApp({ folder, host }: AppOptions): App {
  const app = new Hono();
  const runs = new Runs(folder);
  const page = loadPage();
  app.use(async (c, next) => {
    if (!isOwnName(c.req.header("host") ?? "", host)) throw new ApiError(421, foreignName(c.req.header("host")));
    if (c.req.method !== "GET" && c.req.method !== "HEAD")
      throw new ApiError(405, `${c.req.method} is not there: the dashboard only reads. Use GET.`);
    await next();
    for (const [name, value] of Object.entries(headers)) c.header(name, value);
  });
  for (const [path, { type, body }] of page) app.get(path, (c) => answer(c, body, type));
  addRoutes(app, runs);
  app.notFound((c) => c.json({ error: `There is no ${c.req.path.slice(0, 200)} here.` }, 404));
  app.onError((error, c) => {
    for (const [name, value] of Object.entries(headers)) c.header(name, value);
    const status = error instanceof ApiError ? error.status : 500;
    return c.json({ error: messageOf(error) }, status as ContentfulStatusCode); // ours are registered codes
  });
  return { fetch: (request) => app.fetch(request), warm: () => runs.warm() };
}

function addRoutes(app: Hono, runs: Runs): void {
  app.get("/api/runs", async (c) => json(c, await runs.list()));
  const route = (path: string, reply: (view: RunView, c: Context) => Promise<unknown>) =>
    app.get(path, async (c) => json(c, await reply(await runs.view(query(c, "run")), c)));
  route("/api/run", (view) => view.detail());
  route("/api/metrics", (view) => view.metrics());
  route("/api/config", (view) => view.config());
  route("/api/rollout-index", (view) => view.rolloutIndex());
  route("/api/rollouts", async (view, c) => {
    const kind = query(c, "kind") === "val" ? "val" : "train";
    const step = count(c, "step");
    return found(await view.rollouts(kind, step), `Step ${step} has no ${kind} rollouts that can be read.`);
  });
  route("/api/search", (view, c) =>
    view.search(query(c, "text"), c.req.query("before") === undefined ? null : count(c, "before")),
  );
  route("/api/validation", (view) => view.validationTable());
  route("/api/validation/prompt", async (view, c) =>
    found(await view.promptHistory(query(c, "key")), "This prompt is not among the validation rollouts."),
  );
  app.get("/api/columns", async (c) => {
    const view = await runs.view(query(c, "run"));
    const bytes = await view.columns(c.req.queries("name") ?? [], count(c, "from"), count(c, "version"));
    return c.body(bytes, 200, { "content-type": "application/octet-stream" });
  });
}

/** The runs below a folder; those that were requested recently stay in memory. */
class Runs {
  readonly #folder: string;
  readonly #views = new Map<string, RunView>();
  #ids: readonly string[] = [];
  #lookedAt = Number.NEGATIVE_INFINITY;

  constructor(folder: string) {
    this.#folder = folder;
  }

  async list(): Promise<RunList> {
    const ids = await this.#find();
    return { folder: this.#folder, runs: await Promise.all(ids.map((id) => this.#viewOf(id).summary())) };
  }

  async warm(): Promise<void> {
    const { runs } = await this.list();
    const [newest] = [...runs].sort((a, b) => b.updatedAt - a.updatedAt);
    if (newest === undefined) return;
    await this.#viewOf(newest.id).detail();
    await this.#viewOf(newest.id).rolloutIndex();
  }

  async view(id: string): Promise<RunView> {
    if (!(await this.#find()).includes(id)) throw new ApiError(404, `There is no run ${id} in ${this.#folder}.`);
    return this.#viewOf(id);
  }

  #viewOf(id: string): RunView {
    let view = this.#views.get(id);
    if (view === undefined) {
      view = new RunView(id, join(this.#folder, id));
      this.#views.set(id, view);
    }
    return view;
  }

  /** Search for runs, but not at every request. */
  async #find(): Promise<readonly string[]> {
    if (performance.now() - this.#lookedAt > 2000) {
      this.#ids = await findRuns(this.#folder);
      this.#lookedAt = performance.now();
      for (const id of this.#views.keys()) if (!this.#ids.includes(id)) this.#views.delete(id);
    }
    return this.#ids;
  }
}

/** A name of this machine: an address, localhost, the host the server listens on, or the machine's own name. */
function isOwnName(header: string, host: string): boolean {
  const name = header
    .replace(/:\d+$/, "")
    .replace(/^\[(.*)\]$/, "$1")
    .toLowerCase();
  return isIP(name) !== 0 || ["localhost", host.toLowerCase(), hostname().toLowerCase()].includes(name);
}

const foreignName = (name = ""): string =>
  `The request is for the host "${name.slice(0, 100)}", which is no name of this dashboard. ` +
  "Open it by its address, such as http://127.0.0.1.";

function json(c: Context, value: unknown): Response {
  return answer(c, JSON.stringify(value), "application/json");
}

/** An answer that the browser may cache while it does not change. */
function answer(c: Context, body: string, type: string): Response {
  const etag = `"${createHash("sha1").update(body).digest("base64url")}"`;
  if (c.req.header("if-none-match") === etag) return c.body(null, 304, { etag });
  return c.body(body, 200, { "content-type": type, etag });
}

function query(c: Context, name: string): string {
  const value = c.req.query(name);
  if (value !== undefined && value !== "") return value;
  throw new ApiError(400, `\`${name}\` is missing from ${c.req.path}.`);
}

function count(c: Context, name: string): number {
  const value = Number(query(c, name));
  if (Number.isSafeInteger(value) && value >= 0) return value;
  throw new ApiError(400, `\`${name}\` is ${query(c, name)}; it should be a whole number.`);
}

function found<T>(value: T | null, message: string): T {
  if (value === null) throw new ApiError(404, message);
  return value;
}
