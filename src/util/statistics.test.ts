import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { maskedMean, maskedSum, maskedVar, maskedWhiten } from "./statistics.ts";

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
        if (kept(given).length < 2) return;
        expect(maskedVar(other, given.mask)).toBe(maskedVar(given.values, given.mask));
        const [a, b] = [other, given.values].map((values) => maskedWhiten(values, given.mask));
        expect(kept({ values: [...a!], mask: given.mask })).toEqual(kept({ values: [...b!], mask: given.mask }));
      }),
    );
  });

  test("leave the plain statistics of the rest", () => {
    fc.assert(
      fc.property(masked, (given) => {
        const rest = kept(given);
        const ones = rest.map(() => 1);
        expect(maskedSum(given.values, given.mask)).toBe(maskedSum(rest, ones));
        if (rest.length > 0) {
          expect(maskedVar(given.values, given.mask, { unbiased: false })).toBe(
            maskedVar(rest, ones, { unbiased: false }),
          );
        }
      }),
    );
  });
});

test("whitened values that count have mean 0 and variance 1", () => {
  fc.assert(
    fc.property(masked, (given) => {
      if (kept(given).length < 2 || maskedVar(given.values, given.mask) < 1e-3) return;
      const white = maskedWhiten(given.values, given.mask);
      expect(maskedMean(white, given.mask)).toBeCloseTo(0, 6);
      expect(maskedVar(white, given.mask)).toBeCloseTo(1, 4);
      const unshifted = maskedWhiten(given.values, given.mask, { shiftMean: false });
      expect(maskedMean(unshifted, given.mask)).toBeCloseTo(maskedMean(given.values, given.mask), 6);
    }),
  );
});

test("the whitening of 1, 2, 3, 4 is known", () => {
  const white = [...maskedWhiten([1, 2, 3, 4], [1, 1, 1, 1])];
  expect(white.map((v) => v.toFixed(6))).toEqual(["-1.161895", "-0.387298", "0.387298", "1.161895"]);
});

describe("too few entries", () => {
  test("an empty mask has sum and mean 0", () => {
    expect(maskedSum([1, 2], [0, 0])).toBe(0);
    expect(maskedMean([1, 2], [0, 0])).toBe(0);
    expect(maskedMean([], [])).toBe(0);
  });

  test.each([[[0, 0, 0]], [[0, 1, 0]]])("a mask of %j leaves the values unwhitened", (mask) => {
    expect([...maskedWhiten([5, 6, 7], mask)]).toEqual([5, 6, 7]);
  });

  test("a variance without degrees of freedom is refused, with the number of tokens in the message", () => {
    expect(() => maskedVar([1, 2], [0, 1])).toThrow("The variance of 1 tokens is not defined: it takes at least 2");
    expect(() => maskedVar([1, 2], [0, 0], { unbiased: false })).toThrow("of 0 tokens");
    expect(maskedVar([1, 2], [0, 1], { unbiased: false })).toBe(0);
  });

  test("equal values are whitened to 0, not to NaN", () => {
    expect([...maskedWhiten([3, 3, 3], [1, 1, 1])]).toEqual([0, 0, 0]);
  });
});
