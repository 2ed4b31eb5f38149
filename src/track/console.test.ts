import { appendFile, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { stripVTControlCharacters } from "node:util";
import fc from "fast-check";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { linesOf, trackContext } from "../../test/tracking.ts";
import { metricsPath } from "../run/names.ts";
import { info } from "../util/log.ts";
import { openConsole } from "./console.ts";
import { figure, tableLines, watchedNames } from "./console-table.ts";
import { MetricSeries } from "./series.ts";
import { textWidth } from "./text-width.ts";
import type { Screen, TrackContext } from "./tracker.ts";

/** The metrics of a step, by verl's names; all of them depend on the step. */
function metricsOf(step: number): Record<string, number> {
  const names = [
    "critic/score/mean",
    "critic/rewards/mean",
    "critic/vf_explained_var",
    "critic/vf_loss",
    "critic/advantages/max",
    "actor/entropy",
    "actor/ppo_kl",
    "actor/pg_clipfrac",
    "actor/grad_norm",
    "actor/kl_loss",
    "actor/lr",
    "actor/pg_loss",
    "response_length/mean",
    "response_length/clip_ratio",
    "response/aborted_ratio",
    "training/rollout_probs_diff_mean",
    "prompt_length/mean",
    "perf/throughput",
    "timing_s/step",
    "timing_s/gen",
    "timing_s/update_actor",
    "val-core/openai/gsm8k/acc/mean@8",
    "val-core/你好/acc/mean@8",
    "train/loss",
    "val/loss",
  ];
  return Object.fromEntries(names.map((name, i) => [name, (step * (i + 1)) / 7]));
}

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

describe("the table", () => {
  const seriesByName = seriesOf(50);
  const view = { step: 50, totalSteps: 100, columns: 80, hasColor: false };

  test("fits every width from 40 columns on in at most twelve lines", () => {
    for (let columns = 40; columns <= 240; columns++) {
      const lines = tableLines(seriesByName, { ...view, columns });
      expect(lines.length).toBeLessThanOrEqual(12);
      for (const line of lines) expect(textWidth(line), line).toBeLessThan(columns);
    }
  });

  test("shows the score and the validation however narrow it is", () => {
    for (const columns of [40, 60, 80, 200]) {
      const shown = tableLines(seriesByName, { ...view, columns }).join("\n");
      expect(shown).toContain("score/mean");
      expect(shown).toContain("mean@8");
    }
  });

  test("says how many metrics it leaves out", () => {
    for (const columns of [80, 120, 200]) {
      const [head = "", ...rows] = tableLines(seriesByName, { ...view, columns });
      const hidden = Number(/(\d+) more in metrics\.jsonl/.exec(head)?.[1]);
      const cells = rows
        .filter((row) => !row.startsWith("time"))
        .join(" ")
        .match(/[▁▂▃▄▅▆▇█]+/g);
      expect((cells?.length ?? 0) + 2).toBe(seriesByName.size - hidden); // the time of a step and tokens/s are in the head
    }
  });

  test("with colour is the same text", () => {
    const coloured = tableLines(seriesByName, { ...view, hasColor: true });
    expect(coloured.join("")).toContain("\x1b[");
    expect(coloured.map(stripVTControlCharacters)).toEqual(
      tableLines(seriesByName, view).map((line) => expect.stringContaining(line.trimEnd())),
    );
  });

  test("removes control characters from a name", () => {
    const evil = seriesOf(3, (step) => ({
      "val-core/\x1b[2J/acc/mean@1": step,
      "timing_s/step": 1,
      "timing_s/\x07": 1,
    }));
    for (const line of tableLines(evil, view)) expect(line).toBe(stripVTControlCharacters(line));
  });

  test("lists a metric once, the most important first", () => {
    const names = watchedNames(seriesByName.keys());
    expect(new Set(names).size).toBe(names.length);
    expect(names[0]).toBe("critic/score/mean");
  });
});

test("a figure takes at most seven characters and is near its value", () => {
  fc.assert(
    fc.property(fc.double({ noNaN: true, noDefaultInfinity: true }), (value) => {
      expect(figure(value).length, figure(value)).toBeLessThanOrEqual(7);
    }),
  );
  const texts = [0.41234, 12.3456, 213.44, 1e-6, 1.25e-5, -0.0123, 0.00702, 1760, 23603, Number.NaN].map(figure);
  expect(texts).toEqual(["0.4123", "12.35", "213.4", "1e-6", "1.25e-5", "-0.0123", "0.0070", "1760", "23.6K", "NaN"]);
});

describe("a sparkline", () => {
  const lineOf = (values: readonly number[], width = 8) => {
    const series = new MetricSeries();
    for (const value of values) series.add(value);
    return series.sparkline(width);
  };

  test("rises with its values and shows the whole run, however long", () => {
    for (const length of [8, 100, 511, 512, 513, 5000, 100_000]) {
      expect(lineOf(Array.from({ length }, (_, i) => i))).toBe("▁▂▃▄▅▆▇█");
    }
  });

  test("of one value is flat, and a value that is not finite is visible", () => {
    expect(lineOf([5, 5, 5])).toBe("▄▄▄");
    expect(lineOf([1, Number.NaN, 2])).toBe("▁!█");
    expect(lineOf([Number.NaN])).toBe("!");
  });
});

/** A terminal of our own: as much of one as the table uses. */
class Terminal implements Screen {
  readonly lines: string[] = [""];
  #row = 0;
  isTerminal = true;
  columns = 80;
  rows = 40;

  write(text: string): void {
    const visible = text.replaceAll("\x1b", "␛");
    for (const [part] of visible.matchAll(/␛\[[\d;]*[AJm]|[^␛\n\r]+|\n|\r/g)) {
      const up = /^␛\[(\d+)A$/.exec(part)?.[1];
      if (up !== undefined) this.#row -= Number(up);
      else if (part === "␛[J") this.lines.splice(this.#row, Infinity, "");
      else if (part === "\n") this.lines[++this.#row] ??= "";
      else if (part !== "\r" && !part.startsWith("␛")) this.lines[this.#row] += part;
    }
  }
}

describe("the console", () => {
  let dir = "";
  beforeEach(async () => {
    dir = await mkdtemp(join(tmpdir(), "track-console-"));
  });
  afterEach(() => rm(dir, { recursive: true, force: true }));
  const context = (screen: Screen, given: Partial<TrackContext> = {}) => trackContext({ dir, screen, ...given });
  const drawn = (terminal: Terminal) =>
    terminal.lines.filter((line) => line.startsWith("step ")).map((line) => line.split(" ")[1]);

  test("redraws one panel in a terminal, the last step at the end", async () => {
    const terminal = new Terminal();
    const tracker = await openConsole(context(terminal));
    for (let step = 1; step <= 30; step++) tracker.log(step, metricsOf(step));
    await tracker.close("finished");
    expect(drawn(terminal)).toEqual(["30/100"]);
  });

  test("draws a new panel below lines that were printed since, and after the window became narrower", async () => {
    const terminal = new Terminal();
    const tracker = await openConsole(context(terminal));
    tracker.log(1, metricsOf(1));
    info("a line between");
    tracker.log(2, metricsOf(2));
    tracker.log(3, metricsOf(3));
    terminal.columns = 70;
    tracker.log(4, metricsOf(4));
    await tracker.close("finished");
    expect(drawn(terminal)).toEqual(["1/100", "3/100", "4/100"]);
  });

  test("keeps the lines and the last table for the run's log while the panel is redrawn in place", async () => {
    const terminal = new Terminal();
    const logged = await linesOf(async () => {
      const tracker = await openConsole(context(terminal));
      tracker.log(1, { "train/loss": 2 });
      tracker.log(2, { "train/loss": 1 });
      tracker.log(3, { "train/loss": 0.5, "val/loss": 1.5 });
      await tracker.close("finished");
    });
    expect(drawn(terminal)).toEqual(["3/100"]);
    expect(logged).toEqual([
      expect.stringMatching(/^step 1\/100 · train\/loss 2 · /),
      expect.stringMatching(/^step 3\/100 · val\/loss 1\.500 · train\/loss 0\.5000 · /),
      "step 3/100",
      "val      loss                1.500 ▄",
      "train    loss               0.5000 █▃▁",
    ]);
  });

  test("prints lines if the window has no room for the panel, as seldom as without a terminal", async () => {
    const terminal = Object.assign(new Terminal(), { rows: 3 });
    const said = await linesOf(async () => {
      const tracker = await openConsole(context(terminal));
      for (let step = 1; step <= 50; step++) tracker.log(step, { "train/loss": step });
      await tracker.close("finished");
    });
    expect(terminal.lines).toEqual([""]);
    expect(said.flatMap((line) => /^step (\d+)\/100 · train/.exec(line)?.[1] ?? [])).toEqual(["1", "50"]);
  });

  test.each([
    ["without colour when NO_COLOR is set", { NO_COLOR: "1" }, false],
    ["in colour otherwise", {}, true],
  ])("draws %s", async (_, env, hasColor) => {
    const written: string[] = [];
    const screen = { isTerminal: true, columns: 80, rows: 40, write: (text: string) => void written.push(text) };
    const tracker = await openConsole(context(screen, { env }));
    tracker.log(1, metricsOf(1));
    await tracker.close("finished");
    expect(written.join("").includes("\x1b[1m")).toBe(hasColor);
    expect(written.join("")).toContain("reward");
  });

  test("without a terminal prints few lines, none of them cut or coloured, and the table at the end", async () => {
    const terminal = Object.assign(new Terminal(), { isTerminal: false });
    const said = await linesOf(async () => {
      const tracker = await openConsole(context(terminal));
      for (let step = 1; step <= 100; step++)
        tracker.log(step, { "critic/score/mean": step / 100, "timing_s/step": 2 });
      await tracker.close("finished");
    });
    expect(terminal.lines).toEqual([""]);
    expect(said).toEqual([
      expect.stringMatching(/^step 1\/100 · critic\/score\/mean 0\.0100 · 2 s · \d+s left$/),
      "step 100/100 · critic/score/mean 1 · 2 s",
      expect.stringMatching(/^step 100\/100 · 2 s per step/),
      expect.stringContaining("critic   score/mean"),
    ]);
  });

  test("shows the phases of the last step, not of an earlier one", async () => {
    const terminal = new Terminal();
    const tracker = await openConsole(context(terminal));
    tracker.log(1, { "critic/score/mean": 0, "timing_s/step": 4, "timing_s/gen": 1, "timing_s/testing": 3 });
    tracker.log(2, { "critic/score/mean": 0, "timing_s/step": 2, "timing_s/gen": 1 });
    await tracker.close("finished");
    expect(terminal.lines.find((line) => line.startsWith("time"))).toMatch(/^time +gen 50% · other 50%$/);
  });

  test("of a resumed run shows the whole series, without the steps that are repeated", async () => {
    for (let step = 1; step <= 7; step++) {
      await appendFile(metricsPath(dir), `${JSON.stringify({ step, data: { "critic/score/mean": step } })}\n`);
    }
    const terminal = new Terminal();
    const tracker = await openConsole(context(terminal, { startStep: 4 }));
    tracker.log(5, { "critic/score/mean": 5 });
    await tracker.close("finished");
    expect(terminal.lines.join("\n")).toContain("5 ▁▃▅▆█");
  });

  test("prints samples without control characters, and only a part of long ones", async () => {
    const said = await linesOf(async () => {
      const tracker = await openConsole(context(new Terminal()));
      tracker.logSamples(3, [{ input: "go\x1b[2J", output: "word ".repeat(400), score: 0.5 }]);
      await tracker.close("finished");
    });
    expect(said.slice(0, 3)).toEqual(["Validation samples at step 3:", "1. score 0.5000", "  prompt    go␛[2J"]);
    expect(said.at(-1)).toMatch(/… \d+ more lines$/);
    expect(said.length).toBeLessThan(15);
    for (const line of said) expect(textWidth(line)).toBeLessThan(80);
  });
});
