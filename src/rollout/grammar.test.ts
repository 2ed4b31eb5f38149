/**
 * Samples that obey a grammar, over the decoder of test/cache-decoder.ts: they are valid whatever else is asked for, and
 * they change nothing for the samples beside them.
 */
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { EOS, logitsAfter, regimeOf, setUp, softmax, tokenizer } from "../../test/cache-decoder.ts";
import { grammarOf } from "../text/grammar/grammar.ts";
import { schemaRule } from "../text/grammar/json-schema.ts";
import { tokenTable } from "../text/grammar/token-table.ts";
import { UserError } from "../util/errors.ts";
import type { Sample, SampleRequest, Sampling } from "./request.ts";

const vocabSize = tokenizer.vocabSize;
// Token 3 ends samples here, so it must not be text as well.
const table = tokenTable({ ...tokenizer, isSpecial: (id) => id === EOS || tokenizer.isSpecial(id) }, vocabSize);
const grammarOfSchema = (schema: unknown) => grammarOf(schemaRule(schema, "schema"), table);

const grammar = grammarOfSchema({
  type: "object",
  properties: { a: { type: "integer", minimum: 0, maximum: 999 }, b: { enum: ["x", "yz"] } },
  required: ["a"],
  additionalProperties: false,
});
const prompt = [5, 9, 17];
const base: SampleRequest = { prompt, maxNewTokens: 90, grammar, wantsText: true, seed: 1 };

function expectValid({ text, finishReason }: Sample): void {
  expect(finishReason).toBe("stop");
  const { a, b, ...rest } = JSON.parse(text);
  expect(Number.isInteger(a) && a >= 0 && a <= 999).toBe(true);
  expect([undefined, "x", "yz"]).toContain(b);
  expect(rest).toEqual({});
}

describe("a sample with a grammar is valid", () => {
  test.each<Partial<Sampling>>([
    {},
    { temperature: 0 },
    { temperature: 0.1 },
    { topK: 1 },
    { topP: 0.01 },
    { minP: 1 },
    { repetitionPenalty: 5, presencePenalty: 2, frequencyPenalty: -2 },
    { logitBias: { 1: 50, [EOS]: 90 } },
    { minNewTokens: 80 },
    { ignoreEos: true },
    { ignoreEos: true, minNewTokens: 80 },
    { topLogprobs: 5 },
  ])("with %j", async (sampling) => {
    const { sampler } = setUp({ vocabSize, hasTokenizer: true });
    const { samples } = await sampler.sample({ ...base, ...sampling, n: 8 });
    for (const sample of samples) {
      expectValid(sample);
      expect(sample.ids.includes(EOS)).toBe(!sampling.ignoreEos);
      for (const [i, top] of sample.top.entries()) {
        expect(top.length).toBeLessThanOrEqual(sampling.topLogprobs ?? 0);
        if (top.length > 0) expect(sample.logprobs[i]).toBeLessThanOrEqual(top[0]!.logprob);
      }
    }
    const isGreedy = sampling.temperature === 0 || sampling.topK === 1 || sampling.minP === 1;
    const texts = new Set(samples.map(({ text }) => text));
    if (isGreedy) expect(texts.size).toBe(1);
    else if (sampling.topP === undefined) expect(texts.size).toBeGreaterThan(1);
  });
});

test("a stop text and a limit cut a sample short, and what there is of it is the beginning of a valid one", async () => {
  const { sampler } = setUp({ vocabSize, hasTokenizer: true });
  const [whole] = (await sampler.sample(base)).samples;
  const [short] = (await sampler.sample({ ...base, maxNewTokens: 4 })).samples;
  expect(short).toMatchObject({ finishReason: "length", ids: whole!.ids.slice(0, 4) });
  expect(whole!.text.startsWith(short!.text)).toBe(true);
  const [stopped] = (await sampler.sample({ ...base, stop: [":"] })).samples;
  expect(stopped).toMatchObject({ finishReason: "stop", stopReason: ":", text: whole!.text.split(":")[0] });
});

test("each token has its log-prob in the constrained distribution and in that of the model", async () => {
  const { sampler } = setUp({ vocabSize, hasTokenizer: true });
  for (const temperature of [1, 0.5]) {
    const { samples } = await sampler.sample({ ...base, temperature, n: 3 });
    for (const { ids, logprobs, policyLogprobs } of samples) {
      let state = grammar;
      ids.forEach((id, i) => {
        const held = [...prompt, ...ids.slice(0, i)].map((it) => ({
          id: it,
          version: 0,
          regime: regimeOf(prompt.length + i),
        }));
        const probs = softmax(logitsAfter(held, vocabSize), temperature);
        const { bits } = state.allowed();
        const isAllowed = (it: number) =>
          ((bits[it >>> 5]! >>> (it & 31)) & 1) === 1 || (it === EOS && state.isComplete);
        const mass = probs.reduce((sum, p, it) => (isAllowed(it) ? sum + p : sum), 0);
        expect(isAllowed(id)).toBe(true);
        expect(policyLogprobs![i]).toBeCloseTo(Math.log(probs[id]!), 4);
        expect(logprobs[i]).toBeCloseTo(Math.log(probs[id]! / mass), 4);
        if (id !== EOS) state = state.after(id);
      });
    }
  }
});

test("a sample without a grammar has no log-probs of the policy beside its own", async () => {
  const { sampler } = setUp({ vocabSize });
  const { samples } = await sampler.sample({ prompt, maxNewTokens: 3, seed: 1 });
  expect(samples[0]).not.toHaveProperty("policyLogprobs");
});

test("samples are the same alone and among others, with and without a grammar, whatever is cached or lost", async () => {
  const other = grammarOfSchema({ type: "array", items: { type: "boolean" }, maxItems: 4 });
  const requests = fc.array(
    fc.record({
      prompt: fc.array(fc.integer({ min: 4, max: 9 }), { minLength: 1, maxLength: 5 }),
      seed: fc.nat(1000),
      n: fc.integer({ min: 1, max: 3 }),
      maxNewTokens: fc.integer({ min: 1, max: 40 }),
      grammar: fc.constantFrom(undefined, undefined, grammar, other),
    }),
    { minLength: 2, maxLength: 5 },
  );
  await fc.assert(
    fc.asyncProperty(requests, async (list) => {
      const asked = list.map(
        ({ grammar: own, ...rest }): SampleRequest => ({ ...rest, wantsText: true, ...(own && { grammar: own }) }),
      );
      // So small a cache that sequences lose their places and are computed again.
      const { sampler } = setUp({ vocabSize, hasTokenizer: true, cacheTokens: 130, limits: { maxSequences: 4 } });
      const together = await Promise.all(asked.map((request) => sampler.sample(request)));
      for (const [i, request] of asked.entries()) {
        const { sampler: fresh } = setUp({ vocabSize, hasTokenizer: true });
        expect(together[i]!.samples).toEqual((await fresh.sample(request)).samples);
      }
    }),
    { numRuns: 40 },
  );
}, 60_000);

test("a request whose grammar has no way on is rejected, and those beside it are served", async () => {
  const { sampler } = setUp({ vocabSize, hasTokenizer: true });
  const broken = {
    ...grammar,
    allowed: () => {
      throw new UserError("no way on");
    },
  };
  const [bad, good] = await Promise.allSettled([sampler.sample({ ...base, grammar: broken }), sampler.sample(base)]);
  expect(bad).toMatchObject({ status: "rejected", reason: { message: "no way on" } });
  expect(good.status).toBe("fulfilled");
  expect(sampler.stats()).toMatchObject({ running: 0, waiting: 0 });
});
