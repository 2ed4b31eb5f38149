/**
 * JSON over HTTP to a service that may be down, slow or wrong: judges and reward services.
 *
 * A call gives the parsed answer, or a `UserError` that names the service, what it did and how often it was tried; it
 * never takes longer than its deadline and never more memory than `maxBytes`. Tried again: no connection, no answer in
 * time, 408, 429 and 5xx, at another address at once if there is one, else with waits that double up to 30 s (verl's);
 * never another 4xx, which would be refused again.
 */
import { codeOf, invariant, messageOf, UserError } from "../util/errors.ts";
import { formatSeconds } from "../util/format.ts";
import { isTransientStatus, type RetryState, retry, retryAfterMs, TransientError } from "../util/http-retry.ts";
import { warn } from "../util/log.ts";
import { nextTarget, restTarget, type Target, targetsAt, wakeTarget } from "./targets.ts";

export type RemoteOptions = {
  /** Sent as a bearer token. */
  readonly apiKey?: string;
  /** Calls that are under way at once at each address; others wait their turn. */
  readonly maxConcurrent?: number;
  /** For one try. */
  readonly timeoutMs?: number;
  /** For all tries of one call and the waits between them, from the moment it is its turn. */
  readonly deadlineMs?: number;
  readonly maxTries?: number;
  /** Before the second try; it doubles from there. */
  readonly firstWaitMs?: number;
  /** Ends all calls. */
  readonly signal?: AbortSignal;
};

/** Sends a body, gives the parsed answer. */
type Remote = (body: unknown) => Promise<unknown>;

const maxBytes = 16 * 2 ** 20;

/** A service of JSON at one address or several; `name` begins the messages about it ("The judge"). */
export function remote(name: string, addresses: readonly string[], options: RemoteOptions = {}): Remote {
  const { maxConcurrent = 16, timeoutMs = 60_000, deadlineMs = 300_000, maxTries = 16, firstWaitMs = 500 } = options;
  const targets = targetsAt(name, addresses);
  const queue = turns(maxConcurrent * targets.length);

  return (body) =>
    queue(() => {
      const started = performance.now();
      let target: Target | null = null;
      let failure: Failure | null = null;
      const noAnswer = ({ problem, advice, cause }: Failure, tries: number) => {
        const effort = tries === 1 ? "" : ` (${tries} tries in ${formatSeconds((performance.now() - started) / 1000)})`;
        return new UserError(`${name} at ${target?.url} ${problem}${effort}. ${advice}`, { cause });
      };
      const attemptOnce = async (tries: number) => {
        const leftMs = Math.max(1, Math.ceil(deadlineMs - (performance.now() - started)));
        target = nextTarget(targets, target);
        const outcome = await attempt(target, body, { ...options, timeoutMs: Math.min(timeoutMs, leftMs) });
        options.signal?.throwIfAborted();
        if ("answer" in outcome) {
          wakeTarget(target);
          return outcome.answer;
        }
        if (!outcome.isTransient) throw noAnswer(outcome, tries);
        failure = outcome;
        throw new TransientError(outcome.problem, { waitMs: outcome.waitMs ?? 0, cause: outcome.cause });
      };
      const onFailure = (error: TransientError, { tries, waitMs, elapsedMs }: RetryState) => {
        invariant(failure !== null && target !== null, "a failed attempt has a failure");
        if (tries >= maxTries || elapsedMs + waitMs >= deadlineMs) throw noAnswer(failure, tries);
        if (!target.isDown) {
          const trying = `trying again for up to ${formatSeconds(deadlineMs / 1000)}`;
          warn(`${name} at ${target.url} ${error.message}; ${trying}.`); // once, until it answers again
        }
        return restTarget(target, targets, error.waitMs) ? 0 : waitMs;
      };
      return retry(attemptOnce, { firstWaitMs, signal: options.signal, onFailure });
    });
}

type Outcome = { readonly answer: unknown } | Failure;
type Failure = {
  /** Completes "The judge at URL …". */
  readonly problem: string;
  readonly advice: string;
  /** Another attempt may succeed. */
  readonly isTransient: boolean;
  readonly waitMs?: number;
  readonly cause?: unknown;
};

