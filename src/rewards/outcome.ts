/**
 * The outcome of scoring one sample: a checked score, or a named failure. A failure never becomes a score of 0; the
 * caller decides what it means.
 */
import type { CallFailureReason } from "../workers/result.ts";
import type { RewardInput, Score } from "./reward.ts";

/** Why a call failed (`threw`, `deadline`, `crashed`), or `value`: what it returned is not a reward. */
type FailureReason = CallFailureReason | "value";

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

/** `row 12 (data source "openai/gsm8k"): the reward function returned NaN; …` */
export function describeFailure({ row, dataSource, message }: Failure): string {
  const sample = row === undefined ? "a sample" : `row ${row}`;
  return `${sample} (data source "${dataSource}"): the reward function ${message}`;
}
