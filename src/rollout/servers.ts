/**
 * HTTP calls to OpenAI-compatible servers: to the least busy one, and again after failures that may pass.
 *
 * A refused connection, 429, 5xx, silence and a broken stream may pass: the call is tried again with growing waits, at
 * another address if there is one, for `retryMs`. Anything else is a `UserError` at once, with the server's message.
 */
import { codeOf, invariant, messageOf, UserError } from "../util/errors.ts";
import { fetchWithoutTimeout } from "../util/fetch-without-timeout.ts";
import { formatSeconds } from "../util/format.ts";
import {
  isTransientStatus,
  leastBusy,
  type RetryState,
  retry,
  retryAfterMs,
  TransientError,
} from "../util/http-retry.ts";
import { warn } from "../util/log.ts";
import { errorOf, excerpt, IncompleteReply, StreamedError, UnexpectedReply } from "./remote-reply.ts";

export type ServerOptions = {
  /** Such as `http://127.0.0.1:8000/v1` or `127.0.0.1:8000`; a request goes to the least busy one. */
  readonly baseUrls: readonly string[];
  readonly apiKey?: string | undefined;
  /** The config key or option of the address, for messages. */
  readonly setting: string;
  /** How long a server may send nothing during an answer. */
  readonly idleMs?: number;
  /** How long a request is tried again; 0 for one attempt. */
  readonly retryMs?: number;
  /** The first wait between two attempts; it doubles up to half a minute. */
  readonly pauseMs?: number;
};

/** One address, without a trailing slash. */
export type Server = { readonly url: string; inFlight: number; calls: number };

/** A request: a POST if it has a body. */
export type Call = {
  readonly path: string;
  readonly body?: unknown;
  readonly signal?: AbortSignal | undefined;
  /** The path begins at the server's root, not at its `/v1`. */
  readonly isRoot?: boolean;
  /** For an answer that comes in one piece and may take long: the path of the health check meanwhile. */
  readonly healthPath?: string;
};

/** Reads an answer; it calls `touch` whenever the server sends something. */
export type Read<T> = (response: Response, touch: () => void) => Promise<T>;

const HEALTH_TIMEOUT_MS = 60_000;

/** Servers that offer the same models. */
export class Servers {
  readonly all: readonly Server[];
  readonly #options: ServerOptions;
  #hasWarned = false;

  constructor(options: ServerOptions) {
    this.#options = options;
    this.all = options.baseUrls.map((url) => ({ url: normalised(url, options.setting), inFlight: 0, calls: 0 }));
  }

