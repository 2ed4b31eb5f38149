/** The pure parts of the page, each by its law. */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { namesOf } from "../../../test/metric-names.ts";
import { metricTable } from "../../algos/metrics/table.ts";
import { joinSteps, onAxis } from "./align.ts";
import { chartsOf, otherNames, searchCharts, splitCharts } from "./catalogue.ts";
import { configRows } from "./config-diff.ts";
import { promptLine, showAgo, showNumber, showSeconds, showShare, showValue } from "./format.ts";
import { bucketRows, meanPhases, phasesOf } from "./phases.ts";
import { formatRoute, parseRoute, type Route, tabs } from "./route.ts";
import {
  advantageLevel,
  entropyLevel,
  largestOf,
  levelsOf,
  orderByScore,
  rolesOf,
  surpriseLevel,
} from "./token-levels.ts";

describe("runs on one axis", () => {
  const steps = fc.uniqueArray(fc.nat(50)).map((all) => all.sort((a, b) => a - b));
  test("have every step once, ascending, and every value at its step", () => {
    fc.assert(
      fc.property(fc.array(steps, { minLength: 1, maxLength: 4 }), (runs) => {
        const axis = joinSteps(runs);
        expect(axis.steps).toEqual([...new Set(runs.flat())].sort((a, b) => a - b));
        for (const [i, run] of runs.entries()) {
          const placed = onAxis(
            run.map((step) => step * 10),
            axis.places[i]!,
            axis.steps.length,
          );
          expect(placed).toEqual(axis.steps.map((step) => (run.includes(step) ? step * 10 : null)));
        }
      }),
    );
  });
});

describe("the catalogue of charts", () => {
  const names = metricTable.flatMap(({ rows }) => rows.flatMap(({ name }) => namesOf(name)));
  const real = [...names, "val-core/gsm8k/acc/mean@1", "val-core/open/reward/mean@1"];
  const wanted = [
    "Reward",
    "Validation accuracy",
    "Validation score",
    "KL to the reference",
    "KL of the updates",
    "Entropy",
    "Response length",
    "Clip fractions",
    "Learning rate",
    "Throughput",
    "Memory",
    "Responses cut off",
    "Loss",
  ];
  test("shows what matters of a run that has every metric", () => {
    expect(chartsOf(real).map(({ title }) => title)).toEqual(expect.arrayContaining(wanted));
    const [accuracy] = chartsOf(real).filter(({ title }) => title === "Validation accuracy");
    expect(accuracy?.series).toEqual([{ name: "val-core/gsm8k/acc/mean@1", label: "gsm8k/acc", isQuiet: false }]);
    const [score] = chartsOf(real).filter(({ title }) => title === "Validation score");
    expect(score?.series.map(({ name }) => name)).toEqual(["val-core/open/reward/mean@1"]);
  });

  test("has no chart without a metric, and no metric twice", () => {
    expect(chartsOf([])).toEqual([]);
    const shown = chartsOf(real).flatMap(({ series }) => series.map(({ name }) => name));
    expect(new Set(shown).size).toBe(shown.length);
  });

  test("and the other metrics are all metrics, and search finds each by its name", () => {
    const shown = chartsOf(real).flatMap(({ series }) => series.map(({ name }) => name));
    expect([...shown, ...otherNames(real, chartsOf(real))].sort()).toEqual([...new Set(real)].sort());
    for (const name of real) expect(searchCharts(real, name).map(({ title }) => title)).toContain(name);
    expect(searchCharts(["actor/lr", "critic/lr"], "LR act").map(({ title }) => title)).toEqual(["actor/lr"]);
  });

  test("shows one metric per chart when runs are compared", () => {
    for (const { series } of splitCharts(chartsOf(real))) expect(series).toHaveLength(1);
  });
});

