/**
 * The metrics for people: in a terminal a panel that is redrawn in place; elsewhere a line from time to time, a table at
 * the end, and validation samples as they come; or verl's line per step on stdout.
 *
 * The panel is directly above the live line of util/log. If other lines were printed since, or the window became
 * narrower, it is drawn again below them and the old one scrolls away. The run's log has the lines in every case.
 */
import type { Metrics } from "../run/metrics.ts";
import { formatCount } from "../util/format.ts";
import { aboveStatus, info, printedLines, record } from "../util/log.ts";
import { TimeLeft } from "../util/time-left.ts";
import { figure, tableLines, watchedNames } from "./console-table.ts";
import { panelLines } from "./panel.ts";
import type { Sample } from "./samples.ts";
import { MetricSeries } from "./series.ts";
import { printable, wrap } from "./text-width.ts";
import { earlierMetrics, type Screen, type TrackContext, type Tracker } from "./tracker.ts";
import { verlLine } from "./verl-line.ts";

const REDRAW_MS = 100;
const LINE_MS = 2000;
const LINE_METRICS = 6;
/** Lines of a prompt or a response that are printed. */
const SAMPLE_LINES = 8;

const standardError: Screen = {
  write: (text) => void process.stderr.write(text),
  get isTerminal() {
    return process.stderr.isTTY === true;
  },
  get columns() {
    return process.stderr.columns ?? 80;
  },
  get rows() {
    return process.stderr.rows ?? 24;
  },
};

export async function openConsole(context: TrackContext): Promise<Tracker> {
  if (context.consoleStyle === "verl") return verlConsole();
  const screen = context.screen ?? standardError;
  const { startStep, totalSteps, env } = context;
  const seriesByName = new Map<string, MetricSeries>();
  const note = (data: Metrics) => {
    // A phase that this step did not have took no time.
    for (const name of seriesByName.keys())
      if (name.startsWith("timing_s/") && !(name in data)) seriesByName.delete(name);
    for (const [name, value] of Object.entries(data)) {
      const series = seriesByName.get(name) ?? new MetricSeries();
      series.add(value);
      seriesByName.set(name, series);
    }
  };
  for (const { data } of await earlierMetrics(context)) note(data);
  const timeLeft = new TimeLeft(startStep ?? 0, totalSteps);
  const isLive = screen.isTerminal && env.TERM !== "dumb";
  const panel = new LivePanel(screen);
  const lines = new Pace(LINE_MS);
  const frames = new Pace(REDRAW_MS);
  let last: { readonly step: number; readonly data: Metrics } | null = null;
  let samples: readonly Sample[] = [];

  /** The panel of a step; no lines if it is not shown. */
  const lay = (step: number): string[] => {
    const { columns, rows } = screen;
    const hasColor = !env.NO_COLOR;
    if (!isLive) return [];
    return panelLines(seriesByName, { step, totalSteps, columns, rows, hasColor, left: timeLeft.text(), samples });
  };
  /** Show the step in the terminal and in the log, each if it is due. */
  const show = (step: number, data: Metrics, isDue: (pace: Pace) => boolean) => {
    if (!isDue(frames) && !isDue(lines)) return;
    const drawn = lay(step);
    if (drawn.length > 0 && isDue(frames)) {
      panel.draw(drawn);
      frames.mark(step);
    }
    if (!isDue(lines)) return;
    const line = stepLine(step, data, { totalSteps, left: timeLeft.text() });
    if (drawn.length > 0) record(line);
    else info(line);
    lines.mark(step);
  };
  return {
    log(step, data) {
      note(data);
      timeLeft.ended(step);
      last = { step, data };
      const isNotable = Object.keys(data).some((name) => name.startsWith("val"));
      show(step, data, (pace) => isNotable || pace.isDue());
    },
    logSamples(step, given) {
      samples = given;
      sampleLines(step, given, screen.columns).forEach(lay(step).length > 0 ? record : info);
    },
    async close() {
      if (last === null) return;
      const { step, data } = last;
      show(step, data, (pace) => pace.step !== step);
      tableLines(seriesByName, { step, totalSteps, columns: 80, hasColor: false }).forEach(isLive ? record : info);
    },
  };
}

/** When something was last done, and for which step. */
class Pace {
  readonly #everyMs: number;
  #at = Number.NEGATIVE_INFINITY;
  step = 0;

  constructor(everyMs: number) {
    this.#everyMs = everyMs;
  }

  isDue(): boolean {
    return performance.now() - this.#at >= this.#everyMs;
  }

  mark(step: number): void {
    this.#at = performance.now();
    this.step = step;
  }
}

/** Lines that replace each other. */
class LivePanel {
  readonly #screen: Screen;
  /** The lines that are drawn, for which width, and how many lines had been printed by then. */
  #lines = 0;
  #columns = 0;
  #printed = 0;

  constructor(screen: Screen) {
    this.#screen = screen;
  }

  draw(lines: readonly string[]): void {
    const { columns } = this.#screen;
    const isInPlace = this.#lines > 0 && this.#columns <= columns && this.#printed === printedLines();
    const back = isInPlace ? `\x1b[${this.#lines}A\r\x1b[J` : "";
    aboveStatus(() => this.#screen.write(`${back}${lines.join("\n")}\n`));
    this.#lines = lines.length;
    this.#columns = columns;
    this.#printed = printedLines();
  }
}

type Where = { readonly totalSteps: number; readonly left: string };

/** One line for a log: those metrics to watch that the step has, with their full names. */
function stepLine(step: number, data: Metrics, { totalSteps, left }: Where): string {
  const names = watchedNames(Object.keys(data)).slice(0, LINE_METRICS);
  const figures = names.map((name) => `${printable(name)} ${figure(data[name]!)}`);
  const { "timing_s/step": seconds, "perf/throughput": throughput } = data;
  if (seconds !== undefined) figures.push(`${figure(seconds)} s`);
  if (throughput !== undefined) figures.push(`${formatCount(throughput)} tokens/s`);
  if (left !== "") figures.push(left);
  return [`step ${step}/${totalSteps}`, ...figures].join(" · ");
}

/** Samples for people: score, the end of the prompt and the beginning of the response. */
function sampleLines(step: number, samples: readonly Sample[], columns: number): string[] {
  const label = 10;
  const field = (name: string, text: string, keepsEnd: boolean): string[] => {
    const all = wrap(text.trim(), Math.max(20, columns - 1 - label - 2));
    const more = all.length - SAMPLE_LINES;
    const kept = more <= 0 ? all : keepsEnd ? all.slice(-SAMPLE_LINES) : all.slice(0, SAMPLE_LINES);
    const note = more <= 0 ? [] : [`… ${more} more lines`];
    const lines = keepsEnd ? [...note, ...kept] : [...kept, ...note];
    return lines.map((line, i) => `  ${(i === 0 ? name : "").padEnd(label)}${line}`);
  };
  return [
    `Validation samples at step ${step}:`,
    ...samples.flatMap(({ input, output, score }, i) => [
      `${i + 1}. score ${figure(score)}`,
      ...field("prompt", input, true),
      ...field("response", output, false),
    ]),
  ];
}

function verlConsole(): Tracker {
  return {
    log(step, data) {
      const line = verlLine(step, data);
      aboveStatus(() => process.stdout.write(`${line}\n`));
      record(line);
    },
    logSamples: (step, samples) => sampleLines(step, samples, standardError.columns).forEach(info),
    async close() {},
  };
}
