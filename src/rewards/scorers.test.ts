import { describe, expect, test } from "vitest";
import { type RewardInput, scorers } from "./reward.ts";
import { builtinScore, dataSources, scorerNames } from "./scorers.ts";

const response = "<think>t</think> <answer>12</answer> #### 12\nAnswer: \\boxed{12}";
const sample = (changes: Partial<RewardInput>): RewardInput => ({
  dataSource: "openai/gsm8k",
  prompt: "",
  response,
  groundTruth: "12",
  extraInfo: {},
  responseLength: 20,
  ...changes,
});
const codeSources = ["codecontests", "apps", "codeforces", "taco"];

describe("a data source", () => {
  const scored = dataSources.filter((dataSource) => !codeSources.includes(dataSource));

  test.each(scored)("%s gives the right answer a positive score and a wrong one less", async (dataSource) => {
    const scoreOf = async (truth: string) => {
      const groundTruth = dataSource.startsWith("searchR1") ? { target: [truth] } : truth;
      const value = await builtinScore(sample({ dataSource, groundTruth }));
      return typeof value === "object" && "score" in value ? Number(value.score) : Number(value);
    };
    expect(await scoreOf("12")).toBeGreaterThan(0);
    expect(await scoreOf("13")).toBeLessThan(await scoreOf("12"));
  });

  test("that begins with aime is scored by math_dapo, with its columns", () => {
    const scoreOf = (groundTruth: string) => builtinScore(sample({ dataSource: "aime2025", groundTruth }));
    expect(scoreOf("12")).toEqual({ score: 1, acc: true, pred: "12" });
    expect(scoreOf("13")).toEqual({ score: -1, acc: false, pred: "12" });
  });

  test("without a scorer is named, with the nearest ones and the way out", () => {
    expect(() => builtinScore(sample({ dataSource: "openai/gsm8" }))).toThrow(
      /"openai\/gsm8"\. Did you mean "openai\/gsm8k"\?.*custom_reward/,
    );
    expect(() => builtinScore(sample({ dataSource: "weather" }))).toThrow(/"weather"\. Known: openai\/gsm8k, .*aime\*/);
    expect(() => builtinScore(sample({ dataSource: "constructor" }))).toThrow("no built-in scorer");
  });

  test.each(codeSources)("%s is scored by the scorer that the caller gives", (dataSource) => {
    expect(builtinScore(sample({ dataSource }), { code: (input) => input.responseLength })).toBe(20);
    expect(() => builtinScore(sample({ dataSource }))).toThrow(`"${dataSource}" is scored by running the model's code`);
  });
});

describe("a scorer by its name", () => {
  const byName = scorerNames.filter((name) => name !== "code");
  test.each(byName)("%s scores any data source", async (name) => {
    const scoreOf = async (truth: string) => {
      const groundTruth = name === "search_qa" ? { target: [truth] } : truth;
      const value = await builtinScore(sample({ dataSource: "weather", groundTruth }), { name });
      return typeof value === "object" && "score" in value ? Number(value.score) : Number(value);
    };
    expect(await scoreOf("12")).toBeGreaterThan(0);
    expect(await scoreOf("13")).toBeLessThan(await scoreOf("12"));
  });

  test("code is scored by the scorer that the caller gives", () => {
    const input = sample({ dataSource: "weather" });
    expect(builtinScore(input, { name: "code", code: ({ responseLength }) => responseLength })).toBe(20);
  });

  test("that does not exist is named, with the nearest one", () => {
    expect(() => builtinScore(sample({}), { name: "math_verfy" })).toThrow(/Did you mean "math_verify"\?/);
  });
});

describe("a scorer that a reward function imports", () => {
  test("needs a response and a ground truth only", () => {
    expect(scorers.gsm8k({ response: "#### 1,200", groundTruth: 1200 })).toBe(1);
    expect(scorers.math({ response: "\\boxed{\\frac12}", groundTruth: "\\frac{1}{2}" })).toBe(1);
    expect(scorers.mathVerify({ response: "The answer is $0.5$", groundTruth: "\\frac{1}{2}" })).toBe(1);
    expect(scorers.mathDapo({ response: "Answer: 7", groundTruth: "8" })).toEqual({ score: -1, acc: false, pred: "7" });
    expect(() => scorers.math({ response: "", groundTruth: null })).toThrow("the scorer needs the answer");
  });

  test("mathBatch scores a list as math scores each", () => {
    const inputs = ["1", "2", "3"].map((groundTruth) => ({ response: "\\boxed{2}", groundTruth }));
    expect(scorers.mathBatch(inputs)).toEqual(inputs.map(scorers.math));
    expect(scorers.mathBatch(inputs)).toEqual([0, 1, 0]);
  });
});

describe("the ground truth", () => {
  test("may be a number", () => {
    expect(builtinScore(sample({ groundTruth: 12 }))).toBe(1);
    expect(builtinScore(sample({ groundTruth: 12n }))).toBe(1);
  });

  test.each([
    ["openai/gsm8k", undefined, "is null"],
    ["openai/gsm8k", null, "is null"],
    ["math", Number.NaN, "NaN"],
    ["numina_cn_k12", ["12"], "the answer, a text or a number"],
    ["searchR1_nq", "12", "an object with `target`"],
    ["searchR1_nq", { target: [12] }, "an object with `target`"],
  ])("of %s that is %s is refused and never scored 0", (dataSource, groundTruth, message) => {
    const input = sample({ dataSource, groundTruth, row: 7 });
    expect(() => builtinScore(input)).toThrow(message);
    expect(() => builtinScore(input)).toThrow("`reward_model.ground_truth` of row 7");
  });
});

test("10,000 GSM8K replies are scored in well under two seconds", () => {
  const reasoning = "She sells 16 - 3 - 4 = <<16-3-4=9>>9 eggs a day. ".repeat(10);
  const start = performance.now();
  let right = 0;
  for (let i = 0; i < 10_000; i++) right += Number(builtinScore(sample({ response: `${reasoning}\n#### ${i % 20}` })));
  expect(right).toBe(500);
  expect(performance.now() - start).toBeLessThan(1000);
});
