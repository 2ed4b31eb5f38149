/**
 * What a batch of episodes looks like: scores, rewards, advantages, returns, values and lengths, under verl's names
 * (`compute_data_metrics`).
 *
 * A response's length counts every token of it, those of tools too; an episode of length 0 was aborted and has no score.
 * Lengths and limits are given, not taken from the width of a padded row, so that padding changes nothing.
 * Departure: where verl 0.7 raises and 0.9 gives NaN (all episodes aborted, no token counted, one token for a
 * variance), the metric is absent; `response/aborted_ratio` shows it.
 */
import { UserError } from "../../util/errors.ts";
import { totals } from "../advantages/token-rows.ts";
import { checkFinite, checkRows, type Rows } from "../batch.ts";
import { checkNumbers, countedEntries, covarianceOf, type Metrics, meanOf, summary } from "./metrics.ts";

/** A batch as metrics see it: rows hold one entry per response token, lists one entry per episode. */
export type MetricBatch = {
  readonly mask: Rows;
  /** What the reward function gave; an episode's score is the sum of its row. */
  readonly scores: Rows;
  /** Scores after the KL penalty. */
  readonly rewards: Rows;
  readonly advantages: Rows;
  readonly returns: Rows;
  /** With a critic. */
  readonly values?: Rows;
  readonly promptLengths: readonly number[];
  readonly responseLengths: readonly number[];
  /** Turns of each conversation, and calls of tools, where there are any. */
  readonly turns?: readonly number[];
  readonly toolCalls?: readonly number[];
};

export type LengthLimits = { readonly maxPromptLength: number; readonly maxResponseLength: number };

/** The metrics of a batch. */
export function dataMetrics(batch: MetricBatch, { maxPromptLength, maxResponseLength }: LengthLimits): Metrics {
  check(batch);
  const { mask, promptLengths, responseLengths } = batch;
  const isAborted = responseLengths.map((length) => length === 0);
  const advantages = finiteEntries("advantages", batch.advantages, mask);
  const returns = finiteEntries("returns", batch.returns, mask);
  const values = batch.values === undefined ? null : finiteEntries("values", batch.values, mask);
  const answered = (list: ArrayLike<number>) => Array.from(list).filter((_, i) => !isAborted[i]);
  return {
    ...summary("critic/score", answered(totals(batch.scores))),
    ...summary("critic/rewards", answered(totals(batch.rewards))),
    ...summary("critic/advantages", advantages),
    ...summary("critic/returns", returns),
    ...(values === null ? {} : valueMetrics(values, returns)),
    ...lengthMetrics("response_length", responseLengths, maxResponseLength),
    ...lengthMetrics("response_length_non_aborted", answered(responseLengths), maxResponseLength),
    ...share("response/aborted_ratio", isAborted),
    ...lengthMetrics("prompt_length", promptLengths, maxPromptLength),
    ...summary("num_turns", batch.turns ?? []),
    ...summary("tool_call_counts", batch.toolCalls ?? []),
  };
}

/** The counted entries, after a look at their sum: NaN and infinity would show there. */
function finiteEntries(name: string, rows: Rows, mask: Rows): Float64Array {
  const entries = countedEntries(rows, mask);
  if (!Number.isFinite(meanOf(entries) ?? 0)) checkFinite(name, rows, mask);
  return entries;
}

function valueMetrics(values: Float64Array, returns: Float64Array): Metrics {
  const explained = explainedVariance(values, returns);
  return {
    ...summary("critic/values", values),
    ...(explained === null ? {} : { "critic/vf_explained_var": explained }),
  };
}

/** How much of the returns' variance the critic explains, 1 - var(R - V) / var(R); null for fewer than two tokens. */
function explainedVariance(values: Float64Array, returns: Float64Array): number | null {
  if (returns.length < 2) return null;
  const misses = values.map((value, i) => returns[i]! - value);
  return 1 - covarianceOf(misses, misses) / (covarianceOf(returns, returns) + 1e-5); // verl's guard against equal returns
}

function lengthMetrics(prefix: string, lengths: readonly number[], limit: number): Metrics {
  const clipped = lengths.map((length) => length >= limit);
  return { ...summary(prefix, lengths), ...share(`${prefix}/clip_ratio`, clipped) };
}

function share(name: string, claims: readonly boolean[]): Metrics {
  const mean = meanOf(claims.map(Number));
  return mean === null ? {} : { [name]: mean };
}

function check(batch: MetricBatch): void {
  const { mask } = batch;
  for (const name of ["scores", "rewards", "advantages", "returns", "values"] as const) {
    const rows = batch[name];
    if (rows !== undefined) checkRows(name, rows, mask);
  }
  for (const name of ["promptLengths", "responseLengths", "turns", "toolCalls"] as const) {
    const list = batch[name];
    if (list === undefined) continue;
    if (list.length !== mask.length) {
      throw new UserError(`\`${name}\` has ${list.length} entries where there are ${mask.length} episodes.`);
    }
    checkNumbers(name, list);
  }
}
