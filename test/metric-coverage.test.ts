/**
 * Every metric of docs/metrics.md is logged by a run, and every metric that a run logs is in docs/metrics.md.
 *
 * A few tiny runs of `ppo`, `sft` and `reward` log all of them together. What no run of the embedded engine logs yet is
 * listed below with the reason; a name that is logged must leave that list.
 */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { criteria } from "../src/algos/correction/rejection.ts";
import { findMetric, patternOf } from "../src/algos/metrics/reference.ts";
import { metricTable } from "../src/algos/metrics/table.ts";
import { chartsOf } from "../src/dashboard/page/catalogue.ts";
import type { RewardFunction } from "../src/rewards/reward.ts";
import { namesOf } from "./metric-names.ts";
import { sevens, Yard } from "./rl-yard.ts";
import { Sandbox } from "./sandbox.ts";

/** Metrics of features that are not here yet. */
const notYet: Readonly<Record<string, string>> = {
  "tool_call_counts/{mean,max,min}": "episodes with tools",
};

const actor = "actor_rollout_ref.actor";
const rollout = "actor_rollout_ref.rollout";
const correction = "algorithm.rollout_correction";

const options = Object.keys(criteria);
const cutOff = `${rollout}.top_k=3`;
const one = "trainer.total_training_steps=1";

/** The runs, by what they have; two steps where a metric is logged with the step after. */
const runs: Readonly<Record<string, readonly string[]>> = {
  critic: [
    "algorithm.adv_estimator=gae",
    "algorithm.use_kl_in_reward=true",
    `${actor}.use_kl_loss=true`,
    `${actor}.entropy_coeff=0.01`,
    `${actor}.calculate_sum_pi_squared=true`,
    `${rollout}.val_kwargs.n=4`,
    `${rollout}.val_kwargs.do_sample=true`,
    `${rollout}.val_kwargs.temperature=1`,
    "trainer.test_freq=2",
    "trainer.save_freq=1",
  ],
  baseline: ["algorithm.adv_estimator=remax", `${rollout}.n=1`, one],
  icepop: [one, cutOff, `${correction}.rollout_is=token`, `${correction}.rollout_is_threshold=0.5_5.0`],
  normalised: [one, cutOff, `${correction}.rollout_is=sequence`, `${correction}.rollout_is_batch_normalize=true`],
  options: [
    one,
    cutOff,
    `${correction}.rollout_rs='${options.join(",")}'`,
    `${correction}.rollout_rs_threshold='${options.map((name) => (name.endsWith("k1") ? "0.001_1000" : "1000")).join(",")}'`,
  ],
  levels: [
    one,
    cutOff,
    `${correction}.version=0.7`,
    `${correction}.rollout_rs=token`,
    `${correction}.rollout_rs_threshold=50`,
  ],
};

/** A reward with every kind of column that validation looks at. */
const reward: RewardFunction = async (input) => {
  const score = await sevens(input);
  return { ...(typeof score === "object" ? score : { score }), pred: input.response.slice(0, 1) };
};

let yard: Yard;
let box: Sandbox;
const logged = new Map<string, string[]>();
const all = (): string[] => [...new Set([...logged.values()].flat())];

beforeAll(async () => {
  [yard, box] = [await Yard.make(), await Sandbox.make()];
  for (const [name, keys] of Object.entries(runs)) {
    const files = [`data.val_files=${yard.validation}`, `trainer.rollout_data_dir=${yard.path(name, "samples")}`];
    await yard.play(name, [...files, ...keys], reward);
    const metrics = await yard.metrics(name, { withTimings: true });
    logged.set(name, [...new Set(metrics.flatMap((data) => Object.keys(data)))]);
  }
  const quiet = ["trainer.logger=[]", "trainer.total_training_steps=2", "trainer.save_freq=1"];
  expect((await box.sft("sft", ...quiet)).code).toBe(0);
  const pairs = Array.from({ length: 16 }, (_, i) => ({ prompt: `Say ${i}`, chosen: "Yes.", rejected: "No." }));
  const trained = await box.command(
    "reward",
    `model.path=${box.model}`,
    `data.train_files=${await box.writeLines("pairs.jsonl", pairs)}`,
    "data.val_size=4",
    "data.train_batch_size=4",
    "data.max_length=128",
    "trainer.threads=1",
    `trainer.default_local_dir=${box.path("reward")}`,
    ...quiet,
  );
  expect(trained.code, trained.said).toBe(0);
  for (const name of ["sft", "reward"]) {
    const metrics = await box.metrics(name, { withTimings: true });
    logged.set(name, [...new Set(metrics.flatMap((data) => Object.keys(data)))]);
  }
}, 120_000);
afterAll(() => {
  yard.remove();
  box.remove();
});

