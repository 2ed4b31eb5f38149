import { expect, test } from "vitest";
import { throughputMetrics, timingMetrics } from "./timing-metrics.ts";

test("gen is per response token, other sections per token", () => {
  const seconds = { gen: 0.5, ref: 0.3, step: 2 };
  expect(timingMetrics(seconds, { promptTokens: 6, responseTokens: 6 })).toEqual({
    "timing_s/gen": 0.5,
    "timing_s/ref": 0.3,
    "timing_s/step": 2,
    "timing_per_token_ms/gen": 500 / 6,
    "timing_per_token_ms/ref": 25,
  });
});

test("no tokens give 0, not infinity", () => {
  const metrics = timingMetrics({ gen: 1, adv: 1 }, { promptTokens: 0, responseTokens: 0 });
  expect(metrics).toMatchObject({ "timing_per_token_ms/gen": 0, "timing_per_token_ms/adv": 0 });
});

test("throughput is per second and worker", () => {
  const step = { tokens: 600, stepSeconds: 2 };
  expect(throughputMetrics(step)["perf/throughput"]).toBe(300);
  expect(throughputMetrics({ ...step, workers: 2 })["perf/throughput"]).toBe(150);
  expect(throughputMetrics(step)).toMatchObject({ "perf/total_num_tokens": 600, "perf/time_per_step": 2 });
});

test("a step of no duration has no throughput", () => {
  expect(throughputMetrics({ tokens: 3, stepSeconds: 0 })).not.toHaveProperty("perf/throughput");
});
