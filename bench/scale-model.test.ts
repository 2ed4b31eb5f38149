import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { exchangeSeconds, fitCalls, type Measured, simulate } from "./scale-model.ts";

const measured: Measured = {
  calls: [1, 2, 4].map((workers) => ({ workers, seconds: 0.002 + 0.0005 * workers })),
  step: 10,
  spread: 0,
  rounds: 2,
  parameters: 1e8,
  layers: 10,
};
const network = { bytesPerSecond: 1e10, latency: 1e-5 };

test("a line is found again from its points, whatever their order", () => {
  const value = fc.double({ min: 0, max: 1, noNaN: true });
  fc.assert(
    fc.property(value, value, (fixed, each) => {
      const points = [8, 1, 4, 2].map((workers) => ({ workers, seconds: fixed + each * workers }));
      const fit = fitCalls(points);
      expect(fit.fixed).toBeCloseTo(fixed, 9);
      expect(fit.each).toBeCloseTo(each, 9);
    }),
  );
});

describe("a simulated step", () => {
  test("is, on one worker that never varies, the measured one and its calls", () => {
    const { seconds, parts } = simulate(measured, 1, network);
    expect(parts).toMatchObject({ work: 10, waiting: expect.closeTo(0, 9), exchange: 0 });
    expect(seconds).toBeCloseTo(10 + 5 * 0.0025, 9);
  });

  test("waits longer the more workers there are, and the more they vary", () => {
    const waits = (spread: number) =>
      [1, 8, 64, 512].map((workers) => simulate({ ...measured, spread }, workers, network).parts.waiting);
    for (const spread of [0.02, 0.1]) {
      const few = waits(spread);
      expect(few.toSorted((a, b) => a - b)).toEqual(few);
      expect(few[0]!).toBeLessThan(0.05 * few[3]! + 0.05);
    }
    expect(waits(0.1)[3]!).toBeGreaterThan(3 * waits(0.02)[3]!);
  });

  test("exchanges the same bytes per worker on any number of them, but for the ring's last part", () => {
    const still = { ...network, latency: 0 };
    expect(exchangeSeconds(measured, 1000, still) / exchangeSeconds(measured, 2, still)).toBeCloseTo(2, 2);
  });
});