describe("docs/metrics.md", () => {
  const rows = metricTable.flatMap((section) => section.rows);

  test("has no metric that no run logs", () => {
    const names = rows.filter(({ name }) => !Object.hasOwn(notYet, name)).flatMap(({ name }) => namesOf(name));
    const missing = names.filter((name) => !all().some((it) => patternOf(name).test(it)));
    expect(missing).toEqual([]);
  });

  test("has every metric that a run logs", () => {
    expect(all().filter((name) => findMetric(name) === null)).toEqual([]);
  });

  test("says nothing of a metric that is not there yet but is logged", () => {
    const there = Object.keys(notYet).filter((name) => namesOf(name).some((it) => all().includes(it)));
    expect(there).toEqual([]);
    for (const name of Object.keys(notYet)) expect(rows.map((row) => row.name)).toContain(name);
  });
});

test("a single answer is two turns, as verl counts, in training and in validation", async () => {
  const metrics = await yard.metrics("critic");
  expect(metrics.map((data) => data["num_turns/mean"])).toEqual([undefined, 2, 2]); // the first line is a validation
  expect(metrics.at(-1)!["val-aux/num_turns/max"]).toBe(2);
});

test("sections of a step do not overlap, and the time of a checkpoint is logged with the step after it", async () => {
  const metrics = await yard.metrics("critic", { withTimings: true });
  for (const data of metrics.slice(1)) {
    const sections = Object.keys(data).filter((name) => /^timing_s\/(?!step|testing|save_checkpoint)/.test(name));
    expect(sections).toContain("timing_s/reward");
    const total = sections.reduce((sum, name) => sum + data[name]!, 0);
    for (const name of sections) expect(data[name], name).toBeGreaterThanOrEqual(0);
    expect(total).toBeLessThanOrEqual(data["timing_s/step"]!);
  }
  expect(metrics.map((data) => "timing_s/save_checkpoint" in data)).toEqual([false, false, true]);
});

test("`timing_s/reward` is the wait for scores after the last response", async () => {
  const slow: RewardFunction = async (input) => {
    await new Promise((resolve) => setTimeout(resolve, 300));
    return sevens(input);
  };
  await yard.play("slow", [one], slow);
  const [data] = await yard.metrics("slow", { withTimings: true });
  expect(data!["timing_s/reward"]).toBeGreaterThan(0.25);
  expect(data!["timing_s/gen"]).toBeLessThan(data!["timing_s/step"]! - 0.25);
});

test("what the machine is used for: shares of its peak and memory, with a chart in the dashboard", async () => {
  const [, data] = await yard.metrics("critic", { withTimings: true });
  for (const name of ["actor", "critic", "actor_infer"]) {
    expect(data![`perf/mfu/${name}`], name).toBeGreaterThan(0);
    expect(data![`perf/mfu/${name}`], name).toBeLessThan(1);
  }
  const peak = data!["perf/max_memory_allocated_gb"]!;
  expect(peak).toBeGreaterThan(0.05);
  expect(peak).toBeLessThan(64);
  const memory = chartsOf(logged.get("critic")!).find(({ title }) => title === "Memory");
  expect(memory?.series.map(({ name }) => name)).toEqual(["perf/max_memory_allocated_gb", "perf/cpu_memory_used_gb"]);
});

test("the coefficient of the KL loss and the proxies of the gradient's variance are those of the step", async () => {
  const data = (await yard.metrics("critic")).at(-1)!;
  expect(data["actor/kl_coef"]).toBe(0.001);
  const { "variance_proxy/proxy1_signal_strength": signal, "actor/grad_norm": norm } = data;
  expect(signal).toBeCloseTo(norm! ** 2, 9);
});

test("`trainer.console=verl` prints verl's line for each step of `ppo`", async () => {
  const lines: string[] = [];
  const { stdout } = process;
  const write = stdout.write;
  stdout.write = (chunk: string | Uint8Array) => lines.push(String(chunk)) > 0;
  try {
    await yard.play("lines", ["trainer.logger=[console]", "trainer.console=verl"]);
  } finally {
    stdout.write = write;
  }
  const steps = lines
    .join("")
    .split("\n")
    .filter((line) => line.startsWith("step:"));
  expect(steps).toHaveLength(2);
  // As verl's check_results.py reads it.
  for (const line of steps) expect(line).toMatch(/^step:\d - .*critic\/rewards\/mean:\d\.\d+ - /);
});
