/**
 * The result of one call of a function in a worker: its output, or a named failure. A failure never becomes a made-up
 * output; the caller decides what it means.
 *
 * Messages are the rest of a sentence that begins with the function: "threw TypeError: …", "gave no answer …".
 */
import { basename } from "node:path";
import { pathToFileURL } from "node:url";

/**
 * `threw`: the function threw, its promise was rejected, or its input or output cannot be sent; `deadline`: it took too
 * long; `crashed`: it ended the process it ran in.
 */
export type CallFailureReason = "threw" | "deadline" | "crashed";

type CallFailure = {
  readonly reason: CallFailureReason;
  /** What the function did: `threw RangeError: …`. */
  readonly message: string;
};

export type CallResult<Output> =
  | { readonly output: Output; readonly failure?: undefined }
  | { readonly failure: CallFailure; readonly output?: undefined };

/** The result of a call that has no output. */
export function failedCall(reason: CallFailureReason, message: string): { readonly failure: CallFailure } {
  return { failure: { reason, message } };
}

/** The result of a call that threw; `file` is the function's file, so that the message can name its line. */
export function thrownCall(error: unknown, file: string | null): { readonly failure: CallFailure } {
  return failedCall("threw", isUserError(error) ? `said: ${error.message}` : `threw ${describeThrown(error, file)}`);
}

/** The result of a call that had no answer in time. */
export function lateCall(timeoutMs: number): { readonly failure: CallFailure } {
  return failedCall("deadline", describeLate(timeoutMs));
}

/** What a function did that had no answer in time. */
export function describeLate(timeoutMs: number): string {
  return `gave no answer within its deadline of ${timeoutMs / 1000} s`;
}

/** The message for a function that could not be loaded. `what` names it in a sentence: "the reward function". */
export function describeUnloadable(what: string, message: string): string {
  return `${what.charAt(0).toUpperCase()}${what.slice(1)} cannot be loaded: it ${message}.`;
}

/** `TypeError: x is not a function (my-reward.ts:3:12)`: what was thrown, and the first line of `file` in its stack. */
export function describeThrown(error: unknown, file: string | null): string {
  if (!(error instanceof Error)) return shortened(String(error));
  return `${shortened(`${error.name}: ${error.message}`)}${placeIn(error, file)}`;
}

/** Checked by its name, because the user's file may have the class from another copy of the package. */
function isUserError(error: unknown): error is Error {
  return error instanceof Error && error.name === "UserError";
}

function placeIn(error: Error, file: string | null): string {
  if (file === null || typeof error.stack !== "string") return "";
  const names = [`${pathToFileURL(file).href}:`, `${file}:`];
  const line = error.stack.split("\n").find((it) => /^\s+at /.test(it) && names.some((name) => it.includes(name)));
  const position = line && /:(\d+:\d+)\)?$/.exec(line)?.[1];
  return position ? ` (${basename(file)}:${position})` : "";
}

/** A message may hold a whole response; the first 300 characters are enough. */
function shortened(text: string): string {
  const line = text.replaceAll(/\s+/g, " ").trim();
  return line.length <= 300 ? line : `${line.slice(0, 299)}…`;
}
