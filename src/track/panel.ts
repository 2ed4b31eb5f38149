/**
 * What a terminal shows during a run: its progress, a chart of the reward (or of the loss), the metrics to watch
 * with their sparklines, what the time went into, and what the model answered at the last validation.
 *
 * A pure function of its arguments, so that every window size is a unit test. Lines are shorter than the window is wide,
 * and the panel leaves room for the live line below it. In a low window the chart is left out first, then samples, then
 * metrics. What is not shown is in metrics.jsonl, and docs/trackers.md explains every name here.
 */
import { figure, timingParts } from "./console-table.ts";
import type { Sample } from "./samples.ts";
import type { MetricSeries } from "./series.ts";
import { fitEnd, printable, textWidth, wrap } from "./text-width.ts";

export type PanelView = {
  readonly step: number;
  readonly totalSteps: number;
  readonly columns: number;
  readonly rows: number;
  readonly hasColor: boolean;
  /** `3m10s left`, or nothing. */
  readonly left: string;
  /** Of the last validation. */
  readonly samples: readonly Sample[];
};

type SeriesByName = ReadonlyMap<string, MetricSeries>;

/** Short labels for the metrics to watch, in the order they are shown; the first pattern that a run has is used. */
const watched: readonly (readonly [label: string, ...names: RegExp[]])[] = [
  ["reward", /^critic\/score\/mean$/],
  ["accuracy", /^val-core\/.*\/acc\/mean@\d+$/, /^val\/accuracy$/],
  ["val reward", /^val-core\/.*\/reward\/mean@\d+$/],
  ["loss", /^train\/loss$/],
  ["val loss", /^val\/loss$/],
  ["KL", /^actor\/kl_loss$/, /^actor\/reward_kl_penalty$/, /^actor\/ppo_kl$/],
  ["entropy", /^actor\/entropy$/],
  ["length", /^response_length\/mean$/],
  ["tokens/s", /^perf\/throughput$/],
  ["clipped", /^actor\/pg_clipfrac$/],
  ["gradient", /^actor\/grad_norm$/, /^train\/grad_norm$/],
  ["cut off", /^response_length\/clip_ratio$/],
  ["value fit", /^critic\/vf_explained_var$/],
  ["margin", /^train\/margin$/],
  ["rate", /^actor\/lr$/, /^train\/lr$/],
  ["no score", /^response\/aborted_ratio$/],
];

const NARROWEST = 32;
const MAX_LINES = 28;
/** Lines of the window that the panel leaves free: the live line, and earlier messages. */
const OTHERS = 3;
const LABEL = 10;
const VALUE = 7;
const MIN_SPARK = 8;
const MAX_SPARK = 24;
const GAP = 3;
const MAX_CELLS = 3;
const METRIC_LINES = 5;
const SAMPLE_LINES = 4;
/** Characters of a prompt's end and of a response's beginning that are used at all. */
const LOOKED_AT = 1000;
const CHART_LINES = { least: 3, most: 10 };
const AXIS = VALUE + 2;

/** The lines of the panel; none if the window is too small. */
export function panelLines(seriesByName: SeriesByName, view: PanelView): string[] {
  const room = Math.min(MAX_LINES, view.rows - OTHERS);
  if (view.columns < NARROWEST || room < 2) return [];
  const width = view.columns - 1;
  const paint = view.hasColor ? painted : plain;
  const head = headLine(view, width, paint);
  const metrics = metricLines(seriesByName, width, paint).slice(0, Math.min(METRIC_LINES, room - 1));
  const parts = [metrics];
  const free = () => room - 1 - parts.reduce((lines, part) => lines + part.length + 1, 0);
  const samples = sampleLines(view.samples, width, paint).slice(0, Math.max(0, Math.min(SAMPLE_LINES, free())));
  if (samples.length > 0) parts.push(samples);
  const timing = timingLine(seriesByName, width, paint);
  if (free() >= timing.length - 1) metrics.push(...timing);
  const chart = chartLines(seriesByName, view, { width, height: Math.min(CHART_LINES.most, free() - 2), paint });
  if (chart.length > 0) parts.unshift(chart);
  const isAiry = 1 + parts.reduce((lines, part) => lines + part.length + 1, 0) <= room;
  return [head, ...parts.filter((part) => part.length > 0).flatMap((part) => (isAiry ? ["", ...part] : part))];
}

type Paint = (style: keyof typeof styles, text: string) => string;
const styles = { dim: "2", bold: "1", line: "36", good: "32", bad: "31" } as const;
const painted: Paint = (style, text) => (text === "" ? "" : `\x1b[${styles[style]}m${text}\x1b[0m`);
const plain: Paint = (_, text) => text;

/** The step, a bar, and the time left. */
function headLine({ step, totalSteps, left }: PanelView, width: number, paint: Paint): string {
  const done = totalSteps === 0 ? 1 : Math.min(1, step / totalSteps);
  const before = `step ${step}/${totalSteps} `;
  const after = ` ${Math.floor(100 * done)}%${left === "" ? "" : ` · ${left}`}`;
  const length = width - before.length - after.length;
  if (length < 8) return paint("bold", `${before.trim()} ·${after}`.slice(0, width));
  const filled = Math.round(done * length);
  const bar = paint("line", "━".repeat(filled)) + paint("dim", "─".repeat(length - filled));
  return `${paint("bold", before)}${bar}${paint("bold", after)}`;
}

type Area = { readonly width: number; readonly height: number; readonly paint: Paint };

/** Bars in eighths of a line. */
const blocks = " ▁▂▃▄▅▆▇█";

