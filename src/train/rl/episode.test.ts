import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { rlRow } from "../../data/rl-rows.ts";
import { appendGiven, appendSampled, type Ledger, startLedger } from "../../rollout/ledger.ts";
import { type Episode, masksOf, responseLength, responseRows, rolloutLogprobsOf, tokenRows } from "./episode.ts";

const prompt = {
  row: rlRow({ file: "a.jsonl", row: 1, values: { prompt: "1:", data_source: "toy" } }),
  ids: Int32Array.of(4, 5),
  text: "1:",
};
const episodeOf = (ledgers: readonly Ledger[], isScored = true): Episode => ({
  group: "g",
  place: 0,
  prompt,
  ledgers,
  text: "",
  score: isScored ? { score: 1, extra: {} } : null,
});
const drawn = (ids: readonly number[]) => ({ ids, logprobs: ids.map((id) => -id), finishReason: "stop" as const });

/** A ledger of some turns: tokens that the policy drew, and tokens that it was given. */
const ledgerOf = (turns: readonly { readonly isDrawn: boolean; readonly ids: readonly number[] }[]): Ledger =>
  turns.reduce<Ledger>(
    (ledger, { isDrawn, ids }) => (isDrawn ? appendSampled(ledger, drawn(ids), 0) : appendGiven(ledger, ids, "tool")),
    startLedger(prompt.ids),
  );

const ids = fc.array(fc.integer({ min: 1, max: 99 }), { minLength: 1, maxLength: 4 });
const turns = fc.array(fc.record({ isDrawn: fc.boolean(), ids }), { minLength: 1, maxLength: 4 });
const episodes = fc.array(
  fc.array(turns.map(ledgerOf), { minLength: 1, maxLength: 3 }).map((all) => episodeOf(all)),
  { minLength: 1, maxLength: 4 },
);

describe("the rows of episodes", () => {
  test("come back unchanged from what an engine computes for their sequences", () => {
    const property = fc.property(episodes, (all) => {
      const rows = all.map((episode, i) =>
        Float32Array.from({ length: responseLength(episode) }, (_, t) => 100 * i + t),
      );
      const sequences = tokenRows(all, masksOf(all), { rows });
      const outputs = sequences.map(({ extra }) => ({ logprobs: Float32Array.from(extra!.rows!) }));
      expect(responseRows(all, outputs, "logprobs")).toEqual(rows);
    });
    fc.assert(property);
  });

  test("hold every token of every ledger once, as an engine reads it", () => {
    const property = fc.property(episodes, (all) => {
      const sequences = tokenRows(all, masksOf(all), { logprobs: rolloutLogprobsOf(all) });
      const ledgers = all.flatMap((episode) => episode.ledgers);
      expect(sequences.map((row) => row.ids)).toEqual(ledgers.map((ledger) => ledger.ids));
      const read = sequences.map(({ extra }) => Array.from(extra!.logprobs!));
      expect(read).toEqual(ledgers.map((ledger) => [...ledger.logprobs]));
    });
    fc.assert(property);
  });
});

test("a row with several numbers per token is laid out token by token", () => {
  const first = ledgerOf([{ isDrawn: true, ids: [7, 8] }]);
  const second = ledgerOf([{ isDrawn: true, ids: [9] }]);
  const all = [episodeOf([first, second])];
  const [one, two] = tokenRows(all, masksOf(all), { pairs: [[1, 2, 3, 4, 5, 6]] });
  expect(one!.extra!.pairs).toEqual(Float32Array.of(0, 0, 0, 0, 1, 2, 3, 4)); // the prompt has two tokens
  expect(two!.extra!.pairs).toEqual(Float32Array.of(0, 0, 0, 0, 5, 6));
});

describe("a token is trained on", () => {
  test("where the policy drew it, and not where it was given to the policy", () => {
    const ledger = ledgerOf([
      { isDrawn: true, ids: [7, 8] },
      { isDrawn: false, ids: [9] },
      { isDrawn: true, ids: [1] },
    ]);
    expect(masksOf([episodeOf([ledger])])).toEqual([Uint8Array.of(1, 1, 0, 1)]);
  });

  test("once, in the first of the ledgers that share it", () => {
    const first = ledgerOf([{ isDrawn: true, ids: [7, 8, 9] }]);
    const branch = ledgerOf([{ isDrawn: true, ids: [7, 8, 1, 2] }]);
    expect(masksOf([episodeOf([first, branch])])).toEqual([Uint8Array.of(1, 1, 1, 0, 0, 1, 1)]);
  });

  test("in no episode without a score", () => {
    expect(masksOf([episodeOf([ledgerOf([{ isDrawn: true, ids: [7] }])], false)])).toEqual([Uint8Array.of(0)]);
  });
});
