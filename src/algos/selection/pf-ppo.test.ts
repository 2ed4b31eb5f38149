/** Laws of redrawing a batch from itself. */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { defaultsOf } from "../../util/field.ts";
import { Random } from "../../util/random.ts";
import { drawRows, pfPpo, pfPpoFields, samplingWeights } from "./pf-ppo.ts";
import { allRows } from "./row-selection.ts";

const { pf_ppo: pfPpoDefaults } = defaultsOf(pfPpoFields);

describe("weights", () => {
  const scores = [-2, 0, 1, 2, -2];
  test.each([
    ["pow", [4, 0, 1, 4, 4]],
    ["max_min", [1, 0, 0, 1, 1]],
    ["max_random", [0.1, 0.1, 0.1, 0.4, 0.1]],
  ])("%s", (reweight_method, expected) => {
    const weights = samplingWeights(scores, { reweight_method, weight_pow: 2 });
    expect([...weights]).toEqual(expected.map((weight) => expect.closeTo(weight, 7)));
    expect(weights.every((weight) => weight > 0)).toBe(true);
  });

  test.each([
    [[1], { reweight_method: "max-min", weight_pow: 2 }, 'Did you mean "max_min"'],
    [[1, Number.NaN], pfPpoDefaults, "The score of row 1 is NaN."],
    [[1e300], pfPpoDefaults, "The score 1e+300 of row 0"],
    [[0], { ...pfPpoDefaults, weight_pow: -1 }, "The score 0 of row 0"],
  ])("%o %o is refused", (given, config, message) => {
    expect(() => samplingWeights(given, config)).toThrow(message);
  });
});

describe("draws", () => {
  test("are rows of the batch, as many as it has, and the same for the same seed", () => {
    fc.assert(
      fc.property(fc.array(fc.double({ min: -5, max: 5, noNaN: true })), fc.nat(), (scores, seed) => {
        const weights = samplingWeights(scores, pfPpoDefaults);
        const drawn = drawRows(weights, new Random(seed));
        expect(drawn).toHaveLength(scores.length);
        expect(drawn.every((row) => row >= 0 && row < scores.length)).toBe(true);
        expect(drawRows(weights, new Random(seed))).toEqual(drawn);
      }),
    );
  });

  test("are what a run selects; without PF-PPO that is every row, once", () => {
    const scores = [0, 3, -1, 2];
    const drawn = drawRows(samplingWeights(scores, pfPpoDefaults), new Random(5));
    expect(pfPpo(pfPpoDefaults).select(scores, new Random(5))).toEqual([...drawn]);
    expect(allRows.select(scores, new Random(5))).toEqual([0, 1, 2, 3]);
  });

  test("take rows as often as their weights say", () => {
    const weights = Float64Array.from([1, 3, 0, 4].flatMap((weight) => Array<number>(1000).fill(weight)));
    const counts = [0, 0, 0, 0];
    for (const row of drawRows(weights, new Random(7))) counts[Math.floor(row / 1000)]!++;
    [500, 1500, 0, 2000].forEach((expected, i) => {
      expect(Math.abs(counts[i]! - expected)).toBeLessThanOrEqual(4 * Math.sqrt(expected));
    });
  });
});