describe("the phases of a step", () => {
  test("are in the order they run, without parts of phases and without the step itself", () => {
    const names = ["update_actor", "step", "gen", "zzz", "agent_loop/slowest", "ref"].map((it) => `timing_s/${it}`);
    expect(phasesOf(["actor/lr", ...names]).map(({ name }) => name)).toEqual([
      "timing_s/gen",
      "timing_s/ref",
      "timing_s/update_actor",
      "timing_s/zzz",
    ]);
  });

  test("and the rest add up to the step, or to themselves if the step is shorter", () => {
    const seconds = fc.oneof(fc.double({ min: 0, max: 100, noNaN: true }), fc.constant(Number.NaN));
    fc.assert(
      fc.property(fc.array(seconds, { maxLength: 5 }), fc.double({ min: 0, max: 300, noNaN: true }), (parts, step) => {
        const covered = parts.reduce((sum, part) => sum + (Number.isNaN(part) ? 0 : part), 0);
        const split = meanPhases([...parts.map((part) => [part]), [step]], [0, 0]);
        expect(split).toHaveLength(parts.length + 1);
        expect(split.reduce((sum, part) => sum + part, 0)).toBeCloseTo(Math.max(step, covered), 6);
      }),
    );
    expect(meanPhases([[1, 3], null, [4, 4]], [0, 1])).toEqual([2, 0, 2]);
  });

  test("are grouped into bars that cover every row once", () => {
    fc.assert(
      fc.property(fc.nat(300), fc.integer({ min: 1, max: 50 }), (rows, count) => {
        const covered = bucketRows(0, rows, count).flatMap(([first, last]) =>
          Array.from({ length: last - first + 1 }, (_, i) => first + i),
        );
        expect(covered).toEqual(Array.from({ length: rows }, (_, i) => i));
      }),
    );
  });
});

describe("the colour of a token", () => {
  test("grows with surprise, with entropy and with the size of the advantage", () => {
    const number = fc.double({ min: -8, max: 8, noNaN: true });
    fc.assert(
      fc.property(number, number, (a, b) => {
        const [low, high] = a < b ? [a, b] : [b, a];
        expect(surpriseLevel(low)).toBeGreaterThanOrEqual(surpriseLevel(high));
        expect(entropyLevel(low)).toBeLessThanOrEqual(entropyLevel(high));
        expect(advantageLevel(low, 8)).toBeLessThanOrEqual(advantageLevel(high, 8));
        expect(advantageLevel(-a, 8) + advantageLevel(a, 8)).toBe(0);
      }),
    );
    expect([surpriseLevel(0), surpriseLevel(-20), entropyLevel(0), entropyLevel(9)]).toEqual([0, 5, 0, 5]);
    expect([advantageLevel(2, 2), advantageLevel(-2, 2), advantageLevel(1, 0)]).toEqual([4, -4, 0]);
    expect([surpriseLevel(null), entropyLevel(undefined), advantageLevel(null, 1)]).toEqual([0, 0, 0]);
    expect(largestOf([[1, null, -3], undefined, []])).toBe(3);
  });
});

test("responses are ordered by score; those without one come last and are neither best nor worst", () => {
  const scores = [0.5, null, 1, 0, 1];
  expect(orderByScore(scores, "sampled")).toEqual([0, 1, 2, 3, 4]);
  expect(orderByScore(scores, "best")).toEqual([2, 4, 0, 3, 1]);
  expect(orderByScore(scores, "worst")).toEqual([3, 0, 2, 4, 1]);
  expect(orderByScore(scores, "extremes")).toEqual([2, 3]);
  expect(orderByScore([1], "extremes")).toEqual([0]);
  expect(orderByScore([null], "extremes")).toEqual([]);
});

describe("configs side by side", () => {
  test("differ in a key exactly where their values do, a missing one included", () => {
    const [first, second] = [
      { a: { b: 1, c: [1, 2], d: {} }, same: null },
      { a: { b: 2, c: [1, 2] }, same: null, extra: "x" },
    ];
    expect(configRows([first, second])).toEqual([
      { key: "a.b", values: [1, 2], differs: true },
      {
        key: "a.c",
        values: [
          [1, 2],
          [1, 2],
        ],
        differs: false,
      },
      { key: "a.d", values: [{}, undefined], differs: true },
      { key: "extra", values: [undefined, "x"], differs: true },
      { key: "same", values: [null, null], differs: false },
    ]);
  });

  test("of one run differ in nothing", () => {
    fc.assert(
      fc.property(fc.object(), (config) => {
        expect(configRows([config, config]).some(({ differs }) => differs)).toBe(false);
      }),
    );
  });
});

