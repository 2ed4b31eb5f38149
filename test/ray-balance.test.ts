/** What several workers change in the order and the metrics of a step. TRAINYARD_TEST_PYTHON names an interpreter with ray. */
import { readFile } from "node:fs/promises";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { hasRay, playOnRay } from "./ray-yard.ts";
import { Yard } from "./rl-yard.ts";

let yard: Yard;
beforeAll(async () => {
  yard = await Yard.make();
});
afterAll(() => yard.remove());

test("the embedded engine is one worker, whatever the cluster's keys are", async () => {
  await yard.play("plain", ["trainer.total_training_steps=1"]);
  await yard.play("keys", ["trainer.total_training_steps=1", "trainer.n_gpus_per_node=8", "trainer.nnodes=2"]);
  const [plain] = await yard.metrics("plain");
  expect(await yard.metrics("keys")).toEqual([plain]);
  expect(plain!["global_seqlen/mean"]).toBe(plain!["global_seqlen/max"]);
});

describe.skipIf(!hasRay)("on Ray (needs Python with ray)", { timeout: 180_000 }, () => {
  test("throughput is per worker, and the batch is balanced among all workers", async () => {
    await playOnRay(yard, "two", [
      "trainer.total_training_steps=1",
      "trainer.engine=ray",
      "trainer.n_gpus_per_node=2",
      "ray_kwargs.ray_init.num_cpus=3",
      `ray_kwargs.timeline_json_file=${yard.path("traces", "two.json")}`,
    ]);
    const [data] = await yard.metrics("two", { withTimings: true });
    const metric = (name: string) => data![name]!;
    const total = metric("perf/total_num_tokens");
    expect(metric("global_seqlen/mean")).toBe(total / 2);
    expect(metric("global_seqlen/min") + metric("global_seqlen/max")).toBe(total);
    expect(metric("global_seqlen/balanced_min") + metric("global_seqlen/balanced_max")).toBe(total);
    const spread = metric("global_seqlen/balanced_max") - metric("global_seqlen/balanced_min");
    expect(spread).toBeLessThanOrEqual(metric("global_seqlen/minmax_diff"));
    expect(metric("perf/throughput")).toBeCloseTo(total / (2 * metric("perf/time_per_step")), 6);
    expect(metric("actor/grad_norm")).toBeGreaterThan(0);

    const events = JSON.parse(await readFile(yard.path("traces", "two.json"), "utf8")) as Record<string, unknown>[];
    for (const method of ["load", "sample", "forward", "backward", "step", "save"]) {
      const calls = events.filter(({ cat }) => cat === `task::${method}`);
      expect(new Set(calls.map(({ tid }) => tid)).size, `workers that ${method}`).toBe(2);
    }
  });
});