type Attempt = Pick<RemoteOptions, "apiKey" | "signal"> & { readonly timeoutMs: number };

async function attempt(target: Target, body: unknown, { apiKey, signal, timeoutMs }: Attempt): Promise<Outcome> {
  // Of its own, and let go of when it ends: signals joined by `AbortSignal.any` are held until the timeout would come.
  const controller = new AbortController();
  const stop = () => controller.abort(signal?.reason);
  let isLate = false;
  const timer = setTimeout(() => {
    isLate = true;
    controller.abort();
  }, timeoutMs);
  if (signal?.aborted) stop();
  signal?.addEventListener("abort", stop, { once: true });
  target.inFlight++;
  try {
    const response = await fetch(target.url, {
      method: "POST",
      headers: {
        "content-type": "application/json",
        ...(apiKey === undefined ? {} : { authorization: `Bearer ${apiKey}` }),
      },
      body: JSON.stringify(body),
      signal: controller.signal,
    });
    const text = withoutKey(await readText(response), apiKey);
    return response.ok ? parsed(text) : refused(response, text);
  } catch (error) {
    return unanswered(error, isLate ? timeoutMs : null);
  } finally {
    target.inFlight--;
    clearTimeout(timer);
    signal?.removeEventListener("abort", stop);
  }
}

/** A body that does not end is cut off before it fills the memory. */
async function readText(response: Response): Promise<string | null> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of response.body ?? []) {
    size += chunk.length;
    if (size > maxBytes) return null;
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString("utf8");
}

/** An answer may quote the API key, and answers go into messages and files. Shorter keys than this are no secret. */
function withoutKey(text: string | null, apiKey = ""): string | null {
  return apiKey.length < 8 ? text : (text?.replaceAll(apiKey, "[API key]") ?? null);
}

function parsed(text: string | null): Outcome {
  const advice = "Check that the address is that of the service, and its path.";
  if (text === null) return { problem: `answered with more than ${maxBytes} bytes`, advice, isTransient: false };
  try {
    return { answer: JSON.parse(text) };
  } catch (cause) {
    return { problem: `answered ${excerpt(text)}, which is not JSON`, advice, isTransient: false, cause };
  }
}

function refused({ status, headers }: Response, text: string | null): Failure {
  return {
    problem: `answered with status ${status}: ${excerpt(text ?? "")}`,
    advice: adviceFor[status] ?? (status >= 500 ? "See its log." : "Check the model's name and the request's fields."),
    isTransient: isTransientStatus.service(status),
    waitMs: retryAfterMs(headers),
  };
}

const keyAdvice = " in an environment variable (`api_key_env`, for a judge also OPENAI_API_KEY)";

const adviceFor: Readonly<Record<number, string | undefined>> = {
  401: `Give the API key that it asks for${keyAdvice}.`,
  403: `Give an API key that may do this${keyAdvice}.`,
  404: "Check the path of the address and the model's name.",
  429: "Lower the number of calls at once, or the rate.",
};

function unanswered(cause: unknown, timeoutMs: number | null): Failure {
  const advice = "Check that it runs and that the address is right.";
  if (timeoutMs !== null)
    return { problem: `did not answer within ${timeoutMs / 1000} s`, advice, isTransient: true, cause };
  const reason = cause instanceof Error && cause.cause !== undefined ? cause.cause : cause;
  const code = codeOf(reason);
  const words = messageOf(reason);
  return { problem: `cannot be reached: ${words === "" ? code : words}`, advice, isTransient: true, cause };
}

/** Runs what it is given, at most `most` at a time, in order. */
function turns(most: number): <T>(work: () => Promise<T>) => Promise<T> {
  let free = most;
  const waiting: (() => void)[] = [];
  return async (work) => {
    if (free > 0) free--;
    else await new Promise<void>((resolve) => waiting.push(resolve));
    try {
      return await work();
    } finally {
      const next = waiting.shift(); // who waits takes the place over
      if (next === undefined) free++;
      else next();
    }
  };
}

/** The beginning of a text on one line, in quotes. */
export function excerpt(text: string): string {
  const line = text.replaceAll(/\s+/g, " ").trim();
  return JSON.stringify(line.length <= 120 ? line : `${line.slice(0, 119)}…`);
}
