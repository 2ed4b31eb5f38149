import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { balanceBatch, balanceMetrics, balanceWorkers, workload } from "./balancing.ts";

const lengths = [512, 100, 300, 700, 50, 1200, 640, 90];
const sorted = (rows: readonly number[]) => rows.toSorted((a, b) => a - b);

test("the work of a sequence is verl's 24576 L + L^2", () => {
  expect([1, 17, 4096, 8192].map((length) => workload(length))).toEqual([24577, 418081, 117440512, 268435456]);
});

describe("balanceWorkers", () => {
  test("deals out every row once, the same number to each worker", () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 6 }), fc.integer({ min: 1, max: 6 }), fc.nat(), (workers, each, seed) => {
        const some = Array.from({ length: workers * each }, (_, i) => 1 + ((seed + i * 7919) % 997));
        const parts = balanceWorkers(some, { workers });
        expect(parts.map((rows) => rows.length)).toEqual(Array(workers).fill(each));
        expect(sorted(parts.flat())).toEqual([...some.keys()]);
      }),
    );
  });

  test("gives verl's parts of eight lengths, small sequences first and last", () => {
    expect(balanceWorkers(lengths, { workers: 2 }).map(sorted)).toEqual([
      [0, 1, 4, 5],
      [2, 3, 6, 7],
    ]);
    const [first] = balanceWorkers(lengths, { workers: 2 });
    expect(first!.map((row) => lengths[row])).toEqual([50, 512, 1200, 100]);
  });

  test("keeps rows in their mini-batch", () => {
    const parts = balanceWorkers(lengths, { workers: 2, miniBatchSize: 4 });
    for (const rows of parts) {
      expect(sorted(rows.slice(0, 2)).every((row) => row < 4)).toBe(true);
      expect(sorted(rows.slice(2)).every((row) => row >= 4)).toBe(true);
    }
  });

  test("keeps groups together though their rows are apart", () => {
    const groups = ["a", "b", "a", "b", "c", "d", "c", "d"];
    const parts = balanceWorkers(lengths, { workers: 2, groups });
    const owner = (group: string) =>
      new Set(parts.flatMap((rows, w) => rows.filter((r) => groups[r] === group).map(() => w)));
    for (const group of ["a", "b", "c", "d"]) expect(owner(group).size, group).toBe(1);
  });

  test("no rows are no rows for every worker", () => {
    expect(balanceWorkers([], { workers: 2 })).toEqual([[], []]);
  });

  test("refuses rows that are left over", () => {
    expect(() => balanceWorkers(lengths, { workers: 3 })).toThrow("2 are left over");
    expect(() => balanceWorkers(lengths, { workers: 2, miniBatchSize: 3 })).toThrow("8 rows are no whole number");
  });
});

describe("balanceBatch", () => {
  const lists = fc.array(fc.integer({ min: 1, max: 2000 }), { minLength: 1, maxLength: 40 });

  test("every mini-batch has the same number of rows of each worker, as far as the workers have as many", () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 6 }), fc.integer({ min: 1, max: 6 }), fc.nat(), (workers, each, seed) => {
        const some = Array.from({ length: workers * each }, (_, i) => 1 + ((seed + i * 7919) % 997));
        const { parts, order } = balanceBatch(some, workers);
        expect(parts).toEqual(balanceWorkers(some, { workers }));
        for (let size = workers; size <= order.length; size += workers) {
          // The worker's own rows cut into mini-batches of its share, as verl's workers do it.
          const shares = parts.map((rows) => rows.slice(0, size / workers));
          expect(sorted(order.slice(0, size))).toEqual(sorted(shares.flat()));
        }
      }),
    );
  });

  test("all rows are there once, whether workers can share them evenly or not", () => {
    fc.assert(
      fc.property(lists, fc.integer({ min: 1, max: 9 }), (some, workers) => {
        const { parts, order } = balanceBatch(some, workers);
        expect(sorted(order)).toEqual([...some.keys()]);
        expect(sorted(parts.flat())).toEqual([...some.keys()]);
      }),
    );
  });

  test("the order for one worker is that worker's", () => {
    const { parts, order } = balanceBatch(lengths, 1);
    expect(parts).toEqual([order]);
  });
});

describe("balanceMetrics", () => {
  test("tells the tokens of workers before and after", () => {
    const parts = [
      [0, 1, 4, 5],
      [2, 3, 6, 7],
    ];
    expect(balanceMetrics(lengths, parts)).toEqual({
      "global_seqlen/min": 1612,
      "global_seqlen/max": 1980,
      "global_seqlen/minmax_diff": 368,
      "global_seqlen/balanced_min": 1730,
      "global_seqlen/balanced_max": 1862,
      "global_seqlen/mean": 1796,
    });
  });

  test("the mean is that of both ways of dealing, for any number of workers", () => {
    const metrics = balanceMetrics(
      lengths,
      [
        [0, 1],
        [2, 3, 4],
        [5, 6, 7],
      ],
      "x",
    );
    expect(metrics["x/mean"]).toBeCloseTo(3592 / 3);
    expect(metrics["x/min"]).toBeLessThanOrEqual(metrics["x/mean"]!);
  });

  test("no workers have no metrics", () => {
    expect(balanceMetrics([], [])).toEqual({});
  });
});
