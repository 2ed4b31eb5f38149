import fc from "fast-check";
import { expect, test } from "vitest";
import { UserError } from "../../util/errors.ts";
import { partSums } from "./partition.ts";
import { microBatchesByTokens, microBatchesOfWorkers } from "./token-budget.ts";

const someLengths = fc.array(fc.integer({ min: 1, max: 50 }), { minLength: 1, maxLength: 60 });

test("every row is in one micro-batch, and none exceeds the budget", () => {
  fc.assert(
    fc.property(someLengths, fc.integer({ min: 50, max: 200 }), (lengths, maxTokens) => {
      const parts = microBatchesByTokens(lengths, { maxTokens });
      expect(parts.flat().sort((a, b) => a - b)).toEqual([...lengths.keys()]);
      for (const sum of partSums(lengths, parts)) expect(sum).toBeLessThanOrEqual(maxTokens);
    }),
  );
});

test("version 0.7 bounds the average only, and so may exceed the budget", () => {
  const lengths = [12, 7, 14, 16, 7, 13, 9, 16];
  const sums = (version: "0.7" | "0.9") =>
    partSums(lengths, microBatchesByTokens(lengths, { maxTokens: 32, version })).sort((a, b) => a - b);
  expect(sums("0.7")).toEqual([29, 32, 33]);
  expect(Math.max(...sums("0.9"))).toBeLessThanOrEqual(32);
});

test("sequences of which no two go together are alone at once", () => {
  expect(microBatchesByTokens(Array(3000).fill(9), { maxTokens: 16 })).toHaveLength(3000);
});

test("the count is at least what is asked, and a multiple of it", () => {
  expect(microBatchesByTokens(Array(12).fill(1), { maxTokens: 100 })).toHaveLength(1);
  expect(microBatchesByTokens(Array(12).fill(1), { maxTokens: 100, minCount: 3 })).toHaveLength(3);
  expect(microBatchesByTokens(Array(12).fill(1), { maxTokens: 100, minCount: 3, multipleOf: 4 })).toHaveLength(4);
});

test("consecutive rows of a group stay together, in order", () => {
  const parts = microBatchesByTokens([5, 6, 1, 2, 7, 3, 4, 4], { maxTokens: 14, groupSize: 2 });
  for (const rows of parts) {
    for (let i = 0; i < rows.length; i += 2) expect([rows[i]! % 2, rows[i + 1]]).toEqual([0, rows[i]! + 1]);
  }
});

test("small micro-batches are first and last", () => {
  const lengths = [40, 30, 20, 10, 5];
  const sums = partSums(lengths, microBatchesByTokens(lengths, { maxTokens: 40, minCount: 5 }));
  expect(sums).toEqual([5, 20, 40, 30, 10]);
});

test("workers get as many micro-batches as the one that needs most", () => {
  const counts = microBatchesOfWorkers([Array(8).fill(10), Array(8).fill(1)], { maxTokens: 20 }).map((p) => p.length);
  expect(counts).toEqual([4, 4]);
});

test("no rows have no micro-batches", () => {
  expect(microBatchesByTokens([], { maxTokens: 8 })).toEqual([]);
});

test.each([
  ["a sequence beyond the budget", [3, 9], { maxTokens: 8 }, "has 9 tokens where a micro-batch may have 8"],
  ["more micro-batches than rows", [3, 4], { maxTokens: 8, minCount: 3 }, "at least 3"],
  ["a multiple that does not fit", [5, 5, 5], { maxTokens: 8, multipleOf: 2 }, "a multiple of 2"],
  ["a broken group", [3, 4, 5], { maxTokens: 30, groupSize: 2 }, "groups of 2"],
])("refuses %s", (_, lengths, budget, message) => {
  const divide = () => microBatchesByTokens(lengths, budget);
  expect(divide).toThrow(message);
  expect(divide).toThrow(UserError);
});

test("100,000 lengths fit their budgets within a few seconds, in hardly more micro-batches than tokens ask for", () => {
  const lengths = Array.from({ length: 100_000 }, (_, i) => 1 + ((i * 7919) % 2048));
  const total = lengths.reduce((a, b) => a + b, 0);
  const start = performance.now();
  const count = microBatchesByTokens(lengths, { maxTokens: 16_384 }).length;
  expect(performance.now() - start).toBeLessThan(3000);
  expect(count).toBeLessThan((1.03 * total) / 16_384);
});