  /** Call until it succeeds, fails for good, or `retryMs` are over; with `only`, call that server once. */
  call<T>(call: Call, read: Read<T>, only: Server | null = null): Promise<T> {
    const { retryMs = 120_000, pauseMs = 500 } = this.#options;
    let server: Server | null = null;
    const attempt = async () => {
      server = only ?? leastBusy(this.all, server);
      const value = await this.#once(server, call, read);
      this.#hasWarned = false;
      return value;
    };
    const onFailure = (error: TransientError, { tries, waitMs, failingMs }: RetryState) => {
      invariant(server !== null, "an attempt has a server");
      const hasOther = tries < this.all.length;
      if (only !== null || (failingMs >= retryMs && !hasOther)) throw this.#noAnswer(server, error, tries, failingMs);
      if (!this.#hasWarned)
        warn(`${server.url}: ${error.message}; trying again for up to ${formatSeconds(retryMs / 1000)}.`);
      this.#hasWarned = true;
      return Math.min(waitMs, Math.max(0, retryMs - failingMs));
    };
    return retry(attempt, { firstWaitMs: pauseMs, isJittered: true, signal: call.signal, onFailure });
  }

  async #once<T>(server: Server, { path, body, signal, isRoot, healthPath }: Call, read: Read<T>): Promise<T> {
    const { apiKey, idleMs = 300_000 } = this.#options;
    const idle = new AbortController();
    let isOver = false;
    const onSilence = async () => {
      const isAlive = healthPath !== undefined && (await this.#isAlive(server, healthPath));
      if (isAlive && !isOver) touch();
      else idle.abort();
    };
    let timer = setTimeout(onSilence, idleMs);
    const touch = () => {
      clearTimeout(timer);
      timer = setTimeout(onSilence, idleMs);
    };
    server.inFlight++;
    server.calls++;
    try {
      const send = healthPath === undefined ? fetch : fetchWithoutTimeout;
      const response = await send(isRoot ? new URL(path, server.url) : server.url + path, {
        method: body === undefined ? "GET" : "POST",
        headers: jsonHeaders(apiKey),
        body: body === undefined ? null : JSON.stringify(body),
        signal: signal === undefined ? idle.signal : AbortSignal.any([signal, idle.signal]),
      });
      touch();
      if (!response.ok && !(body === undefined && response.status === 404)) throw await this.#errorOf(server, response);
      return await read(response, touch);
    } catch (error) {
      if (signal?.aborted) throw signal.reason;
      if (idle.signal.aborted) {
        const message = `it was silent for ${formatSeconds(idleMs / 1000)}`;
        throw new TransientError(message, { silentMs: idleMs, cause: error });
      }
      throw this.#classified(server, error);
    } finally {
      isOver = true;
      clearTimeout(timer);
      server.inFlight--;
    }
  }

  async #isAlive(server: Server, path: string): Promise<boolean> {
    const signal = AbortSignal.timeout(Math.min(HEALTH_TIMEOUT_MS, this.#options.idleMs ?? HEALTH_TIMEOUT_MS));
    const answer = fetch(new URL(path, server.url), { headers: jsonHeaders(this.#options.apiKey), signal });
    return answer.then(
      ({ ok }) => ok,
      () => false,
    );
  }

  /** An error of an attempt as a `TransientError`, or as a message for the user. */
  #classified(server: Server, error: unknown): unknown {
    const { setting } = this.#options;
    if (error instanceof UnexpectedReply) {
      return new UserError(
        `${server.url} answers ${error.message}, which is not the answer of an OpenAI-compatible server. Check ` +
          `${setting}; such addresses usually end in /v1.`,
        { cause: error },
      );
    }
    if (error instanceof StreamedError)
      return isTransientStatus.modelServer(error.status)
        ? new TransientError(error.message)
        : refusal(server, error.status, error.message, setting);
    if (error instanceof IncompleteReply) return new TransientError("the answer is incomplete", { cause: error });
    // `fetch` throws a TypeError with a cause for all problems of the connection.
    return error instanceof TypeError && error.cause !== undefined
      ? new TransientError(connectionProblem(error), { cause: error })
      : error;
  }

  async #errorOf(server: Server, response: Response): Promise<Error> {
    const text = await response.text();
    const message = errorOf(text)?.message ?? excerpt(text);
    if (isTransientStatus.modelServer(response.status))
      return new TransientError(`it answers ${response.status}: ${message}`, {
        waitMs: retryAfterMs(response.headers),
      });
    return refusal(server, response.status, message, this.#options.setting);
  }

  #noAnswer(server: Server, error: TransientError, tries: number, failingMs: number): UserError {
    const effort = tries === 1 ? "" : ` ${tries} tries in ${formatSeconds(failingMs / 1000)} got no answer.`;
    return new UserError(
      `${server.url} does not answer: ${error.message}.${effort} ` +
        `Check that the server runs and can take more requests, and that ${this.#options.setting} is its address.`,
      { cause: error },
    );
  }
}

/** The headers of a request with a JSON body. */
export function jsonHeaders(apiKey: string | undefined): Record<string, string> {
  const key = apiKey === undefined || apiKey === "" ? {} : { authorization: `Bearer ${apiKey}` };
  return { "content-type": "application/json", ...key };
}

/** The address with `http://` and `/v1` added if they are missing. */
function normalised(address: string, setting: string): string {
  const written = /^[a-z][a-z0-9+.-]*:\/\//i.test(address) ? address : `http://${address}`;
  const url = URL.parse(written);
  if (url === null || !/^https?:$/.test(url.protocol))
    throw new UserError(
      `${setting} is ${address}, which is not a web address. Write it like http://127.0.0.1:8000/v1.`,
    );
  const path = url.pathname.replace(/\/+$/, "");
  return `${url.origin}${path === "" ? "/v1" : path}`;
}

function refusal(server: Server, status: number, message: string, setting: string): UserError {
  const advice: Record<number, string> = {
    401: " Set OPENAI_API_KEY to a key of that server.",
    403: " Set OPENAI_API_KEY to a key that allows this.",
    404: ` Check ${setting}; such addresses usually end in /v1.`,
  };
  const end = /[.!?]$/.test(message) ? "" : ".";
  return new UserError(`${server.url} refuses the request (${status}): ${message}${end}${advice[status] ?? ""}`);
}

function connectionProblem(error: TypeError): string {
  const { cause } = error;
  const inner = cause instanceof AggregateError ? cause.errors[0] : cause;
  const known: Record<string, string> = {
    ECONNREFUSED: "the connection is refused",
    ECONNRESET: "the connection was reset",
    ENOTFOUND: "there is no host with that name",
    EAI_AGAIN: "the name of the host cannot be looked up",
    ETIMEDOUT: "the connection timed out",
    UND_ERR_SOCKET: "the connection was closed",
    UND_ERR_CONNECT_TIMEOUT: "the connection timed out",
    UND_ERR_HEADERS_TIMEOUT: "it was silent for too long",
    UND_ERR_BODY_TIMEOUT: "it was silent for too long",
  };
  return known[codeOf(inner)] ?? messageOf(inner ?? error);
}
