import { existsSync, readdirSync, readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { namesOf } from "../../../test/metric-names.ts";
import { balanceMetrics } from "../balancing/balancing.ts";
import { dataMetrics } from "./data-metrics.ts";
import { findMetric, metricReference, patternOf } from "./reference.ts";
import { samplerAgreement } from "./sampler-agreement.ts";
import { metricTable } from "./table.ts";
import { throughputMetrics, timingMetrics } from "./timing-metrics.ts";
import { validationMetrics } from "./validation-metrics.ts";
import { varianceProxies } from "./variance-proxy.ts";

const rows = [
  [0.5, 1],
  [0.25, 0.5],
];
const mask = [
  [1, 1],
  [1, 1],
];
const logprobs = rows.map((row) => row.map((p) => Math.log(p)));
const lengths = { promptLengths: [1, 2], responseLengths: [2, 2], turns: [1, 2], toolCalls: [0, 1] };

/** All sections of a step. */
const sections = [
  ...["gen", "gen_max", "reward", "old_log_prob", "ref", "values", "adv", "update_critic", "update_actor"],
  ...["update_weights", "dump_rollout_generations", "testing", "save_checkpoint", "step"],
];

/** What each file of this room returns when nothing is missing. */
const produced: Readonly<Record<string, readonly string[]>> = Object.fromEntries(
  Object.entries({
    "algos/metrics/data-metrics.ts": dataMetrics(
      { mask, scores: rows, rewards: rows, advantages: rows, returns: rows, values: rows, ...lengths },
      { maxPromptLength: 2, maxResponseLength: 2 },
    ),
    "algos/metrics/timing-metrics.ts": {
      ...timingMetrics(Object.fromEntries(sections.map((section) => [section, 1])), {
        promptTokens: 3,
        responseTokens: 4,
      }),
      ...throughputMetrics({ tokens: 7, stepSeconds: 6 }),
    },
    "algos/balancing/balancing.ts": balanceMetrics([1, 2], [[0], [1]]),
    "algos/metrics/sampler-agreement.ts": samplerAgreement({ rolloutLogprobs: logprobs, oldLogprobs: logprobs, mask }),
    "algos/metrics/variance-proxy.ts": varianceProxies(
      { mask, oldLogprobs: logprobs, sumPiSquared: rows, advantages: rows },
      1,
    ),
    "algos/metrics/validation-metrics.ts": validationMetrics({
      dataSources: Array(3).fill("openai/gsm8k"),
      uids: ["a", "a", "a"],
      infos: { acc: [0, 1, 1], reward: [0, 1, 0.5], pred: ["1", "2", "2"] },
      turns: [1, 2, 2],
    }),
  }).map(([file, metrics]) => [file, Object.keys(metrics)]),
);

describe("the metric table", () => {
  test.each(Object.entries(produced))("has every metric that %s returns", (file, names) => {
    const own = metricTable.filter(({ from }) => from === file).flatMap((section) => section.rows);
    for (const name of names) expect(own, name).toContain(findMetric(name));
  });

  test.each(Object.entries(produced))("has no metric of %s that it does not return", (file, names) => {
    const own = metricTable.filter(({ from }) => from === file).flatMap((section) => section.rows);
    for (const name of own.flatMap((row) => namesOf(row.name))) {
      const pattern = patternOf(name);
      expect(
        names.some((returned) => pattern.test(returned)),
        name,
      ).toBe(true);
    }
  });

  test("has every metric name of the golden files", () => {
    const folder = new URL("../../../test/fixtures/goldens/", import.meta.url);
    const names = new Set<string>();
    for (const file of readdirSync(folder)) {
      const note = (key: string, value: unknown) => {
        if (typeof value === "number" && /^(actor|critic|rollout_corr|perf|timing_s|response|prompt_length)/.test(key))
          names.add(key);
        return value;
      };
      JSON.parse(readFileSync(new URL(file, folder), "utf8"), note);
    }
    const metrics = [...names].filter((name) => name.includes("/"));
    expect(metrics.length).toBeGreaterThan(20);
    for (const name of metrics) expect(findMetric(name), name).not.toBeNull();
  });

  test("names for each section the file that makes it", () => {
    const isThere = (file: string) => existsSync(new URL(`../../${file}`, import.meta.url));
    for (const { from } of metricTable) expect(isThere(from), from).toBe(true);
  });

  test("says in sentences what each means and when to worry, once for each name", () => {
    const all = metricTable.flatMap((section) => section.rows);
    for (const { name, meaning, worry } of all) {
      expect(meaning, name).toMatch(/^[A-Z1].*\.$/);
      if (worry !== "") expect(worry, name).toMatch(/\.$/);
    }
    const names = all.flatMap(({ name }) => namesOf(name));
    expect(new Set(names).size).toBe(names.length);
  });

  test("does not know a name that nobody logs", () => {
    expect(findMetric("critic/score/median")).toBeNull();
    expect(findMetric("actor/pg_losses")).toBeNull();
  });
});

test("docs/metrics.md is what the table says (run `npm run docs`)", () => {
  expect(readFileSync(new URL("../../../docs/metrics.md", import.meta.url), "utf8")).toBe(metricReference());
});

test("a pattern stands for all its choices", () => {
  expect(namesOf("{a,b}/{source}/{c,d}")).toEqual(["a/{source}/c", "a/{source}/d", "b/{source}/c", "b/{source}/d"]);
});
