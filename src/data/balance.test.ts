import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { Random } from "../util/random.ts";
import { fixedMicroBatches, type MicroBatch, microBatches, RUN_COST_TOKENS } from "./balance.ts";

/** The share of a list of micro-batches that is padding, from 0 to 1. */
function paddingShare(lengths: readonly number[], batches: readonly MicroBatch[]): number {
  let padded = 0;
  let used = 0;
  for (const { indices, time } of batches) {
    padded += indices.length * time;
    for (const index of indices) used += lengths[index]!;
  }
  return padded === 0 ? 0 : 1 - used / padded;
}

const lengthLists = fc.array(fc.integer({ min: 1, max: 3000 }), { maxLength: 200 });
const indicesOf = (batches: readonly MicroBatch[]) => batches.flatMap(({ indices }) => indices);

/** Lengths as chats have them: a long tail to the right. */
function chatLengths(count: number, seed: number, median = 200, spread = 0.7): number[] {
  const random = new Random(seed);
  return Array.from({ length: count }, () => Math.max(1, Math.round(median * Math.exp(random.normal(0, spread)))));
}

describe("micro-batches under a token budget", () => {
  test("hold every sequence exactly once, within the budget or alone", () => {
    fc.assert(
      fc.property(lengthLists, fc.integer({ min: 1, max: 20_000 }), (lengths, maxTokens) => {
        const batches = microBatches(lengths, { maxTokens });
        expect(indicesOf(batches).toSorted((a, b) => a - b)).toEqual(lengths.map((_, i) => i));
        for (const { indices, time } of batches) {
          expect(time).toBe(Math.max(...indices.map((i) => lengths[i]!)));
          expect(indices.length === 1 || indices.length * time <= maxTokens).toBe(true);
        }
      }),
    );
  });

  test("are the same for the same lengths", () => {
    const lengths = chatLengths(500, 1);
    expect(microBatches(lengths, { maxTokens: 4096 })).toEqual(microBatches([...lengths], { maxTokens: 4096 }));
  });

  test("are the cheapest division of the sorted lengths", () => {
    fc.assert(
      fc.property(fc.array(fc.integer({ min: 1, max: 60 }), { maxLength: 9 }), (lengths) => {
        const costOf = (batches: readonly MicroBatch[]) =>
          batches.reduce((sum, { indices, time }) => sum + indices.length * time + RUN_COST_TOKENS, 0);
        expect(costOf(microBatches(lengths, { maxTokens: 100_000 }))).toBe(cheapest(lengths.toSorted((a, b) => b - a)));
      }),
    );
  });

  test.each([
    [2048, 32],
    [4096, 64],
    [16384, 256],
    [16384, 1024],
  ])("waste at most a tenth on padding: budget %i, %i sequences", (maxTokens, count) => {
    for (let seed = 0; seed < 10; seed++) {
      const lengths = chatLengths(count, seed);
      expect(paddingShare(lengths, microBatches(lengths, { maxTokens }))).toBeLessThan(0.1);
    }
  });

  test("put equal lengths together as far as the budget reaches", () => {
    expect(microBatches(new Array(64).fill(100), { maxTokens: 1600 })).toHaveLength(4);
  });

  test.each([
    ["like chats", chatLengths(100_000, 3)],
    ["all alike", new Array<number>(100_000).fill(7)],
    ["all different", Array.from({ length: 100_000 }, (_, i) => i + 1)],
  ])("of 100,000 sequences %s take less than a second", (_name, lengths) => {
    const start = performance.now();
    microBatches(lengths, { maxTokens: 1_000_000 });
    expect(performance.now() - start).toBeLessThan(1000);
  });
});

/** The least cost over all divisions of a sorted list, tried one by one. */
function cheapest(sorted: readonly number[]): number {
  if (sorted.length === 0) return 0;
  return Math.min(...sorted.map((_, i) => (i + 1) * sorted[0]! + RUN_COST_TOKENS + cheapest(sorted.slice(i + 1))));
}

test("micro-batches of a fixed size hold every sequence once, and only the last is smaller", () => {
  fc.assert(
    fc.property(lengthLists, fc.integer({ min: 1, max: 40 }), (lengths, size) => {
      const batches = fixedMicroBatches(lengths, size);
      expect(indicesOf(batches).toSorted((a, b) => a - b)).toEqual(lengths.map((_, i) => i));
      for (const { indices } of batches.slice(0, -1)) expect(indices).toHaveLength(size);
    }),
  );
});
