import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { UserError } from "../../util/errors.ts";
import { karmarkarKarp, type Parts, partSums } from "./partition.ts";

/** Weights, some of them equal or 0, and a number of parts that divides their number. */
const divisible = fc
  .record({ parts: fc.integer({ min: 1, max: 9 }), size: fc.integer({ min: 1, max: 9 }) })
  .chain(({ parts, size }) =>
    fc.tuple(
      fc.constant(parts),
      fc.array(fc.oneof(fc.integer({ min: 0, max: 5 }), fc.integer({ min: 0, max: 1e6 })), {
        minLength: parts * size,
        maxLength: parts * size,
      }),
    ),
  );
const rowsOf = (parts: Parts) => parts.flat().sort((a, b) => a - b);
const largest = (weights: readonly number[], parts: Parts) => Math.max(...partSums(weights, parts));

describe("karmarkarKarp", () => {
  const divide = karmarkarKarp;
  test("puts every item in exactly one of the parts asked for", () => {
    fc.assert(
      fc.property(divisible, fc.boolean(), ([parts, weights], equalSize) => {
        const divided = divide(weights, parts, { equalSize });
        expect(divided).toHaveLength(parts);
        expect(rowsOf(divided)).toEqual([...weights.keys()]);
      }),
    );
  });

  test("gives parts of equal size on demand", () => {
    fc.assert(
      fc.property(divisible, ([parts, weights]) => {
        for (const part of divide(weights, parts, { equalSize: true }))
          expect(part).toHaveLength(weights.length / parts);
      }),
    );
  });

  test("refuses what cannot be divided, with the numbers", () => {
    expect(() => divide([1, 2], 3)).toThrow("2 sequences cannot be divided among 3 parts");
    expect(() => divide([1, 2, 3], 2, { equalSize: true })).toThrow("Use 2 or 4 sequences");
    expect(() => divide([1, 2, 3], 2, { equalSize: true })).toThrow(UserError);
  });
});

test("karmarkarKarp leaves no part empty, even of items that weigh nothing", () => {
  fc.assert(
    fc.property(fc.array(fc.integer({ min: 0, max: 3 }), { minLength: 1, maxLength: 40 }), fc.nat(), (weights, n) => {
      const parts = 1 + (n % weights.length);
      for (const part of karmarkarKarp(weights, parts)) expect(part.length).toBeGreaterThan(0);
    }),
  );
});

test("no part of karmarkarKarp exceeds the mean by more than the heaviest item", () => {
  fc.assert(
    fc.property(divisible, ([parts, weights]) => {
      const mean = weights.reduce((a, b) => a + b, 0) / parts;
      expect(largest(weights, karmarkarKarp(weights, parts))).toBeLessThanOrEqual(mean + Math.max(...weights));
    }),
  );
});

test("karmarkarKarp is what a plain implementation with all k sets gives, to the index", () => {
  fc.assert(
    fc.property(divisible, fc.boolean(), ([parts, weights], equalSize) => {
      expect(karmarkarKarp(weights, parts, { equalSize })).toEqual(plain(weights, parts, equalSize ? parts : 1));
    }),
  );
});

test("powers of two cannot be balanced and are divided as well as they can be", () => {
  const parts = karmarkarKarp([1, 2, 4, 8, 16, 32, 64, 128], 3);
  expect(parts).toEqual([[7], [6], [0, 1, 2, 3, 4, 5]]);
});

test.each([2, 8, 1000, 40_000])("100,000 lengths are divided into %i parts within a second", (parts) => {
  const lengths = Array.from({ length: 100_000 }, (_, i) => 1 + ((i * 7919) % 4096));
  const start = performance.now();
  const divided = karmarkarKarp(lengths, parts);
  expect(performance.now() - start).toBeLessThan(1000);
  expect(divided).toHaveLength(parts);
});

/** The definition, slowly: every state has all k sets, sorted; all states are sorted before each merge. */
function plain(weights: readonly number[], parts: number, size: number): Parts {
  type Items = { sum: number; items: number[] };
  const byItems = (a: Items, b: Items) =>
    b.sum - a.sum || b.items.length - a.items.length || (b.items[0] ?? 0) - (a.items[0] ?? 0);
  const spread = (sets: Items[]) => sets[0]!.sum - sets.at(-1)!.sum;
  const order = [...weights.keys()].sort((a, b) => weights[a]! - weights[b]! || a - b);
  let states: Items[][] = [];
  for (let start = 0; start < order.length; start += size) {
    const chunk = order.slice(start, start + size).map((item) => ({ sum: weights[item]!, items: [item] }));
    const empty = Array.from({ length: parts - chunk.length }, () => ({ sum: 0, items: [] }));
    states.push([...chunk, ...empty].sort(byItems));
  }
  while (states.length > 1) {
    states.sort((a, b) => spread(b) - spread(a) || byItems(a[0]!, b[0]!));
    const [first, second, ...others] = states;
    const joined = first!.map(({ sum, items }, i) => {
      const other = second![parts - 1 - i]!;
      return { sum: sum + other.sum, items: [...items, ...other.items] };
    });
    states = [joined.sort(byItems), ...others];
  }
  return states[0]!.map(({ items }) => items.sort((a, b) => a - b));
}