test("an address names the view, whatever the run is called", () => {
  const route = fc.record({
    page: fc.constant("run" as const),
    run: fc.string({ minLength: 1 }),
    tab: fc.constantFrom(...tabs),
    others: fc.array(fc.string({ minLength: 1 }), { maxLength: 3 }),
  });
  fc.assert(
    fc.property(route, (it: Route) => {
      expect(parseRoute(formatRoute(it))).toEqual(it);
    }),
  );
  for (const hash of ["", "#", "#/", "#/run", "#/nothing/x"]) expect(parseRoute(hash)).toEqual({ page: "runs" });
  expect(parseRoute("#/run/a%2/unknown")).toMatchObject({ run: "a%2", tab: "curves" });
});

test("numbers are short and have their unit", () => {
  expect([0, 0.42131, 1, 1234.5, 98_765_432, 3.2e-6, -0.5, Number.NaN].map(showNumber)).toEqual([
    "0",
    "0.4213",
    "1",
    "1,235",
    "98.77M",
    "3.2e-6",
    "-0.5",
    "–",
  ]);
  expect([0.00002, 0.0123, 0.9999, 12.34, 59.99, 185, 4800, 200_000].map(showSeconds)).toEqual([
    "<0.1 ms",
    "12.3 ms",
    "1 s",
    "12.3 s",
    "1m 00s",
    "3m 05s",
    "1h 20m",
    "2d 7h",
  ]);
  expect([0, 0.004, 0.41, 1].map(showShare)).toEqual(["0%", "0.4%", "41%", "100%"]);
  expect([0, 12_000, 300_000, 7_200_000].map((ago) => showAgo(1e12, 1e12 + ago))).toEqual([
    "just now",
    "10 s ago",
    "5 min ago",
    "2 h ago",
  ]);
  expect(["", "a", 1e-6, 0.5, null, [1]].map(showValue)).toEqual(['""', "a", "1e-6", "0.5", "null", "[1]"]);
});

test("a prompt's line is the last user message, without the tokens of the template", () => {
  const chat =
    "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nWhat is\n2 + 2?<|im_end|>\n<|im_start|>assistant\n";
  expect(promptLine(chat)).toBe("What is 2 + 2?");
  expect(promptLine("plain  text\n")).toBe("plain text");
});

describe("the tokens of an episode with two turns of the policy and a tool between them", () => {
  const turns = [
    { role: "assistant", start: 0, end: 1 },
    { role: "tool", start: 1, end: 2 },
    { role: "assistant", start: 2, end: 3 },
  ];
  const drawn: (0 | 1)[] = [1, 0, 1];
  const episode = { turns, drawn, logprobs: [-5, -5, -5], advantages: [1, 1, -1] };

  test("are coloured only where the policy drew them", () => {
    expect([0, 1, 2].map((at) => levelsOf(episode, at, 1))).toEqual([
      ["up4", "p5", "e0"],
      ["given"],
      ["down4", "p5", "e0"],
    ]);
  });

  test("begin each turn with its role", () => {
    expect([...rolesOf(episode)]).toEqual([
      [0, "assistant"],
      [1, "tool"],
      [2, "assistant"],
    ]);
  });

  test("have no roles and all colours where the episode is a single answer", () => {
    const { logprobs, advantages } = episode;
    const single = { turns: [{ role: "assistant", start: 0, end: 3 }], logprobs, advantages };
    expect(rolesOf(single).size).toBe(0);
    expect(levelsOf(single, 1, 1)).toEqual(["up4", "p5", "e0"]);
  });
});
