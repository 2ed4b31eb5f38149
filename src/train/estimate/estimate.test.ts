/** Laws of the estimate: it counts as the engine counts, grows with the work, and is exact for linear times. */
import { describe, expect, test } from "vitest";
import { charConfig } from "../../../test/rl-yard.ts";
import { tinyConfig } from "../../../test/sandbox.ts";
import type { TokenRow } from "../../engine/contract.ts";
import { parseConfig, withHead } from "../../models/config.ts";
import {
  lineThrough,
  operations,
  type Pass,
  parameterCount,
  type Rates,
  roleMemory,
  type StepPlan,
  stepSeconds,
  totalOf,
} from "./estimate.ts";

const tiny = parseConfig(tinyConfig, "tiny");
const row = (length: number): TokenRow => ({
  ids: Int32Array.from({ length }, (_, t) => t),
  mask: new Uint8Array(length).fill(1),
});
const pass = (rows: number, length: number, others: Partial<Pass> = {}): Pass => ({
  timer: "train",
  role: "model",
  kind: "train",
  times: 1,
  micro: { rows: 1000 },
  batches: [Array.from({ length: rows }, () => row(length))],
  ...others,
});
const planOf = (...passes: readonly Pass[]): StepPlan => ({
  roles: [{ name: "model", config: tiny, isTrained: true }],
  passes,
  sampling: [],
});
const bytesOf = (plan: StepPlan) => totalOf(roleMemory(plan, plan.roles[0]!));

test.each([
  // Embedding and head 2 x 16 x 16, attention 16 x (16 + 8 + 8 + 16), feed-forward 3 x 16 x 32, norms 3 x 16.
  ["an own head", parseConfig(charConfig, "chars"), 2 * 256 + 768 + 1536 + 48],
  ["a value head in its place", withHead(parseConfig(charConfig, "chars"), "value"), 256 + 768 + 1536 + 48 + 17],
])("parameters are counted once each: %s", (_, config, count) => {
  expect(parameterCount(config)).toBe(count);
});

describe("memory", () => {
  test("is four bytes for each weight, gradient and moment; a role that is not trained has weights alone", () => {
    const plan = planOf(pass(1, 8));
    const weights = 4 * parameterCount(tiny);
    expect(roleMemory(plan, plan.roles[0]!)).toMatchObject({ weights, gradients: weights, optimizer: 2 * weights });
    const reference = { name: "reference", config: tiny, isTrained: false };
    expect(totalOf(roleMemory(plan, reference))).toBe(weights);
  });

  test("grows with rows and length, and shrinks with the micro-batch", () => {
    expect(bytesOf(planOf(pass(16, 64)))).toBeGreaterThan(bytesOf(planOf(pass(8, 64))));
    expect(bytesOf(planOf(pass(8, 128)))).toBeGreaterThan(bytesOf(planOf(pass(8, 64))));
    expect(bytesOf(planOf(pass(16, 64, { micro: { rows: 2 } })))).toBeLessThan(bytesOf(planOf(pass(16, 64))));
  });

  test("of a forward pass is less than that of a training pass", () => {
    expect(bytesOf(planOf(pass(8, 64, { kind: "forward" })))).toBeLessThan(bytesOf(planOf(pass(8, 64))));
  });

  test("of sampling counts only the sequences that are decoded together", () => {
    const sampling = (n: number, maxSequences: number) => ({
      roles: [{ name: "actor", config: tiny, isTrained: true }],
      passes: [],
      sampling: [{ timer: "gen", promptTokens: [8, 8], n, responseTokens: 8, maxSequences }],
    });
    const cacheOf = (plan: StepPlan) => roleMemory(plan, plan.roles[0]!).cache;
    expect(cacheOf(sampling(8, 100))).toBe(2 * cacheOf(sampling(4, 100)));
    expect(cacheOf(sampling(8, 4))).toBe(cacheOf(sampling(2, 4)));
  });
});

describe("a line", () => {
  test("through points of a line is that line", () => {
    const points = [1, 4, 16].map((work) => ({ work, seconds: 0.5 + 2 * work }));
    const { fixed, slope } = lineThrough(points);
    expect(fixed).toBeCloseTo(0.5);
    expect(slope).toBeCloseTo(2);
  });

  test.each([
    ["one point", [{ work: 4, seconds: 2 }]],
    [
      "more work that took less time",
      [
        { work: 1, seconds: 3 },
        { work: 4, seconds: 2 },
      ],
    ],
    [
      "a line that would start below zero",
      [
        { work: 1, seconds: 0.1 },
        { work: 4, seconds: 2 },
      ],
    ],
  ])("through %s goes through zero and the largest", (_, points) => {
    expect(lineThrough(points)).toEqual({ fixed: 0, slope: 0.5 });
  });
});

describe("time", () => {
  const rates: Rates = {
    forward: { fixed: 0, slope: 1 },
    train: { fixed: 10, slope: 1e-3 },
    decode: { fixed: 1, slope: 0.5 },
    update: 2,
  };

  test("of an update is that of its runs, its operations and its optimizer steps", () => {
    const plan = planOf(pass(8, 64, { times: 3 }));
    const work = operations(tiny, "train", { tokens: 8 * 64, counted: 8 * 64, time: 64, isShared: false });
    expect(stepSeconds(plan, rates).get("train")).toBeCloseTo(3 * (10 + 1e-3 * work + 2 * parameterCount(tiny)), 3);
  });

  test("of a training pass is three times that of a forward pass", () => {
    const block = { tokens: 640, counted: 100, time: 64, isShared: false };
    expect(operations(tiny, "train", block)).toBe(3 * operations(tiny, "forward", block));
  });

  test("of decoding is one step per token for the sequences that are decoded together, repeated until all are done", () => {
    const plan = (maxSequences: number): StepPlan => ({
      roles: [{ name: "actor", config: tiny, isTrained: true }],
      passes: [],
      sampling: [{ timer: "gen", promptTokens: [8, 8], n: 4, responseTokens: 10, maxSequences }],
    });
    const seconds = (maxSequences: number) =>
      stepSeconds(plan(maxSequences), { ...rates, forward: { fixed: 0, slope: 0 } }).get("gen");
    expect(seconds(8)).toBeCloseTo(10 * (1 + 0.5 * 8));
    expect(seconds(4)).toBeCloseTo(2 * 10 * (1 + 0.5 * 4));
  });

  test("of passes with one name adds up", () => {
    const one = stepSeconds(planOf(pass(4, 32)), rates).get("train") ?? 0;
    expect(stepSeconds(planOf(pass(4, 32), pass(4, 32)), rates).get("train")).toBeCloseTo(2 * one);
  });
});
