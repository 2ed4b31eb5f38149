/**
 * The sampler over a decoder that is a function of its cache (test/cache-decoder.ts): the samples of a request must
 * equal, bit by bit, those that a simple loop draws for it alone.
 */
import * as fc from "fast-check";
import { expect, test } from "vitest";
import { EOS, logitsAfter, regimeOf, setUp, softmax, tick } from "../../test/cache-decoder.ts";
import { Random } from "../util/random.ts";
import { draw, needsLogits, temperatureOf } from "./draw.ts";
import type { PromptToken, Sample, SampleRequest } from "./request.ts";

/** The sample of a request that runs alone; `versions` are those of the weights at each token. */
function alone(request: SampleRequest, { index, versions, maxLength, vocabSize }: Alone): Omit<Sample, "text"> {
  const { seed = 0, minNewTokens = 0, maxNewTokens, stopIds = [], ignoreEos = false } = request;
  const random = new Random(seed, "sample", index);
  const promptLength = request.prompt.length;
  const ids = Array.from(request.prompt);
  const [logprobs, top]: [number[], Sample["top"][number][]] = [[], []];
  for (;;) {
    const drawn = ids.length - promptLength;
    const version = versions[drawn]!;
    const held = ids.map((id) => ({ id, version, regime: regimeOf(ids.length) }));
    const logits = logitsAfter(held, vocabSize);
    const banned = drawn < minNewTokens ? [...(ignoreEos ? [] : [EOS]), ...stopIds] : [];
    const context = { sampling: request, ids, promptLength, banned };
    const probs = softmax(logits, temperatureOf(request));
    const token = draw(probs, needsLogits(request, banned) ? logits : null, context, () => random.uniform());
    ids.push(token.id);
    logprobs.push(token.logprob);
    top.push(token.top);
    const end = (finishReason: Sample["finishReason"], stopReason: Sample["stopReason"]) => ({
      index,
      ids: ids.slice(promptLength),
      logprobs,
      top,
      finishReason,
      stopReason,
    });
    if (stopIds.includes(token.id)) return end("stop", token.id);
    if (token.id === EOS && !ignoreEos) return end("stop", null);
    if (ids.length >= Math.min(promptLength + maxNewTokens, maxLength)) return end("length", null);
  }
}
type Alone = {
  readonly index: number;
  readonly versions: readonly number[];
  readonly maxLength: number;
  readonly vocabSize: number;
};

const numbers = (length: number, from = 0) => Array.from({ length }, (_, i) => from + i);

// ---------------------------------------------------------------- the law of all laws

const maybe = <T>(arbitrary: fc.Arbitrary<T>) => fc.option(arbitrary, { nil: undefined, freq: 2 });
/** Rarely, so that many samples become long. */
const rarely = fc.oneof({ arbitrary: fc.constant(false), weight: 3 }, { arbitrary: fc.constant(true), weight: 1 });
const requests = fc.record({
  prompt: fc
    .tuple(fc.nat(2), fc.integer({ min: 1, max: 40 }), fc.nat(3))
    .map(([family, length, own]) => [...numbers(length).map((i) => (i * (family + 3)) % 24), own]),
  settings: fc.record({
    maxNewTokens: fc.integer({ min: 1, max: 90 }),
    n: fc.integer({ min: 1, max: 4 }),
    seed: fc.integer(),
    temperature: fc.constantFrom(0, 0.7, 1, 2),
    topK: fc.constantFrom(0, 5),
    topP: fc.constantFrom(1, 0.8),
    topLogprobs: fc.constantFrom(0, 2),
    ignoreEos: rarely.map((isHeeded) => !isHeeded),
    repetitionPenalty: fc.constantFrom(1, 1, 1.5),
  }),
  stopIds: fc.tuple(rarely, fc.nat(23)).map(([isGiven, id]) => (isGiven ? [id] : undefined)),
  minNewTokens: maybe(fc.constantFrom(0, 1)),
  promptLogprobs: maybe(fc.nat(2)),
  /** Turns of the event loop before it comes, and after which it is cancelled. */
  after: fc.nat(6),
  cancelAfter: maybe(fc.nat(12)),
});
const setups = fc.record({
  cacheTokens: fc.integer({ min: 64, max: 700 }),
  limits: fc.record({
    maxSequences: fc.integer({ min: 1, max: 7 }),
    maxBatchedTokens: fc.integer({ min: 5, max: 100 }),
    hasPrefixCache: fc.boolean(),
  }),
  updates: fc.array(fc.nat(8), { maxLength: 2 }),
});

