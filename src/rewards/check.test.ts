import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { checkBatch, checkReward } from "./check.ts";
import { describeFailure } from "./outcome.ts";
import type { RewardInput } from "./reward.ts";

const input: RewardInput = {
  dataSource: "toy",
  prompt: "p",
  response: "r",
  groundTruth: "g",
  extraInfo: {},
  responseLength: 3,
  row: 12,
};

describe("what a reward function may return becomes a score", () => {
  const cases: readonly [what: string, value: unknown, score: object][] = [
    ["a number", 0.5, { score: 0.5, extra: {} }],
    ["a negative number", -1, { score: -1, extra: {} }],
    ["true", true, { score: 1, extra: {} }],
    ["false", false, { score: 0, extra: {} }],
    ["an object", { score: 2, acc: true, pred: "7" }, { score: 2, extra: { acc: true, pred: "7" } }],
    ["an object whose score is a boolean", { score: true }, { score: 1, extra: {} }],
    ["columns of any data", { score: 1, at: { list: [1, null] } }, { score: 1, extra: { at: { list: [1, null] } } }],
    ["one reward per token", [0, 0.25, 0.5], { score: 0.75, tokens: [0, 0.25, 0.5], extra: {} }],
  ];
  for (const [what, value, score] of cases) {
    test(what, () => expect(checkReward(value, input)).toEqual({ score }));
  }

  test("a response without tokens has an empty list of rewards, and the score 0", () => {
    expect(checkReward([], { ...input, responseLength: 0 })).toEqual({ score: { score: 0, tokens: [], extra: {} } });
  });
});

describe("anything else is a failure that says what was returned", () => {
  const cases: readonly [value: unknown, message: RegExp][] = [
    [Number.NaN, /returned NaN; a reward is/],
    [Number.POSITIVE_INFINITY, /returned Infinity; /],
    [Number.NEGATIVE_INFINITY, /returned -Infinity; /],
    ["1", /returned the text "1"; /],
    [undefined, /returned nothing; /],
    [null, /returned null; /],
    [1n, /returned the bigint 1; /],
    [() => 1, /returned the function /],
    [{}, /returned an object without keys, which has no `score`/],
    [{ acc: 1, pred: 2 }, /returned an object with acc, pred, which has no `score`/],
    [{ score: "1" }, /returned a `score` that is the text "1"/],
    [{ score: Number.NaN }, /returned a `score` that is the number NaN/],
    [{ score: null }, /returned a `score` that is null/],
    [{ score: 1, log: () => 1 }, /a column `log` that cannot be logged/],
    [{ score: 1, log: { deep: Symbol("x") } }, /a column `log` that cannot be logged/],
    [[1, 2], /returned a list of 2 rewards for a response of 3 tokens/],
    [[], /returned a list of 0 rewards for a response of 3 tokens/],
    [[1, Number.NaN, 3], /returned the number NaN as the reward of token 2 of 3/],
    [[1, 2, "3"], /returned the text "3" as the reward of token 3 of 3/],
    [[1, true, 3], /returned the boolean true as the reward of token 2 of 3/],
    [new Array(3), /returned nothing as the reward of token 1 of 3/],
  ];
  for (const [value, message] of cases) {
    test(String(message), () => {
      const { failure } = checkReward(value, input);
      expect(failure).toMatchObject({ row: 12, dataSource: "toy", reason: "value" });
      expect(failure && describeFailure(failure)).toMatch(
        /^row 12 \(data source "toy"\): the reward function returned /,
      );
      expect(failure?.message).toMatch(message);
    });
  }
});

test("whatever is returned, a score is finite and nothing is thrown", () => {
  fc.assert(
    fc.property(fc.anything({ withBigInt: true, withDate: true, withMap: true }), (value) => {
      const { score, failure } = checkReward(value, input);
      expect((score === undefined) !== (failure === undefined)).toBe(true);
      if (score !== undefined) expect(Number.isFinite(score.score)).toBe(true);
    }),
  );
});

describe("a batch", () => {
  const inputs = [input, { ...input, row: 13 }];

  test("has one value per sample, each checked by itself", () => {
    const outcomes = checkBatch([1, "no"], inputs);
    expect(outcomes).toEqual([
      { score: { score: 1, extra: {} } },
      { failure: expect.objectContaining({ row: 13, message: expect.stringContaining('the text "no"') }) },
    ]);
  });

  test.each([
    ["a list of the wrong length", [1, 2, 3], /returned a list of 3 for a batch of 2 samples/],
    ["a number", 1, /returned the number 1 for a batch of 2 samples/],
  ])("that is %s fails for every sample", (_what, values, message) => {
    for (const { failure } of checkBatch(values, inputs)) expect(failure?.message).toMatch(message);
  });
});
