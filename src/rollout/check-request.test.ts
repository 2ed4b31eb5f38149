import { describe, expect, test } from "vitest";
import { UserError } from "../util/errors.ts";
import { checkLimits, checkRequest } from "./check-request.ts";
import type { SampleRequest, SamplerLimits } from "./request.ts";

const bounds = { vocabSize: 100, maxLength: 32, hasTokenizer: true };
const good: SampleRequest = { prompt: [1, 2, 3], maxNewTokens: 4 };

/** As a caller without types might: every value is possible. */
const request = (change: Record<string, unknown>) => ({ ...good, ...change }) as SampleRequest;
const check = (change: Record<string, unknown>, on = bounds) => checkRequest(request(change), on);

describe("a value out of range is an error that names the field and the value", () => {
  const wrong: Record<string, readonly unknown[]> = {
    maxNewTokens: [0, -1, 1.5, Number.NaN, Infinity, "8", null],
    minNewTokens: [-1, 0.5, Number.NaN, "1"],
    temperature: [-0.1, Number.NaN, Infinity, "0.7", null],
    topK: [-2, 0.5, Number.NaN],
    topP: [0, -0.1, 1.01, Number.NaN],
    minP: [-0.1, 1.01, Number.NaN],
    repetitionPenalty: [0, -1, 0.001, 101, Number.NaN, Infinity],
    presencePenalty: [-2.1, 2.1, Number.NaN],
    frequencyPenalty: [-2.1, 2.1, Number.NaN],
    seed: [0.5, Number.NaN, 2 ** 60],
    topLogprobs: [-1, 0.5, Number.NaN],
    promptLogprobs: [-1, 0.5, Number.NaN],
    n: [0, -1, 1.5, 1e9, Number.NaN],
  };
  const cases = Object.entries(wrong).flatMap(([field, values]) => values.map((value) => [field, value] as const));
  test.each(cases)("%s: %s", (field, value) => {
    const spelled = typeof value === "string" ? JSON.stringify(value) : String(value);
    expect(() => check({ [field]: value })).toThrow(UserError);
    expect(() => check({ [field]: value })).toThrow(`\`${field}\` is ${spelled}; give a `);
  });
});

describe("any other request that cannot be served is an error that says what is wrong", () => {
  test.each<[change: Record<string, unknown>, message: string]>([
    [{ maxNewTokens: undefined }, "`maxNewTokens` is missing"],
    [{ minNewTokens: 5 }, "`minNewTokens` is 5, more than `maxNewTokens`, which is 4"],
    [{ prompt: [] }, "The prompt has no tokens"],
    [{ prompt: new Int32Array(32) }, "The prompt has 32 tokens, and the longest sequence here is 32"],
    [{ prompt: [1, 100] }, "The prompt has the token id 100, and the vocabulary is 0 to 99"],
    [{ prompt: [-1] }, "The prompt has the token id -1"],
    [{ prompt: [1.5] }, "The prompt has the token id 1.5"],
    [{ prompt: [Number.NaN] }, "The prompt has the token id NaN"],
    [{ prompt: "abc" }, "The prompt has the token id a"],
    [{ stopIds: [3, 100] }, "`stopIds` has the token id 100"],
    [{ logitBias: { 100: 1 } }, "`logitBias` has the token id 100"],
    [{ logitBias: { word: 1 } }, "`logitBias` has the token id NaN"],
    [{ logitBias: { 7: Number.NaN } }, "`logitBias` of token 7 is NaN"],
    [{ logitBias: { 7: -Infinity } }, "`logitBias` of token 7 is -Infinity"],
    [{ stop: ["a", ""] }, "`stop` has an empty text"],
  ])("%j", (change, message) => {
    expect(() => check(change)).toThrow(UserError);
    expect(() => check(change)).toThrow(message);
  });
  test.each([{ wantsText: true }, { stop: ["a"] }])("%j without a tokenizer", (change) => {
    expect(() => check(change, { ...bounds, hasTokenizer: false })).toThrow("need a tokenizer");
  });
});

describe("values at the limits are accepted", () => {
  test.each<Record<string, unknown>>([
    {},
    { maxNewTokens: 1_000_000 }, // the context ends it
    { minNewTokens: 4 },
    { temperature: 0 },
    { topK: -1 },
    { topK: 1_000_000 },
    { topP: 1, minP: 1 },
    { seed: -1 },
    { prompt: new Int32Array(31) },
    { prompt: [0, 99], stopIds: [0, 99], logitBias: { 0: -100, 99: 100 } },
    { n: 16_384, promptLogprobs: 0, topLogprobs: 0, stop: [], stopIds: [] },
  ])("%j", (change) => {
    expect(() => check(change)).not.toThrow();
    expect(() => check({ ...change, wantsText: false }, { ...bounds, hasTokenizer: false })).not.toThrow();
  });
});

describe("limits that are not valid are errors", () => {
  test.each<[field: keyof SamplerLimits, values: readonly number[]]>([
    ["cacheBytes", [0, -1, Number.NaN, Infinity]],
    ["maxSequences", [0, -1, 1.5, Number.NaN]],
    ["maxBatchedTokens", [0, -1, 1.5, Number.NaN]],
    ["maxLength", [0, 1, 2.5, Number.NaN]],
  ])("%s: %j", (field, values) => {
    for (const value of values)
      expect(() => checkLimits({ [field]: value })).toThrow(`\`${field}\` is ${value}; give a `);
    expect(() => checkLimits({ [field]: 2 })).not.toThrow();
  });
});
