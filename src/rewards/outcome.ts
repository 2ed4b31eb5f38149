/**
 * What comes of scoring one sample: a checked score, or a named failure. A failure is never a score of 0; whoever asked
 * decides what it means.
 */
import { basename } from "node:path";
import { pathToFileURL } from "node:url";
import type { RewardInput, Score } from "./reward.ts";

/**
 * `threw`: the function threw or its promise was rejected; `deadline`: it took too long; `value`: what it returned is no
 * reward; `crashed`: it ended the process it ran in.
 */
export type FailureReason = "threw" | "deadline" | "value" | "crashed";

/** A sample that has no score, and why. */
export type Failure = {
  readonly row?: number;
  readonly dataSource: string;
  readonly reason: FailureReason;
  /** What the reward function did, as the rest of a sentence: `returned NaN; …`. */
  readonly message: string;
};

export type Outcome =
  | { readonly score: Score; readonly failure?: undefined }
  | { readonly failure: Failure; readonly score?: undefined };

/** The outcome of a sample that could not be scored. */
export function failed({ row, dataSource }: RewardInput, reason: FailureReason, message: string): Outcome {
  return { failure: { ...(row !== undefined && { row }), dataSource, reason, message } };
}

/** The outcome of a sample whose reward function threw; `file` is the function's, so that its line can be named. */
export function threw(input: RewardInput, error: unknown, file: string | null): Outcome {
  const message = isUserError(error) ? `said: ${error.message}` : `threw ${describeThrown(error, file)}`;
  return failed(input, "threw", message);
}

/** What a reward function did that had no answer in time. */
export function overdue(timeoutMs: number): string {
  return `gave no answer within its deadline of ${timeoutMs / 1000} s`;
}

/** `row 12 (data source "openai/gsm8k"): the reward function returned NaN; …` */
export function describeFailure({ row, dataSource, message }: Failure): string {
  const sample = row === undefined ? "a sample" : `row ${row}`;
  return `${sample} (data source "${dataSource}"): the reward function ${message}`;
}

/** `TypeError: x is not a function (my-reward.ts:3:12)`: what was thrown, and the first line of `file` it came through. */
export function describeThrown(error: unknown, file: string | null): string {
  if (!(error instanceof Error)) return shortened(String(error));
  return `${shortened(`${error.name}: ${error.message}`)}${placeIn(error, file)}`;
}

/** By its name, because a reward file may have the class from another copy of the package. */
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

/** Messages may hold whole responses; the beginning is enough to know them by. */
function shortened(text: string): string {
  const line = text.replaceAll(/\s+/g, " ").trim();
  return line.length <= 300 ? line : `${line.slice(0, 299)}…`;
}
