/**
 * The controller's side of sampling, over workers whose tokens follow from their random numbers: which worker runs what
 * and when, what ends a sample, and that tokens of a round after its end are ignored.
 */
import { describe, expect, test } from "vitest";
import type { SampleRequest, SamplerLimits } from "../../rollout/request.ts";
import type { Decodable } from "../../text/stream.ts";
import { type CacheBudget, RaySampler, type RaySamplerParts, type RoundMessage } from "./sampler.ts";

const VOCABULARY = 50;
type Known = { key: number; limit: number; length: number; ends: readonly number[] };
type Added = { key: number; limit: number; prompt: Int32Array; params: { stop_token_ids: readonly number[] } };

/** Workers that store their sequences, and a record of how many each had in each round. */
function yard(limits: SamplerLimits = {}, more: Partial<RaySamplerParts> = {}) {
  const workers = 2;
  const known: Map<number, Known>[] = Array.from({ length: workers }, () => new Map());
  const rounds: number[][] = [];
  const trouble: { next: Error | null } = { next: null };
  const answer = (rank: number, { keys, add, uniforms, steps, isIdle }: RoundMessage) => {
    if (isIdle) return {};
    for (const { key, limit, prompt, params } of add as Added[]) {
      known[rank]!.set(key, { key, limit, length: prompt.length, ends: params.stop_token_ids });
    }
    for (const key of known[rank]!.keys()) if (!keys.includes(key)) known[rank]!.delete(key);
    const drawn = [...keys].map((key, i) => {
      const sequence = known[rank]!.get(key)!;
      const ids: number[] = [];
      for (let step = 0; step < steps && sequence.length < sequence.limit; step++) {
        ids.push(Math.floor(uniforms[i * steps + step]! * VOCABULARY));
        sequence.length++;
        if (sequence.ends.includes(ids.at(-1)!)) break;
      }
      return ids;
    });
    const ids = drawn.flat();
    return {
      counts: Int32Array.from(drawn, (own) => own.length),
      ids: Int32Array.from(ids),
      top: ids.map(() => []),
      logprobs: new Float64Array(ids.length).fill(-1),
      prompts: add.map(() => []),
    };
  };
  const sampler = new RaySampler({
    workers,
    vocabSize: VOCABULARY,
    maxLength: 200,
    regimeEnd: null,
    eosIds: [],
    limits,
    tokenizer: null,
    cache: { numbers: 10_000, perToken: 1, perRow: 0 },
    round: async (messages) => {
      if (trouble.next !== null) throw trouble.next;
      rounds.push(messages.map(({ keys }) => keys.length));
      return messages.map((message, rank) => answer(rank, message));
    },
    ...more,
  });
  return { sampler, rounds, known, trouble };
}

const ask = (seed: number, more: Partial<SampleRequest> = {}): SampleRequest => ({
  prompt: [1, 2, 3],
  maxNewTokens: 20,
  seed,
  ...more,
});

/** Each token is a letter of its own. */
const letters: Decodable = {
  pieceOf: (id) => String.fromCharCode(65 + id),
  isSpecial: () => false,
  openDecoder: () => (piece) => (piece === null ? [] : [piece]),
};

