import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { workload } from "../../algos/balancing/balancing.ts";
import { UserError } from "../../util/errors.ts";
import type { MicroBatching, TokenRow } from "../contract.ts";
import { divide, layOut } from "./layout.ts";

const rowOf = (length: number): TokenRow => ({
  ids: new Int32Array(length).fill(3),
  mask: new Uint8Array(length).fill(1),
});
const batches = fc.array(fc.integer({ min: 1, max: 60 }), { maxLength: 30 });
const cuts = fc.oneof(
  fc.record({ rows: fc.integer({ min: 1, max: 9 }) }),
  fc.record({ maxTokens: fc.integer({ min: 1, max: 200 }) }),
);

describe("a batch that is divided over workers", () => {
  test("has every row once, and the same number of rounds for every worker", () => {
    fc.assert(
      fc.property(batches, cuts, fc.integer({ min: 1, max: 5 }), (lengths, micro: MicroBatching, workers) => {
        const rows = lengths.map(rowOf);
        const rounds = divide(rows, { micro, regime: null, workers });
        for (const round of rounds) expect(round).toHaveLength(workers);
        const seen = rounds.flat(2).sort((a, b) => a - b);
        expect(seen).toEqual([...rows.keys()]);
        for (const indices of rounds.flat()) {
          const time = Math.max(0, ...indices.map((i) => lengths[i]!));
          if ("rows" in micro) expect(indices.length).toBeLessThanOrEqual(micro.rows);
          else if (indices.length > 1) expect(indices.length * time).toBeLessThanOrEqual(micro.maxTokens);
        }
      }),
    );
  });

  test("gives workers equal work: the difference is at most the longest row", () => {
    fc.assert(
      fc.property(batches, fc.integer({ min: 2, max: 5 }), (lengths, workers) => {
        const rounds = divide(lengths.map(rowOf), { micro: { rows: 2 }, regime: null, workers });
        const works = Array.from({ length: workers }, (_, rank) =>
          rounds.flatMap((round) => round[rank]!).reduce((sum, i) => sum + workload(lengths[i]!), 0),
        );
        expect(Math.max(...works) - Math.min(...works)).toBeLessThanOrEqual(workload(Math.max(0, ...lengths)));
      }),
    );
  });

  test("separates rows whose rotary embeddings depend on their length", () => {
    const lengths = [40, 41, 41, 5, 6, 40, 7];
    const regime = { type: "dynamic", end: 32 } as const;
    const rounds = divide(lengths.map(rowOf), { micro: { rows: 8 }, regime, workers: 1 });
    const groups = rounds.map(([indices]) => indices!.map((i) => lengths[i]!).sort((a, b) => a - b));
    expect(groups.sort((a, b) => a[0]! - b[0]!)).toEqual([
      [5, 6, 7],
      [40, 40],
      [41, 41],
    ]);
  });
});

describe("a micro-batch", () => {
  const rows: TokenRow[] = [
    { ids: Int32Array.of(11, 12, 13), mask: [1, 0, 1] },
    { ids: Int32Array.of(21, 22), mask: [0, 1] },
    { ids: Int32Array.of(31), mask: [1] },
  ];

  test("reads each counted token's distribution one position before it", () => {
    const block = layOut(rows, [1, 0], { heads: ["logprobs"], vocabSize: 100 })!;
    expect([...block.ids]).toEqual([21, 22, 0, 11, 12, 13]);
    expect([...block.positions]).toEqual([0, 4]);
    expect([...block.places]).toEqual([1, 5]);
    expect([...block.targets]).toEqual([22, 13]);
    expect(block.owners).toEqual([
      { row: 1, at: 1 },
      { row: 0, at: 2 },
    ]);
  });

  test("reads scores at the token itself, so the first one counts too", () => {
    const block = layOut(rows, [0, 2], { heads: ["scores"], vocabSize: 100 })!;
    expect([...block.positions]).toEqual([0, 2, 3]);
    expect([...block.places]).toEqual([0, 2, 3]);
  });

  test("without counted tokens is null", () => {
    expect(layOut(rows, [2], { heads: ["logprobs"], vocabSize: 100 })).toBeNull();
    expect(layOut(rows, [], { heads: ["logprobs"], vocabSize: 100 })).toBeNull();
  });

  test("with a token outside the vocabulary is an error", () => {
    expect(() => layOut(rows, [0], { heads: ["logprobs"], vocabSize: 13 })).toThrow(UserError);
  });
});
