import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { maskedMean, maskedSum } from "./statistics.ts";

const value = fc.double({ min: -1e3, max: 1e3, noNaN: true });
const masked = fc
  .array(fc.tuple(value, fc.constantFrom(0, 1)), { minLength: 1, maxLength: 30 })
  .map((pairs) => ({ values: pairs.map(([v]) => v), mask: pairs.map(([, m]) => m) }));
const kept = ({ values, mask }: { values: number[]; mask: number[] }) => values.filter((_, i) => mask[i] === 1);

describe("entries that the mask leaves out", () => {
  test("do not matter, whatever they are", () => {
    fc.assert(
      fc.property(masked, fc.constantFrom(Number.NaN, Infinity, 7), (given, junk) => {
        const other = given.values.map((v, i) => (given.mask[i] === 1 ? v : junk));
        expect(maskedSum(other, given.mask)).toBe(maskedSum(given.values, given.mask));
        expect(maskedMean(other, given.mask)).toBe(maskedMean(given.values, given.mask));
      }),
    );
  });

  test("leave the plain statistics of the rest", () => {
    fc.assert(
      fc.property(masked, (given) => {
        const rest = kept(given);
        const ones = rest.map(() => 1);
        expect(maskedSum(given.values, given.mask)).toBe(maskedSum(rest, ones));
        expect(maskedMean(given.values, given.mask)).toBe(maskedMean(rest, ones));
      }),
    );
  });
});

describe("too few entries", () => {
  test("an empty mask has sum and mean 0", () => {
    expect(maskedSum([1, 2], [0, 0])).toBe(0);
    expect(maskedMean([1, 2], [0, 0])).toBe(0);
    expect(maskedMean([], [])).toBe(0);
  });
});
