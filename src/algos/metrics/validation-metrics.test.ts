import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { UserError } from "../../util/errors.ts";
import { processValidationMetrics, type ValidationAnswers, validationMetrics } from "./validation-metrics.ts";

/** Answers to prompts of one data source: the values of `acc` by prompt. */
const answersTo = (...prompts: readonly (readonly number[])[]): ValidationAnswers => ({
  dataSources: prompts.flat().map(() => "math"),
  uids: prompts.flatMap((values, i) => values.map(() => `u${i}`)),
  infos: { acc: prompts.flat() },
});
const metricsOf = (...prompts: readonly (readonly number[])[]) =>
  processValidationMetrics(answersTo(...prompts)).math!.acc!;

describe("processValidationMetrics", () => {
  test("mean@k and std@k are exact", () => {
    fc.assert(
      fc.property(fc.array(fc.integer({ min: -8, max: 8 }), { minLength: 2, maxLength: 5 }), (values) => {
        const mean = values.reduce((a, b) => a + b, 0) / values.length;
        const std = Math.sqrt(values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / values.length);
        const metrics = processValidationMetrics(answersTo(values), { draws: 10 }).math!.acc!;
        expect(metrics[`mean@${values.length}`]).toBeCloseTo(mean, 12);
        expect(metrics[`std@${values.length}`]).toBeCloseTo(std, 12);
      }),
    );
  });

  test("k goes through the powers of two below the number of answers, and ends with it", () => {
    const names = Object.keys(metricsOf(Array(6).fill(0.5))).filter(
      (name) => name.startsWith("best") && name.endsWith("mean"),
    );
    expect(names).toEqual(["best@2/mean", "best@4/mean", "best@6/mean"]);
  });

  test("one answer has a mean and nothing else", () => {
    expect(metricsOf([1], [0])).toEqual({ "mean@1": 0.5 });
  });

  test("a metric is averaged over the prompts that have it", () => {
    expect(metricsOf([1, 1], [0, 0, 0])).toMatchObject({
      "mean@2": 1,
      "mean@3": 0,
      "best@2/mean": 0.5,
      "best@3/mean": 0,
    });
  });

  test("the order of prompts changes nothing", () => {
    const [forth, back] = [metricsOf([1, 0, 0], [0, 1, 1]), metricsOf([0, 1, 1], [1, 0, 0])];
    for (const [name, value] of Object.entries(forth)) expect(back[name], name).toBeCloseTo(value, 12);
  });

  test("best is not below the mean, nor worst above it, and pass is not below best", () => {
    const metrics = metricsOf([1, 0, 0, 1], [0, 0, 0, 1]);
    expect(metrics["best@4/mean"]).toBeGreaterThan(metrics["mean@4"]!);
    expect(metrics["worst@4/mean"]).toBeLessThan(metrics["mean@4"]!);
    expect(metrics["pass@4"]).toBe(1);
    expect(metrics["pass@2"]).toBeGreaterThan(metrics["best@2/mean"]!);
  });

  test("only right and wrong have pass@k", () => {
    expect(Object.keys(metricsOf([1, 0.5])).join(" ")).not.toContain("pass");
  });

  test("texts are no variables, and votes are counted where all answers have one", () => {
    const answers = answersTo([1, 1, 0]);
    const withPred = (pred: readonly (string | null)[]) =>
      processValidationMetrics({ ...answers, infos: { ...answers.infos, pred } }).math!;
    expect(withPred(["7", "7", "8"])).not.toHaveProperty("pred");
    expect(withPred(["7", "7", "8"]).acc).toHaveProperty(["maj@3/mean"]);
    expect(withPred(["7", null, "8"]).acc).not.toHaveProperty(["maj@3/mean"]);
  });

  test("values that are not known are left out, and a source without any has no such metric", () => {
    const answers: ValidationAnswers = {
      dataSources: ["a", "a", "a", "b"],
      uids: ["1", "1", "2", "3"],
      infos: { acc: [1, null, null, null], reward: [true, false, true, true] },
    };
    expect(processValidationMetrics(answers)).toMatchObject({
      a: { acc: { "mean@1": 1 } },
      b: { reward: { "mean@1": 1 } },
    });
    expect(processValidationMetrics(answers).b).not.toHaveProperty("acc");
  });

  test("no answers have no metrics", () => {
    expect(validationMetrics({ dataSources: [], uids: [], infos: { acc: [] } })).toEqual({});
  });

  test.each([
    ["lists of different lengths", { infos: { acc: [1] } }, "`acc` has 1 entries where there are 2 answers"],
    ["a NaN score", { infos: { acc: [1, Number.NaN] } }, "`acc` of answer 1 is NaN"],
  ])("refuses %s", (_, change, message) => {
    const compute = () => processValidationMetrics({ ...answersTo([1, 0]), ...change });
    expect(compute).toThrow(message);
    expect(compute).toThrow(UserError);
  });
});

describe("validationMetrics", () => {
  test("the core is mean, maj and best of all answers, of acc where there is one", () => {
    const answers = { ...answersTo([1, 0, 1, 1]), turns: [2, 2, 4, 2] };
    const infos = { ...answers.infos, reward: [0.5, 0, 1, 1], pred: ["1", "2", "1", "1"] };
    const names = Object.keys(validationMetrics({ ...answers, infos }));
    expect(names.filter((name) => name.startsWith("val-core")).sort()).toEqual([
      "val-core/math/acc/best@4/mean",
      "val-core/math/acc/best@4/std",
      "val-core/math/acc/maj@4/mean",
      "val-core/math/acc/maj@4/std",
      "val-core/math/acc/mean@4",
    ]);
    expect(names).toContain("val-aux/math/reward/mean@4");
    expect(names).toContain("val-aux/math/acc/worst@4/mean");
    expect(names).toContain("val-aux/num_turns/max");
  });

  test("without acc the core is the reward", () => {
    const { dataSources, uids, infos } = answersTo([1]);
    expect(validationMetrics({ dataSources, uids, infos: { reward: infos.acc! } })).toEqual({
      "val-core/math/reward/mean@1": 1,
    });
  });
});
