/**
 * What is written to rollouts.jsonl: some prompts of a step, chosen by the seed and the step, with all their responses
 * token by token. The first of them are also the ones whose log-probs are computed again to check the sampler.
 */
import { groupRows, type Rows } from "../../algos/batch.ts";
import type { PpoConfig } from "../../config/ppo/schema.ts";
import type { NewGroup, RolloutTurn } from "../../run/rollouts.ts";
import type { Tokenizer } from "../../text/tokenizer.ts";
import { Random } from "../../util/random.ts";
import { type Episode, responseIds, responseLength, rolloutLogprobsOf } from "./episode.ts";

/** The rows of the episodes to write, in whole groups: up to `trainer.logged_tokens` tokens, and at least one group. */
export function rowsToLog({ trainer }: PpoConfig, episodes: readonly Episode[], round: string): number[] {
  const groups = [...groupRows(episodes.map(({ group }) => group)).values()];
  const order = new Random(trainer.seed, "watched", round).permutation(groups.length);
  const rows: number[] = [];
  let tokens = 0;
  for (const place of order) {
    const group = groups[place]!;
    tokens += group.reduce((sum, row) => sum + responseLength(episodes[row]!), 0);
    if (rows.length > 0 && tokens > trainer.logged_tokens) break;
    rows.push(...[...group].sort((a, b) => episodes[a]!.place - episodes[b]!.place));
  }
  return rows;
}

/** Which rows to write, and what was measured of their tokens: a row per episode, null where it was not measured. */
export type RolloutLog = {
  readonly logged: readonly number[];
  readonly advantages?: Rows;
  readonly entropy?: readonly (ArrayLike<number> | null)[];
};

/** The rows as rollouts.jsonl has them. */
export function rolloutGroups(
  episodes: readonly Episode[],
  { logged, advantages, entropy }: RolloutLog,
  { tokenizer }: { readonly tokenizer: Tokenizer },
): NewGroup[] {
  const logprobs = rolloutLogprobsOf(episodes);
  const groups = Map.groupBy(logged, (row) => episodes[row]!.group);
  return [...groups.values()].map((members) => {
    const { text: prompt, row } = episodes[members[0]!]!.prompt;
    return {
      prompt,
      truth: row.rewardModel?.ground_truth ?? null,
      source: row.dataSource,
      episodes: members.map((member) => {
        const episode = episodes[member]!;
        const { text, score } = episode;
        return {
          response: text,
          tokens: Array.from(responseIds(episode), (id) => tokenizer.tokenText(id)),
          logprobs: logprobs[member]!,
          advantages: advantages?.[member],
          entropy: entropy?.[member] ?? undefined,
          score: score?.score ?? null,
          extra: score?.extra ?? {},
          turns: turnsOf(episode),
          drawn: drawnOf(episode),
        };
      }),
    };
  });
}

/** The turns of all ledgers, with places among the tokens that follow the prompts. */
function turnsOf({ ledgers }: Episode): RolloutTurn[] {
  let start = 0;
  return ledgers.flatMap(({ turns, promptLength, ids }) => {
    const shift = start - promptLength;
    start += ids.length - promptLength;
    return turns.map((turn) => ({
      role: turn.role,
      start: turn.start + shift,
      end: turn.end + shift,
      ...(turn.finishReason !== null && { finish_reason: turn.finishReason }),
      ...(turn.reward !== null && { reward: turn.reward }),
    }));
  });
}

const drawnOf = ({ ledgers }: Episode): number[] =>
  ledgers.flatMap(({ drawn, promptLength }) => [...drawn.subarray(promptLength)]);
