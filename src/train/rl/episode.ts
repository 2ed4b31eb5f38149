/**
 * An episode: one prompt, one sampled response, its score. What a step of reinforcement learning is made of.
 *
 * Numbers per response token come as rows of the response's length, as the algorithms want them; an engine wants
 * sequences of prompt and response together, with the prompt's part zero. `tokenRows` goes from one to the other.
 */
import type { RewardColumns } from "../../algos/advantages/estimator.ts";
import type { Rows } from "../../algos/batch.ts";
import type { RlRow } from "../../data/rl-rows.ts";
import type { TokenOutputs, TokenRow } from "../../engine/contract.ts";
import { tokenRewards } from "../../rewards/placement.ts";
import type { Score } from "../../rewards/reward.ts";
import { UserError } from "../../util/errors.ts";

export type Episode = {
  /** Episodes of one group answer the same prompt (verl's uid). */
  readonly group: string;
  /** Which of its group it is, from 0. */
  readonly place: number;
  readonly row: RlRow;
  readonly promptIds: Int32Array;
  readonly promptText: string;
  readonly responseIds: readonly number[];
  readonly text: string;
  /** Of the response's tokens, as the sampler drew them. */
  readonly logprobs: readonly number[];
  /** Null where the reward went wrong: the episode then teaches nothing. */
  readonly score: Score | null;
};

/** An episode that has ended and is not scored yet. */
export type Unscored = Omit<Episode, "score">;

/** 1 for every token the policy chose; 0 throughout for an episode without a score. */
export const masksOf = (episodes: readonly Episode[]): Uint8Array[] =>
  episodes.map(({ responseIds, score }) => new Uint8Array(responseIds.length).fill(score === null ? 0 : 1));

/** What the reward gave for each token. */
export const scoresOf = (episodes: readonly Episode[]): Float64Array[] =>
  episodes.map(({ score, responseIds }) =>
    score === null ? new Float64Array(responseIds.length) : tokenRewards(score, responseIds.length),
  );

/** An episode without a score is a group of its own, so that it does not move the mean of the others. */
export const groupsOf = (episodes: readonly Episode[]): string[] =>
  episodes.map(({ group, score }, i) => (score === null ? `${group} (no score ${i})` : group));

/** Reward columns by name, one number per episode; those of an episode without a score are 0. */
export function componentsOf(episodes: readonly Episode[], { columns, key }: RewardColumns): Record<string, number[]> {
  return Object.fromEntries(
    columns.map((name) => [name, episodes.map(({ score }) => (score === null ? 0 : numberIn(score, name, key)))]),
  );
}

/** A column that the reward must have returned, since a setting names it. */
export function columnOf({ score, extra }: Score, key: string, setting: string): unknown {
  if (key === "score") return score;
  if (Object.hasOwn(extra, key)) return extra[key];
  const names = ["score", ...Object.keys(extra)].map((name) => `\`${name}\``).join(", ");
  throw new UserError(
    `\`${setting}\` names the reward column \`${key}\`, and the reward function returns ${names}. Name one of these.`,
  );
}

function numberIn(score: Score, key: string, setting: string): number {
  const value = columnOf(score, key, setting);
  const number = typeof value === "boolean" ? Number(value) : value;
  if (typeof number === "number" && Number.isFinite(number)) return number;
  throw new UserError(
    `\`${setting}\` names the reward column \`${key}\`, which holds ${JSON.stringify(value)}. It must be a number.`,
  );
}

/** Sequences for an engine: `mask` and `extra` have one row per episode, of its response's length. */
export function tokenRows(
  episodes: readonly Episode[],
  mask: Rows,
  extra: Readonly<Record<string, Rows | undefined>> = {},
): TokenRow[] {
  return episodes.map(({ promptIds, responseIds }, i) => {
    const start = promptIds.length;
    const whole = (values: ArrayLike<number>) => {
      const row = new Float32Array(start + responseIds.length);
      row.set(values, start);
      return row;
    };
    const ids = new Int32Array(start + responseIds.length);
    ids.set(promptIds);
    ids.set(responseIds, start);
    const given = Object.entries(extra).flatMap(([name, rows]) =>
      rows === undefined ? [] : [[name, whole(rows[i]!)] as const],
    );
    return { ids, mask: whole(mask[i]!), extra: Object.fromEntries(given) };
  });
}

/** The response's part of what an engine computed. */
export function responseRows(
  episodes: readonly Episode[],
  outputs: readonly TokenOutputs[],
  head: keyof TokenOutputs,
): Float32Array[] {
  return outputs.map((output, i) => output[head]!.subarray(episodes[i]!.promptIds.length));
}

/** The mean of the counted entries; 0 where none is. */
export function meanOver(rows: Rows, mask: Rows): number {
  let [sum, count] = [0, 0];
  rows.forEach((row, i) => {
    for (let t = 0; t < row.length; t++) {
      if (mask[i]![t] === 0) continue;
      sum += row[t]!;
      count++;
    }
  });
  return count === 0 ? 0 : sum / count;
}
