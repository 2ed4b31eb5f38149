import { stripVTControlCharacters } from "node:util";
import { describe, expect, test } from "vitest";
import { type PanelView, panelLines } from "./panel.ts";
import { MetricSeries } from "./series.ts";
import { textWidth } from "./text-width.ts";

/** The metrics of a step of PPO; the reward rises from 0 to 1 over a hundred steps. */
const metricsOf = (step: number): Record<string, number> => ({
  "critic/score/mean": step / 100,
  "critic/vf_explained_var": 0.3,
  "actor/reward_kl_penalty": 0.01 * step,
  "actor/ppo_kl": 1e-4,
  "actor/entropy": 1 - step / 200,
  "actor/grad_norm": 2,
  "actor/pg_clipfrac": 0.01,
  "actor/lr": 3e-4,
  "response_length/mean": 3.9,
  "response_length/clip_ratio": 0,
  "perf/throughput": 5123,
  "timing_s/step": 0.5,
  "timing_s/gen": 0.2,
  "timing_s/update_actor": 0.1,
  ...(step % 5 === 0 ? { "val-core/sums/acc/mean@1": step / 100 } : {}),
});

function seriesOf(steps: number, metrics = metricsOf): Map<string, MetricSeries> {
  const seriesByName = new Map<string, MetricSeries>();
  for (let step = 1; step <= steps; step++) {
    for (const [name, value] of Object.entries(metrics(step))) {
      const series = seriesByName.get(name) ?? new MetricSeries();
      series.add(value);
      seriesByName.set(name, series);
    }
  }
  return seriesByName;
}

const samples = [
  { input: "<|user|>58+67=?<|end|><|assistant|>", output: "125", score: 1 },
  { input: "<|user|>19+4=?<|end|><|assistant|>", output: "13", score: 0 },
];
const view: PanelView = {
  step: 50,
  totalSteps: 100,
  columns: 80,
  rows: 24,
  hasColor: false,
  left: "25s left",
  samples,
};
const seriesByName = seriesOf(50);
const panel = (given: Partial<PanelView> = {}) => panelLines(seriesByName, { ...view, ...given });

test("has everything to watch in a window of 80 by 24", () => {
  const text = panel().join("\n");
  for (const part of ["step 50/100", "50% · 25s left", "reward 0.5", "from 0.0100", "timing_s/gen"])
    expect(text.includes(part), part).toBe(part !== "timing_s/gen");
  for (const label of ["reward", "accuracy", "KL", "entropy", "length", "tokens/s"])
    expect(text, label).toMatch(new RegExp(`${label} +[\\d.]+K? [▁▂▃▄▅▆▇█]+`));
  expect(text).toContain("58+67=? → 125 ✓");
  expect(text).toContain("19+4=? → 13 ✗");
  expect(text).toContain("time      gen 40% · update_actor 20% · other 40%");
});

test("fits every window, and leaves room for the line below it", () => {
  const long = [{ input: "你好，世界 ".repeat(40), output: "🚂 ".repeat(90), score: 0.123456 }, ...samples];
  const sources = ["openai/gsm8k", "你好你好你好", "🚂", "d"].map((it) => [`val-core/${it}/acc/mean@8`, 0.5] as const);
  const many = seriesOf(50, (step) => ({ ...metricsOf(step), ...Object.fromEntries(sources) }));
  for (let columns = 20; columns <= 200; columns += 9) {
    for (let rows = 1; rows <= 60; rows += 4) {
      const lines = panelLines(many, { ...view, columns, rows, samples: long });
      expect(lines.length).toBeLessThanOrEqual(Math.max(0, rows - 3));
      for (const line of lines) expect(textWidth(line), line).toBeLessThan(columns);
    }
  }
});

test("shows the step and the reward wherever there is a panel, and none in a window too small for them", () => {
  for (const [columns, rows] of [
    [32, 6],
    [40, 8],
    [60, 12],
    [80, 24],
    [200, 60],
  ] as const) {
    const text = panel({ columns, rows }).join("\n");
    expect(text).toMatch(/^step 50\/100/);
    expect(text).toMatch(/reward +0\.5/);
  }
  expect(panel({ columns: 20 })).toEqual([]);
  expect(panel({ rows: 4 })).toEqual([]);
});

