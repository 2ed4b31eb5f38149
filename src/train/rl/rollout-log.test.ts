import { fileURLToPath } from "node:url";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { parseOverride } from "../../config/overrides.ts";
import { ppoSchema } from "../../config/ppo/schema.ts";
import { resolve } from "../../config/resolve.ts";
import { rlRow } from "../../data/rl-rows.ts";
import { appendGiven, appendSampled, singleTurn } from "../../rollout/ledger.ts";
import { loadTokenizer } from "../../text/tokenizer.ts";
import { type Episode, responseLength } from "./episode.ts";
import { rolloutGroups, rowsToLog } from "./rollout-log.ts";

const keys = ["data.train_files=a.jsonl", "actor_rollout_ref.model.path=m"].map(parseOverride);
const { config: defaults } = resolve(ppoSchema, [keys], { home: "/", env: {} });
const config = (tokens: number, seed = 1) => ({
  ...defaults,
  trainer: { ...defaults.trainer, logged_tokens: tokens, seed },
});

const rowOf = (index: number) => {
  const values = { prompt: `${index}:`, data_source: "toy", reward_model: { ground_truth: `${index}` } };
  return rlRow({ file: "a.jsonl", row: index, values });
};

/** Groups with responses of these lengths, their episodes in an order that mixes the groups. */
function episodesOf(groups: readonly (readonly number[])[]): Episode[] {
  const all = groups.flatMap((lengths, group) =>
    lengths.map((length, place): Episode => {
      const ids = Array.from({ length }, (_, i) => 4 + ((group + place + i) % 10));
      return {
        group: `step 1/${group}`,
        place,
        prompt: { row: rowOf(group), ids: Int32Array.of(4), text: `${group}:` },
        ledgers: [singleTurn([4], { ids, logprobs: ids.map((id) => -id), finishReason: "stop" }, 0)],
        text: ids.map((id) => id - 4).join(""),
        score: { score: place, extra: { length } },
      };
    }),
  );
  return all.sort((a, b) => responseLength(a) - responseLength(b));
}

const groupsOf = fc.array(fc.array(fc.integer({ min: 0, max: 20 }), { minLength: 1, maxLength: 4 }), {
  minLength: 1,
  maxLength: 8,
});

describe("the episodes that are logged", () => {
  test("are whole groups up to the limit of tokens, at least one group, and all where they fit", () => {
    const property = fc.property(groupsOf, fc.nat(200), fc.nat(9), (groups, most, seed) => {
      const episodes = episodesOf(groups);
      const rows = rowsToLog(config(most, seed), episodes, "step 1");
      const chosen = [...Map.groupBy(rows, (row) => episodes[row]!.group)];
      for (const [group, members] of chosen) {
        const whole = episodes.filter((episode) => episode.group === group).length;
        expect(members.map((row) => episodes[row]!.place)).toEqual([...Array(whole).keys()]);
      }
      const tokens = rows.reduce((sum, row) => sum + responseLength(episodes[row]!), 0);
      expect(chosen.length === 1 || tokens <= most).toBe(true);
      const all = episodes.reduce((sum, episode) => sum + responseLength(episode), 0);
      if (all <= most) expect(chosen).toHaveLength(groups.length);
    });
    fc.assert(property);
  });

  test("are others at another step and with another seed, and the same in the same round", () => {
    const episodes = episodesOf(Array.from({ length: 8 }, () => [2, 2]));
    const first = (seed: number, round: string) => rowsToLog(config(4, seed), episodes, round)[0]!;
    const rounds = Array.from({ length: 20 }, (_, step) => `step ${step}`);
    expect(new Set(rounds.map((round) => first(1, round))).size).toBeGreaterThan(3);
    expect(new Set(rounds.map((_, seed) => first(seed, "step 1"))).size).toBeGreaterThan(3);
    expect(rounds.map((round) => first(1, round))).toEqual(rounds.map((round) => first(1, round)));
  });
});

test("what is logged of a token is what is known of it, and nothing is logged of the others", async () => {
  const tokenizer = await loadTokenizer(
    fileURLToPath(new URL("../../../test/fixtures/text/wordlevel", import.meta.url)),
  );
  const episodes = episodesOf([[3, 1], [2], [5]]);
  const each = (episode: Episode, value: number) => Array.from({ length: responseLength(episode) }, () => value);
  const advantages = episodes.map((episode, row) => each(episode, row));
  const entropy = episodes.map((episode) => (episode.group.endsWith("/0") ? each(episode, 0.5) : null));
  const logged = [...episodes.keys()].filter((row) => !episodes[row]!.group.endsWith("/2"));
  const groups = rolloutGroups(episodes, { logged, advantages, entropy }, { tokenizer });
  expect(groups.map(({ prompt, truth }) => [prompt, truth]).sort()).toEqual([
    ["0:", "0"],
    ["1:", "1"],
  ]);
  for (const { prompt, source, episodes: members } of groups) {
    expect(source).toBe("toy");
    for (const member of members) {
      const row = episodes.findIndex(
        (episode) =>
          episode.prompt.text === prompt && episode.place === member.score && episode.text === member.response,
      );
      expect(member.tokens.join("")).toBe(member.response);
      expect(member).toMatchObject({
        logprobs: episodes[row]!.ledgers[0]!.logprobs.subarray(1),
        advantages: advantages[row],
        extra: { length: member.tokens.length },
        entropy: prompt === "0:" ? member.tokens.map(() => 0.5) : undefined,
      });
    }
  }
});

test("an episode of several turns and ledgers is logged with the tokens that the policy did not draw marked", async () => {
  const tokenizer = await loadTokenizer(
    fileURLToPath(new URL("../../../test/fixtures/text/wordlevel", import.meta.url)),
  );
  const sampled = (ids: readonly number[]) => ({ ids, logprobs: ids.map(() => -1), finishReason: "stop" as const });
  const asked = appendGiven(singleTurn([4], sampled([5, 6]), 0), [7], "tool");
  const ledgers = [appendSampled(asked, sampled([8]), 0), singleTurn([4, 5], sampled([9]), 1)];
  const episode: Episode = { ...episodesOf([[1]])[0]!, ledgers };
  const [group] = rolloutGroups([episode], { logged: [0] }, { tokenizer });
  expect(group!.episodes[0]).toMatchObject({
    tokens: [5, 6, 7, 8, 9].map((id) => tokenizer.tokenText(id)),
    drawn: [1, 1, 0, 1, 1],
    turns: [
      { role: "assistant", start: 0, end: 2, finish_reason: "stop" },
      { role: "tool", start: 2, end: 3 },
      { role: "assistant", start: 3, end: 4, finish_reason: "stop" },
      { role: "assistant", start: 4, end: 5, finish_reason: "stop" },
    ],
  });
});
