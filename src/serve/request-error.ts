/**
 * Answers other than 2xx: the status of an error, and the error body that OpenAI's clients read.
 *
 * A `UserError` that other code throws for a request is about that request, hence 400. Any unexpected error is a 500: its
 * message goes to the log, never to the client.
 */
import { ApiError, messageOf, UserError } from "../util/errors.ts";
import { warn } from "../util/log.ts";

/** An `ApiError` with OpenAI's error code, for programs. */
export class RequestError extends ApiError {
  readonly code: string | null;
  constructor(status: number, message: string, options: { param?: string; code?: string; cause?: unknown } = {}) {
    super(status, message, options);
    this.code = options.code ?? null;
  }
}

/** The client closed the connection before its answer was ready. */
export class ClientGone extends Error {
  override readonly name = "ClientGone";
}

export type ErrorBody = {
  readonly error: {
    readonly message: string;
    readonly type: string;
    readonly param: string | null;
    readonly code: string | null;
  };
};

/** The HTTP status of an error. 499 is nginx's status for a client that is gone; it is only counted. */
export function statusOf(error: unknown): number {
  if (error instanceof ApiError) return error.status;
  if (error instanceof UserError) return 400;
  return error instanceof ClientGone ? 499 : 500;
}

/** OpenAI's body for an error; the message of an internal error goes to the log only. */
export function errorBody(error: unknown): ErrorBody {
  const status = statusOf(error);
  const isOurs = status === 500 || !(error instanceof Error);
  if (isOurs) warn(`a request ended with an error of the server: ${messageOf(error)}`);
  return {
    error: {
      message: isOurs ? "The server had an error while answering this request. See its log." : error.message,
      type: typeOf(status),
      param: error instanceof ApiError ? error.param : null,
      code: error instanceof RequestError ? error.code : null,
    },
  };
}

function typeOf(status: number): string {
  if (status >= 500) return "server_error";
  if (status === 429) return "rate_limit_error";
  return status === 401 || status === 403 ? "authentication_error" : "invalid_request_error";
}
