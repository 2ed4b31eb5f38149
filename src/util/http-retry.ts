/**
 * HTTP requests that are tried again: after failures that may pass, with waits that double up to half a minute.
 *
 * An attempt throws a `TransientError` for a failure that may pass; any other error ends the call at once. The caller
 * decides when to give up. A server's Retry-After lengthens a wait, and an aborted signal ends it with its reason.
 */
import { invariant } from "./errors.ts";

/** A failure after which another attempt may succeed. */
export class TransientError extends Error {
  override readonly name = "TransientError";
  /** How long the server asks to wait (Retry-After). */
  readonly waitMs: number;
  /** How long the attempt got no answer before it failed. */
  readonly silentMs: number;
  constructor(message: string, options: { waitMs?: number; silentMs?: number; cause?: unknown } = {}) {
    super(message, { cause: options.cause });
    this.waitMs = options.waitMs ?? 0;
    this.silentMs = options.silentMs ?? 0;
  }
}

/** How busy a server is: calls under way, and all calls so far. */
type Busy = { readonly inFlight: number; readonly calls: number };

/** The least busy of some servers, of equally busy ones the least used; the one that has just failed only if there is no other. */
export function leastBusy<S extends Busy>(servers: readonly S[], failed: S | null): S {
  const others = servers.filter((server) => server !== failed);
  const [first, ...rest] = others.length === 0 ? servers : others;
  invariant(first !== undefined, "there is at least one server");
  const load = (a: Busy, b: Busy) => a.inFlight - b.inFlight || a.calls - b.calls;
  return rest.reduce((best, server) => (load(server, best) < 0 ? server : best), first);
}

const modelServerStatuses = new Set([408, 409, 425, 429, 500, 502, 503, 504, 529]);

/** Whether a request that was answered with a status may succeed later, by the kind of server. */
export const isTransientStatus = {
  /** OpenAI-compatible servers: the statuses that OpenAI's own clients retry, 425, and 529 (overloaded). */
  modelServer: (status: number): boolean => modelServerStatuses.has(status),
  /** Any other service: a timeout, a rate limit, or any error of the service or of a proxy in front of it. */
  service: (status: number): boolean => status === 408 || status === 429 || status >= 500,
};

/** The longest wait between two attempts, also if the server asks for more. */
export const MAX_WAIT_MS = 30_000;

/** What is known after a failed attempt. */
export type RetryState = {
  /** Attempts so far. */
  readonly tries: number;
  /** How long to wait before the next one. */
  readonly waitMs: number;
  /** Since the first attempt started. */
  readonly elapsedMs: number;
  /** Since the first failure began: its time without an answer counts. */
  readonly failingMs: number;
};

export type RetryOptions = {
  /** Before the second attempt; it doubles from there. */
  readonly firstWaitMs: number;
  /** Shorten each wait by a random share, up to half: requests that fail together do not all come back together. */
  readonly isJittered?: boolean;
  readonly signal?: AbortSignal | undefined;
  /** Called after a transient failure: returns how long to wait, or throws to give up. */
  readonly onFailure: (error: TransientError, state: RetryState) => number;
};

/** Attempt until it succeeds, fails for good, or `onFailure` gives up. `attempt` gets its number, from 1. */
export async function retry<T>(attempt: (tries: number) => Promise<T>, options: RetryOptions): Promise<T> {
  const { signal, onFailure } = options;
  const started = performance.now();
  let failingSince: number | null = null;
  for (let tries = 1; ; tries++) {
    signal?.throwIfAborted();
    try {
      return await attempt(tries);
    } catch (error) {
      if (!(error instanceof TransientError)) throw error;
      signal?.throwIfAborted();
      const now = performance.now();
      failingSince ??= now - error.silentMs;
      const waitMs = nextWaitMs(tries, error.waitMs, options);
      await wait(onFailure(error, { tries, waitMs, elapsedMs: now - started, failingMs: now - failingSince }), signal);
    }
  }
}

function nextWaitMs(tries: number, askedMs: number, { firstWaitMs, isJittered = false }: RetryOptions): number {
  const share = isJittered ? 0.5 + Math.random() / 2 : 1;
  return Math.min(MAX_WAIT_MS, Math.max(askedMs, firstWaitMs * 2 ** (tries - 1) * share));
}

/** The milliseconds of a Retry-After header, which has seconds or a date; 0 without one. */
export function retryAfterMs(headers: Headers): number {
  const header = headers.get("retry-after");
  if (header === null) return 0;
  const ms = /^\d+(\.\d+)?$/.test(header) ? Number(header) * 1000 : Date.parse(header) - Date.now();
  return Number.isFinite(ms) && ms > 0 ? ms : 0;
}

/** Settles after some time; an aborted signal rejects with its reason. */
function wait(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    const abort = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", abort);
      resolve();
    }, ms);
    signal?.addEventListener("abort", abort, { once: true });
  });
}