test("a request gets the same samples as alone, whatever other requests and weight updates come meanwhile", async () => {
  const seen = { preemptions: 0, reusedTokens: 0, cancelled: 0, finished: 0, acrossUpdate: 0 };
  await fc.assert(
    fc.asyncProperty(fc.array(requests, { minLength: 1, maxLength: 10 }), setups, async (given, setup) => {
      const { decoder, sampler, update } = setUp(setup);
      const running: Promise<void>[] = [];
      for (const { prompt, settings, after, cancelAfter, ...rest } of given) {
        for (let i = 0; i < after; i++) await tick();
        const versions: number[][] = numbers(settings.n).map(() => []);
        const controller = new AbortController();
        const optional = JSON.parse(JSON.stringify(rest)) as Partial<SampleRequest>; // without absent fields
        const request: SampleRequest = {
          prompt,
          ...settings,
          ...optional,
          signal: controller.signal,
          onToken: ({ index }) => versions[index]!.push(decoder.version),
        };
        const check = async (): Promise<void> => {
          const { samples, promptLogprobs } = await sampler.sample(request);
          for (const [index, { text, ...sample }] of samples.entries()) {
            const wanted = { index, versions: versions[index]!, maxLength: sampler.maxLength, vocabSize: 24 };
            expect(sample).toEqual(alone(request, wanted));
            expect(text).toBe("");
            seen.acrossUpdate += Number(new Set(versions[index]).size > 1);
          }
          expect(samples).toHaveLength(settings.n);
          expect(promptLogprobs?.length).toBe(rest.promptLogprobs === undefined ? undefined : prompt.length);
          if (setup.updates.length === 0) {
            for (const [at, token] of (promptLogprobs ?? []).entries()) checkPromptToken(token, at, prompt);
          }
          seen.finished++;
        };
        const reason = new Error("cancelled");
        const done = check().catch((error) => {
          if (error !== reason) throw error;
          seen.cancelled++;
        });
        running.push(done);
        if (cancelAfter !== undefined) {
          for (let i = 0; i < cancelAfter; i++) await tick();
          controller.abort(reason);
        }
        if (setup.updates.includes(running.length)) void update();
      }
      await Promise.all(running);
      const stats = sampler.stats();
      expect([stats.running, stats.waiting]).toEqual([0, 0]);
      expect(stats.cachedTokens).toBeLessThanOrEqual(setup.limits.hasPrefixCache ? setup.cacheTokens : 0);
      seen.preemptions += stats.preemptions;
      seen.reusedTokens += stats.reusedTokens;
    }),
    { numRuns: 150, endOnFailure: true },
  );
  // All of it was there to be noticed.
  for (const [what, count] of Object.entries(seen)) expect(count, what).toBeGreaterThan(0);
});

function checkPromptToken(token: PromptToken | null, at: number, prompt: readonly number[]): void {
  const held = prompt.slice(0, at).map((id) => ({ id, version: 0, regime: regimeOf(prompt.length) }));
  const probs = softmax(logitsAfter(held, 24), 1);
  if (at === 0) expect(token).toBeNull();
  else expect(token).toMatchObject({ id: prompt[at], logprob: Math.log(probs[prompt[at]!]!) });
}
