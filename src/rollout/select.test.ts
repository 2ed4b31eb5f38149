import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { type Bound, covering, largest, type Row } from "./select.ts";

/** Non-negative numbers of every size, many of them equal or nearly equal. */
const entry = fc.oneof(
  fc.constantFrom(0, 0, 1e-310, 1e-44, 1e-38, 0.25, 0.25 + 2 ** -26, 0.2500001, 1),
  fc.double({ min: 0.1, max: 0.1001, noNaN: true }),
  fc.double({ min: 0, max: 1, noNaN: true }),
);
const rows: fc.Arbitrary<Row> = fc
  .tuple(fc.array(entry, { minLength: 1, maxLength: 60 }), fc.boolean())
  .map(([values, isDouble]) => (isDouble ? Float64Array.from(values) : Float32Array.from(values)));
const from = fc.constantFrom(0, 1e-40, 0.1, 0.5);

/** The entries within a bound, largest first. */
function within(row: Row, { least, ties }: Bound): number[] {
  let left = ties;
  const kept = [...row].filter((p) => p > 0 && (p > least || (p === least && left-- > 0)));
  return kept.sort((a, b) => b - a);
}
const sorted = (row: Row, least: number) => [...row].filter((p) => p > 0 && p >= least).sort((a, b) => b - a);

describe("the result without sorting equals the result of sorting:", () => {
  test("the largest entries", () => {
    fc.assert(
      fc.property(rows, fc.integer({ min: 1, max: 70 }), from, (row, count, least) => {
        expect(within(row, largest(row, count, least))).toEqual(sorted(row, least).slice(0, count));
      }),
      { numRuns: 500 },
    );
  });

  test("the fewest of the largest entries that reach a sum", () => {
    fc.assert(
      fc.property(rows, fc.double({ min: 0.001, max: 1, noNaN: true }), from, (row, share, least) => {
        const all = sorted(row, least);
        const mass = share * all.reduce((a, b) => a + b, 0);
        fc.pre(mass > 0);
        const kept = within(row, covering(row, mass, least));
        expect(kept).toEqual(all.slice(0, kept.length));
        const sum = kept.reduce((a, b) => a + b, 0);
        expect(sum).toBeGreaterThan(mass * (1 - 1e-12));
        expect(sum - kept.at(-1)!).toBeLessThan(mass * (1 + 1e-12)); // one fewer would not
      }),
      { numRuns: 500 },
    );
  });
});
