/**
 * An episode: one prompt, what the policy sampled to it, and a score. A step of reinforcement learning trains on a batch
 * of them.
 *
 * The tokens of an episode are a ledger (`rollout/ledger.ts`). Algorithms read rows that begin after the prompt; an
 * engine reads whole sequences. `tokenRows` and `responseRows` convert between the two. A token is trained on where the
 * policy drew it and the episode has a score.
 */
import type { Rows } from "../../algos/batch.ts";
import type { TokenOutputs, TokenRow } from "../../engine/contract.ts";
import { tokenRewards } from "../../rewards/placement.ts";
import type { Score } from "../../rewards/reward.ts";
import type { Ledger } from "../../rollout/ledger.ts";
import { UserError } from "../../util/errors.ts";
import type { Prompt } from "./prompts.ts";

export type Episode = {
  /** Episodes of one group answer the same prompt (verl's uid). */
  readonly group: string;
  /** Which of its group it is, from 0. */
  readonly place: number;
  readonly prompt: Prompt;
  readonly ledger: Ledger;
  /** The response as text, as the reward reads it. */
  readonly text: string;
  /** Null where the reward failed: the episode is left out of training. */
  readonly score: Score | null;
};

/** An episode that has ended and is not scored yet. */
export type UnscoredEpisode = Omit<Episode, "score">;

/** How many tokens follow the prompt: what the policy drew and what was put between. */
export const responseLength = ({ ledger }: Pick<Episode, "ledger">): number => ledger.ids.length - ledger.promptLength;

/** The tokens that follow the prompt. */
export const responseIds = ({ ledger }: Pick<Episode, "ledger">): Int32Array =>
  ledger.ids.subarray(ledger.promptLength);

/** The log-probs that tokens after the prompt were drawn with; 0 where the policy did not draw the token. */
export const rolloutLogprobsOf = (episodes: readonly Episode[]): Float64Array[] =>
  episodes.map(({ ledger }) => ledger.logprobs.subarray(ledger.promptLength));

/** 1 for every token that the policy drew; 0 throughout for an episode without a score. */
export const masksOf = (episodes: readonly Episode[]): Uint8Array[] =>
  episodes.map(({ ledger, score }) =>
    score === null
      ? new Uint8Array(ledger.ids.length - ledger.promptLength)
      : ledger.drawn.subarray(ledger.promptLength),
  );

/** The reward of each token. */
export const scoresOf = (episodes: readonly Episode[]): Float64Array[] =>
  episodes.map((episode) => {
    const length = responseLength(episode);
    return episode.score === null ? new Float64Array(length) : tokenRewards(episode.score, length);
  });

/** An episode without a score is a group of its own, so that it does not change the mean of the others. */
export const groupsOf = (episodes: readonly Episode[]): string[] =>
  episodes.map(({ group, score }, i) => (score === null ? `${group} (no score ${i})` : group));

/** Reward columns by name, one number per episode; those of an episode without a score are 0. */
export function componentsOf(episodes: readonly Episode[], keys: readonly string[]): Record<string, number[]> {
  return Object.fromEntries(
    keys.map((key) => [key, episodes.map(({ score }) => (score === null ? 0 : numberIn(score, key)))]),
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

function numberIn(score: Score, key: string): number {
  const setting = "algorithm.gdpo_reward_keys";
  const value = columnOf(score, key, setting);
  const number = typeof value === "boolean" ? Number(value) : value;
  if (typeof number === "number" && Number.isFinite(number)) return number;
  throw new UserError(
    `\`${setting}\` names the reward column \`${key}\`, which holds ${JSON.stringify(value)}. It must be a number.`,
  );
}

/** Sequences for an engine: `mask` and `extra` have one row per episode, which begins after its prompt. */
export function tokenRows(
  episodes: readonly Episode[],
  mask: Rows,
  extra: Readonly<Record<string, Rows>> = {},
): TokenRow[] {
  return episodes.map(({ ledger: { ids, promptLength } }, i) => {
    const whole = (values: ArrayLike<number>) => {
      const row = new Float32Array(ids.length);
      row.set(values, promptLength);
      return row;
    };
    const given = Object.entries(extra).map(([name, rows]) => [name, whole(rows[i]!)] as const);
    return { ids, mask: whole(mask[i]!), extra: Object.fromEntries(given) };
  });
}

/** The part after the prompt of what an engine computed. */
export function responseRows(
  episodes: readonly Episode[],
  outputs: readonly TokenOutputs[],
  head: keyof TokenOutputs,
): Float32Array[] {
  return outputs.map((output, i) => output[head]!.subarray(episodes[i]!.ledger.promptLength));
}

/** The mean of the counted entries; 0 where there is none. */
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
