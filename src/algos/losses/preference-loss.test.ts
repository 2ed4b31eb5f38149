import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { bradleyTerry, type PairScores } from "./preference-loss.ts";

const score = fc.double({ min: -30, max: 30, noNaN: true });
const pairs = fc.array(fc.tuple(score, score, fc.double({ min: 0, max: 5, noNaN: true })), {
  minLength: 1,
  maxLength: 6,
});
const scoresOf = (drawn: readonly (readonly [number, number, number])[]): PairScores => ({
  chosen: drawn.map(([chosen]) => chosen),
  rejected: drawn.map(([, rejected]) => rejected),
  margins: drawn.map(([, , margin]) => margin),
});
const lossOf = (scores: PairScores): number => bradleyTerry(scores).metrics.loss;

test("the weights are the derivatives of the loss by each score", () => {
  fc.assert(
    fc.property(pairs, (drawn) => {
      const scores = scoresOf(drawn);
      const { chosenWeights, rejectedWeights } = bradleyTerry(scores);
      const h = 1e-5;
      for (const [side, weights] of [
        ["chosen", chosenWeights],
        ["rejected", rejectedWeights],
      ] as const) {
        drawn.forEach((_, i) => {
          const moved = (by: number) =>
            lossOf({ ...scores, [side]: Array.from(scores[side], (s, k) => (k === i ? s + by : s)) });
          expect(weights[i]).toBeCloseTo((moved(h) - moved(-h)) / (2 * h), 6);
        });
      }
    }),
  );
});

test("the two weights of a pair cancel, so adding one number to every score changes nothing", () => {
  fc.assert(
    fc.property(pairs, score, (drawn, shift) => {
      const scores = scoresOf(drawn);
      const { chosenWeights, rejectedWeights, metrics } = bradleyTerry(scores);
      chosenWeights.forEach((weight, i) => {
        expect(weight + rejectedWeights[i]!).toBe(0);
      });
      const move = (values: ArrayLike<number>) => Array.from(values, (value) => value + shift);
      const moved = { ...scores, chosen: move(scores.chosen), rejected: move(scores.rejected) };
      expect(lossOf(moved)).toBeCloseTo(metrics.loss, 9);
    }),
  );
});

// torch: -F.logsigmoid(chosen - rejected - margin), and its gradient by the chosen score.
describe("one pair", () => {
  const cases: readonly [lead: number, margin: number, loss: number, weight: number][] = [
    [0, 0, Math.LN2, -0.5],
    [1, 0, 0.31326168751822286, -0.2689414213699951],
    [-1, 0, 1.3132616875182228, -0.7310585786300049],
    [3, 2, 0.31326168751822286, -0.2689414213699951],
    [800, 0, 0, -0],
    [-800, 0, 800, -1],
  ];
  test.each(cases)("with a lead of %d and a margin of %d has the loss %d", (lead, margin, loss, weight) => {
    const result = bradleyTerry({ chosen: [lead + 2], rejected: [2], margins: [margin] });
    expect(result.metrics.loss).toBeCloseTo(loss, 12);
    expect(result.chosenWeights[0]).toBeCloseTo(weight, 12);
  });
});

test("metrics are means over pairs, and a tie is not ranked right", () => {
  const { metrics } = bradleyTerry({ chosen: [3, 1, 2, 0], rejected: [1, 2, 2, -4], margins: [0, 0, 0, 10] });
  expect(metrics).toMatchObject({ accuracy: 0.5, margin: 1.25, chosen_score: 1.5, rejected_score: 0.25 });
});