/** The reward or the loss as an area chart; it grows to the right until it is as wide as the window. */
function chartLines(seriesByName: SeriesByName, { totalSteps }: PanelView, { width, height, paint }: Area): string[] {
  const [name, series] = [...seriesByName].find(([it]) => /^(critic\/score\/mean|train\/loss)$/.test(it)) ?? [];
  if (name === undefined || series === undefined || height < CHART_LINES.least) return [];
  const across = width - AXIS;
  const points = series.points(across);
  const finite = points.filter(Number.isFinite);
  if (finite.length === 0) return [];
  const isShare = finite.every((value) => value >= 0 && value <= 1) && name === "critic/score/mean";
  const [low, high] = isShare ? [0, 1] : [Math.min(...finite), Math.max(...finite)];
  const perPoint = Math.max(1, Math.floor(across / Math.max(totalSteps, points.length)));
  /** The height of a value in eighths of a line; a value that is not finite leaves a gap. */
  const heights = points.map((value) =>
    Number.isFinite(value) ? Math.max(1, Math.round(((value - low) / (high - low || 1)) * height * 8)) : 0,
  );
  const label = (line: number) => (line === 0 ? figure(high) : line === height - 1 ? figure(low) : "");
  const lines = Array.from({ length: height }, (_, line) => {
    const floor = (height - 1 - line) * 8;
    const area = heights.map((it) => blocks[Math.max(0, Math.min(8, it - floor))]!.repeat(perPoint)).join("");
    const axis = `${label(line).padStart(AXIS - 2)} ${label(line) === "" ? "│" : "┤"}`;
    return `${paint("dim", axis)}${paint("line", area.trimEnd())}`;
  });
  const what = name === "critic/score/mean" ? "reward" : "loss";
  const now = `${" ".repeat(AXIS)}${what} ${figure(series.last)}`;
  const from = ` from ${figure(points[0]!)}`;
  return [paint("bold", now) + paint("dim", now.length + from.length > width ? "" : from), ...lines];
}

/** Metrics side by side, each with its value and a sparkline. */
function metricLines(seriesByName: SeriesByName, width: number, paint: Paint): string[] {
  const cells = watched.flatMap(([label, ...patterns]) => {
    const [names = []] = patterns.map((it) => [...seriesByName.keys()].filter((name) => it.test(name))).filter(hasSome);
    if (names.length < 2) return names.map((name) => ({ label, series: seriesByName.get(name)! }));
    return names.slice(0, 3).map((name) => ({ label: sourceOf(name), series: seriesByName.get(name)! }));
  });
  const narrow = LABEL + VALUE + 1 + MIN_SPARK + GAP;
  const perLine = Math.max(1, Math.min(MAX_CELLS, Math.floor((width + GAP) / narrow)));
  const spark = Math.min(MAX_SPARK, Math.floor((width + GAP) / perLine) - narrow + MIN_SPARK);
  const shown = cells.map(({ label, series }) => {
    const value = paint(Number.isFinite(series.last) ? "bold" : "bad", figure(series.last).padStart(VALUE));
    const bars = spark < 1 ? "" : ` ${paint("line", series.sparkline(spark).padEnd(spark))}`;
    return `${paint("dim", fitEnd(label, LABEL))}${value}${bars}`;
  });
  return Array.from({ length: Math.ceil(shown.length / perLine) }, (_, i) =>
    shown.slice(i * perLine, (i + 1) * perLine).join(" ".repeat(GAP)),
  );
}

/** With several validations, each is labelled with its data source: `val-core/{source}/acc/mean@1`. */
const sourceOf = (name: string): string => fitEnd(printable(name.split("/").slice(1, -2).join("/")), LABEL - 1);

const hasSome = (names: readonly string[]): boolean => names.length > 0;

function timingLine(seriesByName: SeriesByName, width: number, paint: Paint): string[] {
  const parts = timingParts(seriesByName, width - LABEL).join(" · ");
  return parts === "" || LABEL + textWidth(parts) > width ? [] : [paint("dim", "time".padEnd(LABEL)) + parts];
}

/** The end of each prompt, the start of its response, and the score. */
function sampleLines(samples: readonly Sample[], width: number, paint: Paint): string[] {
  return samples.map(({ input, output, score }, i) => {
    const label = paint("dim", (i === 0 ? "answers" : "").padEnd(LABEL));
    const mark = score === 1 ? paint("good", "✓") : score === 0 ? paint("bad", "✗") : paint("bold", figure(score));
    const free = width - LABEL - VALUE - 4;
    const [prompt, response] = [oneLine(input.slice(-LOOKED_AT)), oneLine(output.slice(0, LOOKED_AT))];
    const forPrompt = Math.max(Math.floor(free / 2), free - textWidth(response));
    const asked = lastOf(prompt, forPrompt);
    return `${label}${paint("dim", asked)} → ${firstOf(response, free - textWidth(asked))} ${mark}`;
  });
}

/** A text in one line, without the marks that a chat template puts between messages. */
const oneLine = (text: string): string =>
  printable(
    text
      .replace(/<\|[^|<>]*\|>/g, " ")
      .trim()
      .replace(/\s+/g, " "),
  );

/** The beginning of a text, in at most `width` columns. */
function firstOf(text: string, width: number): string {
  return textWidth(text) <= width ? text : `${wrap(text, Math.max(1, width - 1))[0]}…`;
}

/** The end of a text, in at most `width` columns. */
const lastOf = (text: string, width: number): string => fitEnd(text, Math.min(width, textWidth(text)));
