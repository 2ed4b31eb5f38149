/**
 * HTTP calls to OpenAI-compatible servers: one that is free, again after what may pass, never again after what will not.
 *
 * A refused connection, 429, 5xx, silence and a broken stream may pass: they are tried again with growing pauses, at
 * another address where there is one, for `retryMs`. Anything else is a `UserError` at once, with the server's words.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { codeOf, invariant, messageOf, UserError } from "../util/errors.ts";
import { formatSeconds } from "../util/format.ts";
import { warn } from "../util/log.ts";
import { patientFetch } from "./patient-fetch.ts";
import { CutShort, excerpt, NotAnAnswer, refusalOf, StreamedError } from "./remote-reply.ts";

export type ServerOptions = {
  /** Such as `http://127.0.0.1:8000/v1` or `127.0.0.1:8000`; a request goes to the one with the least to do. */
  readonly baseUrls: readonly string[];
  readonly apiKey?: string | undefined;
  /** What the user sets the address with, for messages. */
  readonly setting: string;
  /** How long a server may be silent within an answer. */
  readonly idleMs?: number;
  /** How long a request is tried again; 0 for one try. */
  readonly retryMs?: number;
  /** The first pause between two tries; it doubles up to half a minute. */
  readonly pauseMs?: number;
};

/** One address, without a slash at its end. */
export type Server = { readonly url: string; inFlight: number };

/** A request: a POST where it has a body. */
export type Call = {
  readonly path: string;
  readonly body?: unknown;
  readonly signal?: AbortSignal | undefined;
  /** The path begins at the server's root, not at its `/v1`. */
  readonly isRoot?: boolean;
  /** The answer comes in one piece, so it may be long before the server says anything: here it says whether it lives. */
  readonly alivePath?: string;
};

/** Makes a value of an answer; `touch` says that the server is still talking. */
export type Read<T> = (response: Response, touch: () => void) => Promise<T>;

/** A try that may go better the next time. */
class Passing extends Error {
  override readonly name = "Passing";
  /** How long the server wants to be left alone. */
  readonly waitMs: number;
  /** How long it has been silent. */
  readonly silentMs: number;
  constructor(message: string, options: { waitMs?: number; silentMs?: number; cause?: unknown } = {}) {
    super(message, { cause: options.cause });
    this.waitMs = options.waitMs ?? 0;
    this.silentMs = options.silentMs ?? 0;
  }
}

const longestPauseMs = 30_000;
const alivePatienceMs = 60_000;
const passingStatus = new Set([408, 409, 425, 429, 500, 502, 503, 504, 529]);

/** Some servers with the same things to offer. */
export class Servers {
  readonly all: readonly Server[];
  readonly #options: ServerOptions;
  #isToldAbout = false;

  constructor(options: ServerOptions) {
    this.#options = options;
    this.all = options.baseUrls.map((url) => ({ url: normalised(url, options.setting), inFlight: 0 }));
  }

