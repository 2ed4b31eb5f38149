/**
 * The reward of a sample that several parts score: the weighted sum of their scores, with the score of each as a column.
 *
 * The order in which the parts are given does not change the result, down to the last bit: they are added in the order of
 * their columns.
 */
import { tokenRewards } from "./placement.ts";
import type { Score } from "./reward.ts";

/** What one part says about a sample. */
export type ScoredPart = {
  /** The name of the column with its score; null adds no column. */
  readonly column: string | null;
  readonly weight: number;
  readonly score: Score;
};

/**
 * The sum. If a part gives one reward per token, so does the sum, and the scores of the others go to the last token. A
 * further column of a part keeps its name, unless two parts have it: then `reward/judge` has `reward/judge/judge_reply`.
 */
export function weightedSum(parts: readonly ScoredPart[], responseLength: number): Score {
  const [only] = parts;
  if (only !== undefined && parts.length === 1 && only.column === null) return only.score;
  const sorted = parts.toSorted((a, b) => ((a.column ?? "") < (b.column ?? "") ? -1 : 1));
  const counts = new Map<string, number>();
  for (const { score } of sorted)
    for (const name of Object.keys(score.extra)) counts.set(name, (counts.get(name) ?? 0) + 1);
  const extra: Record<string, unknown> = {};
  for (const { column, score } of sorted) {
    if (column !== null) extra[column] = score.score;
    for (const [name, value] of Object.entries(score.extra))
      extra[counts.get(name)! > 1 ? `${column}/${name}` : name] = value;
  }
  const score = sorted.reduce((sum, part) => sum + part.weight * part.score.score, 0);
  if (sorted.every((part) => part.score.tokens === undefined)) return { score, extra };
  const tokens = Array<number>(responseLength).fill(0);
  for (const part of sorted) {
    tokenRewards(part.score, responseLength).forEach((reward, t) => {
      tokens[t]! += part.weight * reward;
    });
  }
  return { score, tokens, extra };
}
