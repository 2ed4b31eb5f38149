/**
 * An episode: one prompt, what the policy sampled to it, and a score. A step of reinforcement learning trains on a batch
 * of them.
 *
 * The tokens of an episode are ledgers (`rollout/ledger.ts`): one, or several where an agent branched or started a new
 * conversation. Algorithms read one row of numbers per episode, with an entry for each token after the prompt, ledger
 * after ledger; so the statistics of a group count episodes. An engine reads whole sequences, one per ledger. `tokenRows`
 * and `responseRows` convert between the two. A token is trained on where the policy drew it and the episode has a score.
 */
import type { RewardColumns } from "../../algos/advantages/estimator.ts";
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
  readonly ledgers: readonly Ledger[];
  /** The response as text, as the reward reads it. */
  readonly text: string;
  /** Null where the reward failed: the episode is left out of training. */
  readonly score: Score | null;
};

/** An episode that has ended and is not scored yet. */
export type UnscoredEpisode = Omit<Episode, "score">;

/** How many tokens of a ledger follow its prompt: what the policy drew, and what was put between. */
const lengthOf = ({ ids, promptLength }: Ledger): number => ids.length - promptLength;

/** How many tokens the rows of an episode have. */
export const responseLength = ({ ledgers }: Pick<Episode, "ledgers">): number =>
  ledgers.reduce((sum, ledger) => sum + lengthOf(ledger), 0);

/** The tokens of the prompt. */
export const promptLength = ({ prompt }: Pick<Episode, "prompt">): number => prompt.ids.length;

/** All tokens that an engine computes for an episode. */
export const tokenCount = ({ ledgers }: Pick<Episode, "ledgers">): number =>
  ledgers.reduce((sum, { ids }) => sum + ids.length, 0);

/** Turns of the conversation as verl counts them: the prompt is one, and each message after it is another. */
export const turnCount = ({ ledgers }: Pick<Episode, "ledgers">): number =>
  1 + ledgers.reduce((sum, { turns }) => sum + turns.length, 0);

/** The tokens that follow the prompt. */
export const responseIds = ({ ledgers }: Pick<Episode, "ledgers">): Int32Array =>
  join(
    ledgers.map(({ ids, promptLength: start }) => ids.subarray(start)),
    Int32Array,
  );

/** The log-probs that tokens after the prompt were drawn with; 0 where the policy did not draw the token. */
export const rolloutLogprobsOf = (episodes: readonly Episode[]): Float64Array[] =>
  episodes.map(({ ledgers }) =>
    join(
      ledgers.map(({ logprobs, promptLength: start }) => logprobs.subarray(start)),
      Float64Array,
    ),
  );

/**
 * 1 for every token that the policy drew; 0 throughout for an episode without a score. A token that several ledgers of an
 * episode share counts in the first of them only.
 */
export const masksOf = (episodes: readonly Episode[]): Uint8Array[] =>
  episodes.map(({ ledgers, score }) => {
    if (score === null) return new Uint8Array(responseLength({ ledgers }));
    const masks = ledgers.map((ledger, at) => {
      const shared = Math.max(0, ...ledgers.slice(0, at).map((earlier) => sharedLength(earlier.ids, ledger.ids)));
      const drawn = ledger.drawn.subarray(ledger.promptLength);
      return shared <= ledger.promptLength ? drawn : drawn.slice().fill(0, 0, shared - ledger.promptLength);
    });
    return join(masks, Uint8Array);
  });

/** The length of the common prefix. */
function sharedLength(a: Int32Array, b: Int32Array): number {
  const end = Math.min(a.length, b.length);
  let length = 0;
  while (length < end && a[length] === b[length]) length++;
  return length;
}

type Numbers = Int32Array | Uint8Array | Float32Array | Float64Array;

/** The arrays one after the other; a single one is not copied. */
function join<A extends Numbers>(arrays: readonly A[], Kind: new (length: number) => A): A {
  const [only] = arrays;
  if (only !== undefined && arrays.length === 1) return only;
  const joined = new Kind(arrays.reduce((sum, { length }) => sum + length, 0));
  let start = 0;
  for (const array of arrays) {
    joined.set(array, start);
    start += array.length;
  }
  return joined;
}

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

/**
 * Sequences for an engine, one per ledger. `mask` and `extra` have one row per episode, as long as its response; a row of
 * `extra` that is longer has several numbers for each token.
 */
export function tokenRows(
  episodes: readonly Episode[],
  mask: Rows,
  extra: Readonly<Record<string, Rows>> = {},
): TokenRow[] {
  return episodes.flatMap(({ ledgers }, i) => {
    const length = responseLength({ ledgers });
    let start = 0;
    return ledgers.map((ledger) => {
      const [from, to] = [start, start + lengthOf(ledger)];
      start = to;
      const whole = (values: ArrayLike<number>) => {
        const width = length === 0 ? 1 : values.length / length;
        const row = new Float32Array(ledger.ids.length * width);
        const shift = (ledger.promptLength - from) * width;
        for (let at = from * width; at < to * width; at++) row[at + shift] = values[at]!;
        return row;
      };
      const given = Object.entries(extra).map(([name, rows]) => [name, whole(rows[i]!)] as const);
      return { ids: ledger.ids, mask: whole(mask[i]!), extra: Object.fromEntries(given) };
    });
  });
}

/** What an engine computed for the sequences of `tokenRows`, as one row per episode. */
export function responseRows(
  episodes: readonly Episode[],
  outputs: readonly TokenOutputs[],
  head: keyof TokenOutputs,
): Float32Array[] {
  let next = 0;
  return episodes.map(({ ledgers }) =>
    join(
      ledgers.map(({ promptLength: start }) => outputs[next++]![head]!.subarray(start)),
      Float32Array,
    ),
  );
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
