/** Laws of the learning-rate schedules; their values are verl's by the goldens of topic torch_functional. */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { learningRate, type Schedule } from "./schedule.ts";

const share = fc.double({ min: 0, max: 1, noNaN: true });
const schedules = fc.record({
  type: fc.constantFrom<Schedule["type"][]>("constant", "cosine", "wsd"),
  lr: fc.double({ min: 1e-8, max: 1, noNaN: true }),
  warmupSteps: fc.integer({ min: 0, max: 20 }),
  totalSteps: fc.integer({ min: 1, max: 60 }),
  minRatio: share,
  initRatio: share,
  stableRatio: share,
});
const rates = (schedule: Schedule, count = 90) =>
  Array.from({ length: count }, (_, step) => learningRate(schedule, step));

describe("any schedule", () => {
  test("stays between 0 and its rate", () => {
    fc.assert(
      fc.property(schedules, (schedule) => {
        for (const rate of rates(schedule)) {
          expect(rate).toBeGreaterThanOrEqual(0);
          expect(rate).toBeLessThanOrEqual(schedule.lr * (1 + 1e-12));
        }
      }),
    );
  });

  test("is proportional to its rate", () => {
    fc.assert(
      fc.property(schedules, (schedule) => {
        const unit = rates({ ...schedule, lr: 1 });
        for (const [step, rate] of rates(schedule).entries()) expect(rate).toBeCloseTo(unit[step]! * schedule.lr, 12);
      }),
    );
  });

  test("rises in equal steps from its initial share until the warm-up is over", () => {
    fc.assert(
      fc.property(schedules, (schedule) => {
        const { lr, warmupSteps, initRatio } = schedule;
        for (let step = 0; step < warmupSteps; step++) {
          const expected = lr * (initRatio + ((1 - initRatio) * step) / warmupSteps);
          expect(learningRate(schedule, step)).toBeCloseTo(expected, 12);
        }
      }),
    );
  });

  test("never rises once the warm-up is over, and never falls below its lowest share", () => {
    fc.assert(
      fc.property(schedules, (schedule) => {
        const after = rates(schedule).slice(schedule.warmupSteps);
        after.forEach((rate, i) => {
          if (i > 0) expect(rate).toBeLessThanOrEqual(after[i - 1]! * (1 + 1e-12));
          expect(rate).toBeGreaterThanOrEqual(schedule.lr * schedule.minRatio * (1 - 1e-12));
        });
      }),
    );
  });

  test("holds its last value past the end", () => {
    fc.assert(
      fc.property(schedules, (schedule) => {
        fc.pre(schedule.warmupSteps < schedule.totalSteps);
        const last = schedule.totalSteps;
        for (const later of [1, 2, 1000]) {
          expect(learningRate(schedule, last + later)).toBe(learningRate(schedule, last));
        }
      }),
    );
  });
});

test("cosine and wsd end at their lowest share", () => {
  for (const type of ["cosine", "wsd"] as const) {
    const schedule: Schedule = { type, lr: 2, warmupSteps: 3, totalSteps: 12, minRatio: 0.25 };
    expect(learningRate(schedule, 12)).toBeCloseTo(0.5, 12);
  }
});

test("a cosine of several cycles comes back up to the full rate", () => {
  const schedule: Schedule = { type: "cosine", lr: 1, warmupSteps: 0, totalSteps: 30, cycles: 1.5 };
  expect(learningRate(schedule, 10)).toBeCloseTo(0, 12);
  expect(learningRate(schedule, 20)).toBeCloseTo(1, 12);
  expect(learningRate(schedule, 30)).toBeCloseTo(0, 12);
});

test("wsd keeps the full rate for its stable share", () => {
  const schedule: Schedule = { type: "wsd", lr: 1, warmupSteps: 2, totalSteps: 12, stableRatio: 0.5 };
  expect(rates(schedule, 13).filter((rate) => rate === 1)).toHaveLength(6); // steps 2 to 7; at 8 the wave begins at 0.9
});
