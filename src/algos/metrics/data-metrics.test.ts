import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { UserError } from "../../util/errors.ts";
import { dataMetrics, type MetricBatch } from "./data-metrics.ts";

const limits = { maxPromptLength: 4, maxResponseLength: 3 };
const batch: MetricBatch = {
  mask: [[1, 1, 1], [1, 0], []],
  scores: [[0, 0, 1], [0, 3], []],
  rewards: [[0, -0.5, 1], [0, 2], []],
  advantages: [[1, 2, 3], [-6, 99], []],
  returns: [[1, 1, 1], [1, 99], []],
  values: [[0, 1, 2], [1, -99], []],
  promptLengths: [4, 2, 3],
  responseLengths: [3, 2, 0],
  turns: [2, 4, 2],
  toolCalls: [0, 3, 0],
};

describe("dataMetrics", () => {
  test("counts scores by episode and advantages by chosen token", () => {
    expect(dataMetrics(batch, limits)).toMatchObject({
      "critic/score/mean": 2,
      "critic/score/max": 3,
      "critic/score/min": 1,
      "critic/rewards/mean": 1.25,
      "critic/advantages/mean": 0,
      "critic/advantages/max": 3,
      "critic/advantages/min": -6,
      "critic/returns/max": 1,
      "critic/values/min": 0,
      "response_length/mean": 5 / 3,
      "response_length/clip_ratio": 1 / 3,
      "response_length_non_aborted/mean": 2.5,
      "response_length_non_aborted/clip_ratio": 0.5,
      "response/aborted_ratio": 1 / 3,
      "prompt_length/clip_ratio": 1 / 3,
      "num_turns/mean": 8 / 3,
      "tool_call_counts/max": 3,
    });
  });

  test("padding changes nothing, whatever stands there", () => {
    const rowKeys = ["scores", "rewards", "advantages", "returns", "values"] as const;
    const plain = dataMetrics(batch, limits);
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 5 }), fc.double(), (width, junk) => {
        const padded = (rows: MetricBatch["mask"], value: number) =>
          rows.map((row) => [...Array.from(row), ...Array(width).fill(value)]);
        const rows = rowKeys.map((key) => [key, padded(batch[key]!, key === "scores" || key === "rewards" ? 0 : junk)]);
        expect(dataMetrics({ ...batch, mask: padded(batch.mask, 0), ...Object.fromEntries(rows) }, limits)).toEqual(
          plain,
        );
      }),
    );
  });

  test("the order of episodes changes nothing", () => {
    const turned = Object.fromEntries(Object.entries(batch).map(([key, list]) => [key, [...list].reverse()]));
    const metrics = dataMetrics({ ...batch, ...turned }, limits);
    for (const [name, value] of Object.entries(dataMetrics(batch, limits)))
      expect(metrics[name], name).toBeCloseTo(value, 12);
  });

  test("a critic that predicts returns explains all of their variance, a constant none", () => {
    const returns = [[1, 2, 3], [4, 5], []];
    const explained = (values: MetricBatch["mask"]) =>
      dataMetrics({ ...batch, returns, values }, limits)["critic/vf_explained_var"];
    expect(explained(returns)).toBe(1);
    expect(explained([[7, 7, 7], [7, 7], []])).toBeCloseTo(0, 4);
  });

  test("without a critic, turns and tools there are no such metrics", () => {
    const { values: _, turns: __, toolCalls: ___, ...rest } = batch;
    const names = Object.keys(dataMetrics(rest, limits)).join(" ");
    expect(names).not.toMatch(/values|vf_explained|num_turns|tool_call/);
  });

  test("when all episodes are aborted, the ratio says so and there are no scores", () => {
    const empty = [[], []];
    const rows = { mask: empty, scores: empty, rewards: empty, advantages: empty, returns: empty, values: empty };
    const metrics = dataMetrics({ ...rows, promptLengths: [2, 2], responseLengths: [0, 0] }, limits);
    expect(metrics).toEqual({
      "response_length/mean": 0,
      "response_length/max": 0,
      "response_length/min": 0,
      "response_length/clip_ratio": 0,
      "response/aborted_ratio": 1,
      "prompt_length/mean": 2,
      "prompt_length/max": 2,
      "prompt_length/min": 2,
      "prompt_length/clip_ratio": 0,
    });
  });

  test("no episodes have no metrics", () => {
    const rows = { mask: [], scores: [], rewards: [], advantages: [], returns: [] };
    expect(dataMetrics({ ...rows, promptLengths: [], responseLengths: [] }, limits)).toEqual({});
  });

  test("one token has no explained variance, and nothing is NaN", () => {
    const one = [[1]];
    const rows = { mask: one, scores: one, rewards: one, advantages: one, returns: one, values: one };
    const metrics = dataMetrics({ ...rows, promptLengths: [1], responseLengths: [1] }, limits);
    expect(metrics).not.toHaveProperty("critic/vf_explained_var");
    for (const [name, value] of Object.entries(metrics)) expect(value, name).toBeTypeOf("number");
    for (const [name, value] of Object.entries(metrics)) expect(value, name).not.toBeNaN();
  });

  test.each([
    ["a NaN score", { scores: [[0, Number.NaN, 1], [0, 3], []] }, "row 0"],
    [
      "an infinite advantage",
      { advantages: [[1, 2, 3], [Number.POSITIVE_INFINITY, 0], []] },
      "`advantages` is Infinity",
    ],
    ["a row of another length", { values: [[0, 1], [1, 0], []] }, "Row 0 of `values` has 2 entries"],
    ["a list of another length", { promptLengths: [1] }, "`promptLengths` has 1 entries where there are 3 episodes"],
  ])("refuses %s", (_, change, message) => {
    const compute = () => dataMetrics({ ...batch, ...change }, limits);
    expect(compute).toThrow(message);
    expect(compute).toThrow(UserError);
  });
});
