import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { evenly, latest, smooth, thin, weightFor } from "./series.ts";

const value = fc.double({ min: -1e6, max: 1e6, noNaN: true });
const values = fc.array(fc.oneof(value, fc.constant(Number.NaN)), { maxLength: 60 });
const present = (all: ArrayLike<number>) => Array.from(all).filter((it) => !Number.isNaN(it));

describe("smoothing", () => {
  const amounts = fc.double({ min: 0, max: 0.99, noNaN: true });

  test("stays within the values, and leaves gaps where they are", () => {
    fc.assert(
      fc.property(values, amounts, (all, amount) => {
        const [low, high] = [Math.min(...present(all)), Math.max(...present(all))];
        for (const [i, it] of smooth(all, amount).entries()) {
          expect(Number.isNaN(it)).toBe(Number.isNaN(all[i]!));
          if (Number.isNaN(it)) continue;
          expect(it).toBeGreaterThanOrEqual(low - 1e-6);
          expect(it).toBeLessThanOrEqual(high + 1e-6);
        }
      }),
    );
  });

  test("with weight 0 changes nothing", () => {
    fc.assert(
      fc.property(values, (all) => {
        for (const [i, it] of smooth(all, 0).entries()) expect(Object.is(it, all[i]) || it === all[i]).toBe(true);
      }),
    );
  });

  test("does not lag: read backwards it is the same, and the middle of a straight line stays on it", () => {
    fc.assert(
      fc.property(values, amounts, (all, amount) => {
        const [forth, back] = [smooth(all, amount), smooth([...all].reverse(), amount).reverse()];
        for (const [i, it] of forth.entries()) if (!Number.isNaN(it)) expect(it).toBeCloseTo(back[i]!, 5);
      }),
    );
    expect(
      smooth(
        Array.from({ length: 101 }, (_, i) => i),
        0.9,
      )[50],
    ).toBeCloseTo(50);
  });

  test("gaps do not count as values", () => {
    const { NaN: gap } = Number;
    const whole = smooth([1, 2, 3], 0.5);
    expect(present(smooth([1, gap, gap, 2, gap, 3], 0.5))).toEqual([...whole]);
  });

  test("has the asked weight at 150 points, more for more points, less for fewer", () => {
    expect(weightFor(0.6, 150)).toBeCloseTo(0.6);
    expect(weightFor(0.6, 10_000)).toBeGreaterThan(0.98);
    expect(weightFor(0.6, 10)).toBeLessThan(0.01);
    for (const count of [0, 1, 10_000]) expect(weightFor(0, count)).toBe(0);
  });
});

describe("thinning out", () => {
  test("keeps order, range and mean, and never gives more than asked for", () => {
    fc.assert(
      fc.property(values, fc.integer({ min: 1, max: 20 }), (all, count) => {
        const some = present(all);
        const few = thin(all, count);
        expect(few.length).toBe(Math.min(some.length, count));
        for (const it of few) {
          expect(it).toBeGreaterThanOrEqual(Math.min(...some) - 1e-6);
          expect(it).toBeLessThanOrEqual(Math.max(...some) + 1e-6);
        }
        const isRising = some.every((it, i) => i === 0 || it >= some[i - 1]!);
        if (isRising) expect([...few].sort((a, b) => a - b)).toEqual(few);
      }),
    );
    expect(thin([1, 2, 3, 4], 2)).toEqual([1.5, 3.5]);
  });

  test("picks places at even distances, with the first and the last", () => {
    fc.assert(
      fc.property(fc.nat(500), fc.integer({ min: 2, max: 30 }), (length, count) => {
        const places = evenly(length, count);
        expect(places.length).toBe(Math.min(length, count));
        expect(new Set(places).size).toBe(places.length);
        if (length > 0) expect([places[0], places.at(-1)]).toEqual([0, length - 1]);
        const gaps = places.slice(1).map((place, i) => place - places[i]!);
        if (gaps.length > 0) expect(Math.max(...gaps) - Math.min(...gaps)).toBeLessThanOrEqual(1);
      }),
    );
  });
});

test("the latest value is the last one that is not missing", () => {
  expect(latest([1, 2, Number.NaN])).toBe(2);
  expect(latest([])).toBeNaN();
});
