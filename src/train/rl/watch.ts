/**
 * What people see of a step: some of its prompts, chosen by the seed and the step, with all their responses token by
 * token. They go to rollouts.jsonl, and the first of them are those whose log-probs are computed anew.
 */
import { groupRows, type Rows } from "../../algos/batch.ts";
import type { PpoConfig } from "../../config/ppo/schema.ts";
import type { NewGroup } from "../../run/rollouts.ts";
import type { Tokenizer } from "../../text/tokenizer.ts";
import { Random } from "../../util/random.ts";
import type { Episode } from "./episode.ts";

/** Rows of the episodes to look at, in whole groups: as many as have `trainer.logged_tokens`, and at least one. */
export function watchedRows({ trainer }: PpoConfig, episodes: readonly Episode[], round: string): number[] {
  const groups = [...groupRows(episodes.map(({ group }) => group)).values()];
  const order = new Random(trainer.seed, "watched", round).permutation(groups.length);
  const rows: number[] = [];
  let tokens = 0;
  for (const place of order) {
    const group = groups[place]!;
    tokens += group.reduce((sum, row) => sum + episodes[row]!.responseIds.length, 0);
    if (rows.length > 0 && tokens > trainer.logged_tokens) break;
    rows.push(...[...group].sort((a, b) => episodes[a]!.place - episodes[b]!.place));
  }
  return rows;
}

/** What is known of the episodes' tokens, a row per episode; null where it is not known of that episode. */
export type Known = { readonly advantages?: Rows; readonly entropy?: readonly (ArrayLike<number> | null)[] };

/** The rows as rollouts.jsonl has them. */
export function rolloutGroups(
  episodes: readonly Episode[],
  { watched, known = {} }: { readonly watched: readonly number[]; readonly known?: Known },
  { tokenizer }: { readonly tokenizer: Tokenizer },
): NewGroup[] {
  const groups = Map.groupBy(watched, (row) => episodes[row]!.group);
  return [...groups.values()].map((members) => {
    const { promptText, row } = episodes[members[0]!]!;
    return {
      prompt: promptText,
      truth: row.rewardModel?.ground_truth ?? null,
      source: row.dataSource,
      episodes: members.map((member) => {
        const { text, responseIds, logprobs, score } = episodes[member]!;
        return {
          response: text,
          tokens: responseIds.map((id) => tokenizer.tokenText(id)),
          logprobs,
          advantages: known.advantages?.[member],
          entropy: known.entropy?.[member] ?? undefined,
          score: score?.score ?? null,
          extra: score?.extra ?? {},
        };
      }),
    };
  });
}
