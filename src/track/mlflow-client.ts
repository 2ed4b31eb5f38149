/**
 * The few calls of MLflow's REST API that a tracker needs, with its ways to sign in.
 *
 * https://mlflow.org/docs/latest/rest-api.html. An answer that means the call will never work is a `Refusal`. An
 * answer that means "later" (busy, broken, no longer signed in) and every network error is thrown.
 */
import { messageOf, UserError } from "../util/errors.ts";
import type { Refusal } from "./outbox.ts";

const TIMEOUT_MS = 10_000;

/** Whether a status is about this call alone, so that sending it again does not help. */
const isFinal = (status: number): boolean => status >= 400 && status < 500 && ![401, 403, 408, 429].includes(status);

export type Call = {
  readonly method: "GET" | "POST" | "PUT";
  /** Below `/api/2.0/`. */
  readonly path: string;
  readonly body?: string;
};

type Answer = { readonly status: number; readonly body: unknown; readonly message: string };

export class MlflowClient {
  readonly #base: string;
  readonly #headers: Readonly<Record<string, string>>;

  /** From MLFLOW_TRACKING_URI and, if the server asks for it, MLFLOW_TRACKING_TOKEN or _USERNAME and _PASSWORD. */
  constructor(env: Readonly<Record<string, string | undefined>>) {
    const uri = trackingUri(env.MLFLOW_TRACKING_URI);
    const user = env.MLFLOW_TRACKING_USERNAME || decodeURIComponent(uri.username);
    const password = env.MLFLOW_TRACKING_PASSWORD || decodeURIComponent(uri.password);
    const authorization = env.MLFLOW_TRACKING_TOKEN
      ? `Bearer ${env.MLFLOW_TRACKING_TOKEN}`
      : user === ""
        ? null
        : `Basic ${Buffer.from(`${user}:${password}`).toString("base64")}`;
    this.#headers = authorization === null ? {} : { authorization };
    this.#base = `${uri.origin}${uri.pathname.replace(/\/+$/, "")}`;
  }

  /** The server's address without a password in it. */
  get address(): string {
    return this.#base;
  }

  /** Any answer, good or bad; only a network error is thrown. */
  async ask({ method, path, body }: Call, signal?: AbortSignal): Promise<Answer> {
    const timeout = AbortSignal.timeout(TIMEOUT_MS);
    const headers = body === undefined ? this.#headers : { ...this.#headers, "content-type": "application/json" };
    try {
      const response = await fetch(`${this.#base}/api/2.0/${path}`, {
        method,
        headers,
        signal: signal === undefined ? timeout : AbortSignal.any([signal, timeout]),
        ...(body === undefined ? {} : { body }),
      });
      const text = await response.text();
      const parsed = parse(text);
      return { status: response.status, body: parsed, message: reasonOf(parsed, text) };
    } catch (error) {
      if (timeout.aborted) throw new Error(`${this.#base} did not answer within ${TIMEOUT_MS / 1000} seconds`);
      const cause = error instanceof Error && error.cause !== undefined ? messageOf(error.cause) : messageOf(error);
      throw new Error(`${this.#base} is not reachable (${cause})`, { cause: error });
    }
  }

  /** For the outbox: no value means that the server took it. */
  async send(call: Call, signal: AbortSignal): Promise<Refusal | undefined> {
    const { status, message } = await this.ask(call, signal);
    if (status < 300) return undefined;
    const said = `${this.#base} answered ${status} to ${call.path}: ${message}`;
    if (isFinal(status)) return { refused: said };
    throw new Error(said);
  }

  /** Before the run starts: an answer, or the reason why there can be no run. */
  async start(call: Call): Promise<Answer> {
    const hint = "Check MLFLOW_TRACKING_URI, or leave mlflow out of `trainer.logger`.";
    let answer: Answer;
    try {
      answer = await this.ask(call);
    } catch (error) {
      throw new UserError(`The MLflow server ${messageOf(error)}. ${hint}`, { cause: error });
    }
    if (answer.status === 401 || answer.status === 403) {
      throw new UserError(
        `The MLflow server ${this.#base} answered ${answer.status}: ${answer.message}. Set MLFLOW_TRACKING_TOKEN, or ` +
          "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD.",
      );
    }
    return answer;
  }

  /** As `start`, for calls that have to succeed before the run begins. */
  async mustStart(call: Call): Promise<unknown> {
    const { status, body, message } = await this.start(call);
    if (status < 300) return body;
    throw new UserError(
      `The MLflow server ${this.#base} answered ${status} to ${call.path}: ${message}. ` +
        "Check MLFLOW_TRACKING_URI, or leave mlflow out of `trainer.logger`.",
    );
  }
}

function trackingUri(value: string | undefined): URL {
  const hint = "Start a server with `mlflow server` and set it to the server's address, such as http://127.0.0.1:5000.";
  if (!value) throw new UserError(`\`trainer.logger\` names mlflow, but MLFLOW_TRACKING_URI is not set. ${hint}`);
  const uri = URL.canParse(value) ? new URL(value) : null;
  if (uri !== null && (uri.protocol === "http:" || uri.protocol === "https:")) return uri;
  throw new UserError(`MLFLOW_TRACKING_URI is ${value}, and only servers at http:// and https:// can be used. ${hint}`);
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/** MLflow's own message, or the start of the server's answer. */
function reasonOf(body: unknown, text: string): string {
  if (typeof body === "object" && body !== null && "message" in body) return String(body.message).slice(0, 300);
  return text.replace(/\s+/g, " ").trim().slice(0, 100) || "nothing more";
}