describe("sampling in rounds", () => {
  test("a request gets the same tokens, alone or among others, on any worker", async () => {
    const alone = await Promise.all([1, 2, 3, 4, 5].map((seed) => yard().sampler.sample(ask(seed))));
    const { sampler } = yard();
    const together = await Promise.all([1, 2, 3, 4, 5].map((seed) => sampler.sample(ask(seed))));
    expect(together).toEqual(alone);
    expect(new Set(together.map(({ samples }) => samples[0]!.ids.join())).size).toBe(5);
  });

  test("requests are spread over the workers, and a round goes to all of them", async () => {
    const { sampler, rounds } = yard();
    await Promise.all([1, 2, 3, 4].map((seed) => sampler.sample(ask(seed))));
    expect(rounds).toEqual([
      [2, 2],
      [2, 2],
      [2, 2],
      [0, 0],
    ]); // 20 tokens in rounds of 8, and one to let go
  });

  test.each<{ limits?: SamplerLimits; cache?: CacheBudget }>([
    { limits: { maxSequences: 2 } },
    { cache: { numbers: 23 * 2, perToken: 1, perRow: 0 } },
    { cache: { numbers: (10 * 23 + 7) * 2, perToken: 10, perRow: 7 } },
    { cache: { numbers: 7 * 2, perToken: 0, perRow: 7 } },
  ])("no worker has more than it may: %j", async ({ limits, ...more }) => {
    const { sampler, rounds } = yard(limits, more);
    const finished: number[] = [];
    await Promise.all(
      [1, 2, 3, 4, 5, 6, 7].map((seed) => sampler.sample(ask(seed, { onSample: () => finished.push(seed) }))),
    );
    expect(Math.max(...rounds.flat())).toBe(2);
    expect(Math.max(...finished.slice(0, 4))).toBe(4); // first come, first served
  });

  test("a request for more samples than fit at once runs alone", async () => {
    const { sampler, rounds } = yard({ maxSequences: 2 });
    const [{ samples }] = await Promise.all([sampler.sample(ask(1, { n: 5 })), sampler.sample(ask(2))]);
    expect(samples.map(({ index }) => index)).toEqual([0, 1, 2, 3, 4]);
    expect(rounds[0]).toEqual([5, 1]);
  });

  test("tokens after a stop text are ignored", async () => {
    const { sampler } = yard({}, { tokenizer: letters });
    const free = (await sampler.sample(ask(1, { wantsText: true }))).samples[0]!;
    const stop = free.text.slice(2, 4);
    const { ids, text, stopReason } = (await sampler.sample(ask(1, { stop: [stop] }))).samples[0]!;
    expect(stopReason).toBe(stop);
    expect(text).toBe(free.text.slice(0, free.text.indexOf(stop)));
    expect(ids).toEqual(free.ids.slice(0, text.length + 2));
  });

  test("a cancelled request is removed from its worker with the next round, and others stay", async () => {
    const { sampler, known } = yard();
    const controller = new AbortController();
    const cancelled = sampler.sample(ask(1, { n: 3, maxNewTokens: 100, signal: controller.signal }));
    const other = sampler.sample(
      ask(2, { onToken: () => controller.abort(new Error("enough")), maxNewTokens: 60, n: 2 }),
    );
    await expect(cancelled).rejects.toThrow("enough");
    expect((await other).samples.map(({ ids }) => ids.length)).toEqual([60, 60]);
    expect(known[0]!.size).toBe(0);
    expect(sampler.stats()).toMatchObject({ running: 0, waiting: 0, finishedSamples: 2 });
  });

  test("a failed round rejects every request with its error, and later ones are served", async () => {
    const { sampler, trouble } = yard();
    trouble.next = new Error("gone");
    await Promise.all([1, 2].map((seed) => expect(sampler.sample(ask(seed))).rejects.toThrow("gone")));
    expect(sampler.stats()).toMatchObject({ running: 0, waiting: 0 });
    trouble.next = null;
    expect((await sampler.sample(ask(1))).samples).toHaveLength(1);
  });

  test("a callback that throws ends its own request and no other", async () => {
    const { sampler } = yard();
    const onToken = () => {
      throw new Error("mine");
    };
    const [other] = await Promise.all([
      sampler.sample(ask(1)),
      expect(sampler.sample(ask(2, { onToken }))).rejects.toThrow("mine"),
    ]);
    expect(other.samples[0]!.ids).toHaveLength(20);
  });

  test("closing rejects waiting and new requests", async () => {
    const { sampler } = yard();
    const waiting = sampler.sample(ask(1, { maxNewTokens: 150 }));
    sampler.close(new Error("closed"));
    await expect(waiting).rejects.toThrow("closed");
    await expect(sampler.sample(ask(2))).rejects.toThrow("closed");
  });
});
