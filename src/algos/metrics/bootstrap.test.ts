import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { best, drawSamples, estimate, majority, passAtK, type Reduce, worst } from "./bootstrap.ts";

const bootstrap = (count: number, size: number, reduces: readonly Reduce[]) => {
  const samples = drawSamples(count, size);
  return reduces.map((reduce) => estimate(samples.map(reduce)));
};

const all = (values: readonly unknown[]) => Uint32Array.from(values.keys());

describe("bootstrap", () => {
  // np.random.seed(42), 1000 draws, best and worst of k
  test.each([
    [[1, 0, 0, 0], 2, 0.453, 0.072],
    [[1, 0, 0, 0], 4, 0.687, 0.003],
    [[0.2, 0.4, 0.6, 0.8], 2, 0.621, 0.3686],
    [[0.2, 0.4, 0.6, 0.8], 4, 0.7228, 0.2768],
  ])("of %j, %i at a time, gives what numpy's draws give", (values, size, bestMean, worstMean) => {
    const [high, low] = bootstrap(values.length, size, [best(values), worst(values)]);
    expect(high!.mean).toBeCloseTo(bestMean, 10);
    expect(low!.mean).toBeCloseTo(worstMean, 10);
  });

  test("of equal answers has no spread", () => {
    const [one] = bootstrap(3, 3, [best([0.5, 0.5, 0.5])]);
    expect(one).toEqual({ mean: 0.5, std: 0 });
  });

  test("of nothing is refused", () => {
    expect(() => bootstrap(0, 1, [])).toThrow("There are no answers to draw from");
  });
});

describe("majority", () => {
  test.each([
    [["A", "B", "A"], [0.9, 0.8, 0.7], 0.9],
    [["x", "y"], [1, 0], 1],
    [["y", "x", "x", "y"], [0.1, 0.2, 0.3, 0.4], 0.1],
    [["", "7", "7", "", "8"], [0, 1, 1, 0, 0.5], 0],
  ])("of %j with %j is worth %f: the first of the most frequent, ties to the first seen", (votes, values, expected) => {
    expect(majority(values, votes)(all(votes))).toBe(expected);
  });

  test("is the value of a vote that none outnumbers", () => {
    fc.assert(
      fc.property(fc.array(fc.integer({ min: 0, max: 4 }), { minLength: 1 }), (votes) => {
        const winner = majority(votes, votes)(all(votes)); // each vote is worth its own name
        const count = (vote: number) => votes.filter((other) => other === vote).length;
        expect(count(winner)).toBe(Math.max(...votes.map(count)));
        expect(votes.find((vote) => count(vote) === count(winner))).toBe(winner);
      }),
    );
  });
});

describe("passAtK", () => {
  test("is the share of draws without replacement that hold a correct answer", () => {
    expect(passAtK(4, 1, 4)).toBe(1);
    expect(passAtK(4, 1, 2)).toBeCloseTo(0.5);
    expect(passAtK(5, 2, 3)).toBeCloseTo(1 - 1 / 10);
  });

  test("is the mean at 1, 0 without a correct answer, and never falls with k", () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 40 }), fc.nat(), (n, seed) => {
        const correct = seed % (n + 1);
        const chances = Array.from({ length: n }, (_, i) => passAtK(n, correct, i + 1));
        expect(chances[0]).toBeCloseTo(correct / n);
        expect(chances.at(-1)).toBe(correct > 0 ? 1 : 0);
        chances.slice(1).forEach((chance, i) => {
          expect(chance).toBeGreaterThanOrEqual(chances[i]! - 1e-12);
        });
      }),
    );
  });
});