test("leaves out the chart first, then the answers, then the metrics", () => {
  const has = (rows: number) => {
    const text = panel({ rows }).join("\n");
    return { chart: text.includes("┤"), answers: text.includes("→"), metrics: text.includes("entropy") };
  };
  expect(has(24)).toEqual({ chart: true, answers: true, metrics: true });
  expect(has(13)).toEqual({ chart: false, answers: true, metrics: true });
  expect(has(8)).toEqual({ chart: false, answers: false, metrics: true });
});

test("in colour is the same text", () => {
  const coloured = panel({ hasColor: true });
  expect(coloured.join("")).toContain("\x1b[");
  expect(coloured.map(stripVTControlCharacters)).toEqual(panel());
  expect(panel().join("")).not.toContain("\x1b");
});

test("control characters of a model's text or of a data source are removed", () => {
  const evil = seriesOf(3, (step) => ({
    "val-core/\x1b[2J/acc/mean@1": step,
    "critic/score/mean": step,
    "timing_s/step": 1,
    "timing_s/\x07": 1,
  }));
  const said = [{ input: "\x1b[2Jhello\r\n", output: "\x07\x1b]0;title\x07", score: 1 }];
  for (const line of panelLines(evil, { ...view, samples: said })) expect(line).toBe(stripVTControlCharacters(line));
});

test("labels each of several validations with its data source", () => {
  const names = ["openai/gsm8k", "math"].map((it) => `val-core/${it}/acc/mean@1`);
  const text = panelLines(
    seriesOf(2, () => Object.fromEntries(names.map((name) => [name, 0.5]))),
    view,
  ).join("\n");
  expect(text).toMatch(/…ai\/gsm8k +0\.5/);
  expect(text).toMatch(/math +0\.5/);
  expect(text).not.toContain("accuracy");
});

test.each([
  ["actor/kl_loss", { "actor/kl_loss": 3, "actor/reward_kl_penalty": 2, "actor/ppo_kl": 1 }, "3"],
  ["actor/reward_kl_penalty", { "actor/reward_kl_penalty": 2, "actor/ppo_kl": 1 }, "2"],
  ["actor/ppo_kl", { "actor/ppo_kl": 1 }, "1"],
])("the KL is %s where the run has it", (_, metrics, value) => {
  const lines = panelLines(
    seriesOf(1, () => metrics),
    view,
  );
  expect(lines.join("\n")).toMatch(new RegExp(`KL +${value} `));
});

describe("the chart", () => {
  const chartOf = (values: readonly number[], given: Partial<PanelView> = {}, name = "critic/score/mean") => {
    const lines = panelLines(
      seriesOf(values.length, (step) => ({ [name]: values[step - 1]! })),
      { ...view, ...given },
    );
    return lines.filter((line) => /[┤│]/.test(line)).map((line) => line.slice(9));
  };

  test("of a share goes from 0 to 1, and rises with it", () => {
    const rising = chartOf(
      Array.from({ length: 70 }, (_, i) => i / 69),
      { totalSteps: 70 },
    );
    const heights = Array.from({ length: 70 }, (_, x) =>
      rising.reduce((height, line) => height + " ▁▂▃▄▅▆▇█".indexOf(line[x] ?? " "), 0),
    );
    expect(heights).toEqual(heights.toSorted((a, b) => a - b));
    expect(heights[0]).toBe(1);
    expect(heights.at(-1)).toBe(8 * rising.length);
    const half = chartOf([0.5, 0.5]);
    expect(half.filter((line) => line.includes("█")).length).toBe(half.length / 2);
  });

  test("of anything else goes from its lowest to its highest value", () => {
    for (const values of [
      [-3, 0, 12],
      [2.5, 2.2, 1.1],
    ]) {
      const top = values.indexOf(Math.max(...values));
      const [first = "", ...rest] = chartOf(values, { totalSteps: 3 }, values[0]! < 0 ? undefined : "train/loss");
      expect(first.length).toBeGreaterThan(top); // the highest reaches the first line
      expect(rest.length).toBeGreaterThan(2);
    }
  });

  test("grows with the run until it is as wide as the window", () => {
    const widths = [1, 10, 50, 100, 1000].map((steps) =>
      Math.max(
        ...chartOf(
          Array.from({ length: steps }, () => 0.9),
          { totalSteps: 1000 },
        ).map((line) => line.length),
      ),
    );
    expect(widths).toEqual([1, 10, 50, 70, 70]);
  });

  test("leaves a gap where the value is not finite", () => {
    expect(chartOf([1, Number.NaN, 1], { totalSteps: 70 }).at(-1)).toBe("█ █");
    expect(chartOf([Number.NaN])).toEqual([]);
  });
});