  /** Call until it goes well, will never go well, or `retryMs` are over; with `only`, that server and only once. */
  async call<T>(call: Call, read: Read<T>, only: Server | null = null): Promise<T> {
    const { retryMs = 120_000, pauseMs = 500 } = this.#options;
    let failed: Server | null = null;
    let failingSince: number | null = null;
    for (let attempt = 0; ; attempt++) {
      call.signal?.throwIfAborted();
      const server: Server = only ?? this.#pick(failed);
      try {
        const value = await this.#once(server, call, read);
        this.#isToldAbout = false;
        return value;
      } catch (error) {
        if (!(error instanceof Passing)) throw error;
        failingSince ??= performance.now() - error.silentMs;
        const spentMs = performance.now() - failingSince;
        const hasOther = attempt + 1 < this.all.length;
        if (only !== null || (spentMs >= retryMs && !hasOther)) throw this.#givenUp(server, error, attempt, spentMs);
        if (!this.#isToldAbout)
          warn(`${server.url}: ${error.message}; trying again for up to ${formatSeconds(retryMs / 1000)}.`);
        this.#isToldAbout = true;
        // Of many requests that fail together, not all come back at the same moment.
        const pause = Math.max(error.waitMs, pauseMs * 2 ** attempt * (0.5 + Math.random() / 2));
        const restMs = Math.max(0, retryMs - spentMs);
        await sleep(Math.min(pause, longestPauseMs, restMs), undefined, { signal: call.signal });
        failed = server;
      }
    }
  }

  async #once<T>(server: Server, { path, body, signal, isRoot, alivePath }: Call, read: Read<T>): Promise<T> {
    const { apiKey, idleMs = 300_000 } = this.#options;
    const idle = new AbortController();
    let isOver = false;
    const onSilence = async () => {
      const isAlive = alivePath !== undefined && (await this.#isAlive(server, alivePath));
      if (isAlive && !isOver) touch();
      else idle.abort();
    };
    let timer = setTimeout(onSilence, idleMs);
    const touch = () => {
      clearTimeout(timer);
      timer = setTimeout(onSilence, idleMs);
    };
    server.inFlight++;
    try {
      const send = alivePath === undefined ? fetch : patientFetch;
      const response = await send(isRoot ? new URL(path, server.url) : server.url + path, {
        method: body === undefined ? "GET" : "POST",
        headers: jsonHeaders(apiKey),
        body: body === undefined ? null : JSON.stringify(body),
        signal: signal === undefined ? idle.signal : AbortSignal.any([signal, idle.signal]),
      });
      touch();
      if (!response.ok && !(body === undefined && response.status === 404)) throw await this.#refused(server, response);
      return await read(response, touch);
    } catch (error) {
      if (signal?.aborted) throw signal.reason;
      if (idle.signal.aborted) {
        const told = `it was silent for ${formatSeconds(idleMs / 1000)}`;
        throw new Passing(told, { silentMs: idleMs, cause: error });
      }
      throw this.#sorted(server, error);
    } finally {
      isOver = true;
      clearTimeout(timer);
      server.inFlight--;
    }
  }

  async #isAlive(server: Server, path: string): Promise<boolean> {
    const signal = AbortSignal.timeout(Math.min(alivePatienceMs, this.#options.idleMs ?? alivePatienceMs));
    const asked = fetch(new URL(path, server.url), { headers: jsonHeaders(this.#options.apiKey), signal });
    return asked.then(
      ({ ok }) => ok,
      () => false,
    );
  }

  /** What went wrong, as something that may pass or as a message for the user. */
  #sorted(server: Server, error: unknown): unknown {
    const { setting } = this.#options;
    if (error instanceof NotAnAnswer) {
      return new UserError(
        `${server.url} answers ${error.message}, which is no answer of an OpenAI-compatible server. Check ${setting}; ` +
          "such addresses usually end in /v1.",
        { cause: error },
      );
    }
    if (error instanceof StreamedError)
      return passingStatus.has(error.status)
        ? new Passing(error.message)
        : refusal(server, error.status, error.message, setting);
    if (error instanceof CutShort) return new Passing("the answer broke off", { cause: error });
    // `fetch` throws a TypeError with a cause for everything that happens to a connection.
    return error instanceof TypeError && error.cause !== undefined
      ? new Passing(connectionProblem(error), { cause: error })
      : error;
  }

  async #refused(server: Server, response: Response): Promise<Error> {
    const text = await response.text();
    const words = refusalOf(text)?.message ?? excerpt(text);
    if (passingStatus.has(response.status))
      return new Passing(`it answers ${response.status}: ${words}`, { waitMs: retryAfterMs(response) });
    return refusal(server, response.status, words, this.#options.setting);
  }

  /** The least busy server; one that has just failed only when there is no other. */
  #pick(failed: Server | null): Server {
    const others = this.all.filter((server) => server !== failed);
    const [first, ...rest] = others.length === 0 ? this.all : others;
    invariant(first !== undefined, "a remote has at least one server");
    return rest.reduce((best, server) => (server.inFlight < best.inFlight ? server : best), first);
  }

  #givenUp(server: Server, error: Passing, attempt: number, spentMs: number): UserError {
    const tries = attempt === 0 ? "" : ` ${attempt + 1} tries in ${formatSeconds(spentMs / 1000)} brought no answer.`;
    return new UserError(
      `${server.url} does not answer: ${error.message}.${tries} ` +
        `Check that the server runs and has room for more requests, and that ${this.#options.setting} is its address.`,
      { cause: error },
    );
  }
}

/** The headers of a request with a JSON body. */
export function jsonHeaders(apiKey: string | undefined): Record<string, string> {
  const key = apiKey === undefined || apiKey === "" ? {} : { authorization: `Bearer ${apiKey}` };
  return { "content-type": "application/json", ...key };
}

/** With `http://` and `/v1` where they were left out. */
function normalised(address: string, setting: string): string {
  const written = /^[a-z][a-z0-9+.-]*:\/\//i.test(address) ? address : `http://${address}`;
  const url = URL.parse(written);
  if (url === null || !/^https?:$/.test(url.protocol))
    throw new UserError(`${setting} is ${address}, which is no web address. Write it like http://127.0.0.1:8000/v1.`);
  const path = url.pathname.replace(/\/+$/, "");
  return `${url.origin}${path === "" ? "/v1" : path}`;
}

function refusal(server: Server, status: number, words: string, setting: string): UserError {
  const advice: Record<number, string> = {
    401: " Set OPENAI_API_KEY to a key of that server.",
    403: " Set OPENAI_API_KEY to a key that may do this.",
    404: ` Check ${setting}; such addresses usually end in /v1.`,
  };
  const end = /[.!?]$/.test(words) ? "" : ".";
  return new UserError(`${server.url} refuses the request (${status}): ${words}${end}${advice[status] ?? ""}`);
}

/** Seconds or a date, as HTTP has it. */
function retryAfterMs(response: Response): number {
  const header = response.headers.get("retry-after");
  if (header === null) return 0;
  const ms = /^\d+(\.\d+)?$/.test(header) ? Number(header) * 1000 : Date.parse(header) - Date.now();
  return Number.isFinite(ms) && ms > 0 ? ms : 0;
}

function connectionProblem(error: TypeError): string {
  const { cause } = error;
  const inner = cause instanceof AggregateError ? cause.errors[0] : cause;
  const known: Record<string, string> = {
    ECONNREFUSED: "the connection is refused",
    ECONNRESET: "the connection was reset",
    ENOTFOUND: "there is no host of that name",
    EAI_AGAIN: "the name of the host cannot be looked up",
    ETIMEDOUT: "the connection timed out",
    UND_ERR_SOCKET: "the connection was closed",
    UND_ERR_CONNECT_TIMEOUT: "the connection timed out",
    UND_ERR_HEADERS_TIMEOUT: "it was silent for too long",
    UND_ERR_BODY_TIMEOUT: "it was silent for too long",
  };
  return known[codeOf(inner)] ?? messageOf(inner ?? error);
}
