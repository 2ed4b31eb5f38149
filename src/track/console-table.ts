/**
 * The table that a terminal shows during a run: the metrics to watch, each with its last value and a sparkline.
 *
 * At most twelve lines, in as many columns as fit in the terminal; if there is too little room, the last metrics of
 * `watched` are left out. They are still in metrics.jsonl; the first line counts them if there is room for it. A pure
 * function of the series, so that every width is a unit test.
 */
import { formatCount, formatSeconds } from "../util/format.ts";
import type { MetricSeries } from "./series.ts";
import { fitEnd, printable, textWidth } from "./text-width.ts";

const MAX_LINES = 12;
const LABEL = 9;
const NAME = 17;
const VALUE = 7;
const MIN_SPARK = 8;
const MAX_SPARK = 24;
const GAP = 2;

/** Groups in the order they are shown. */
const groups = ["val", "train", "critic", "actor", "response", "sampler"] as const;

/** The metrics to show, the most important first; the shown name is the part in parentheses. */
const watched: readonly (readonly [group: (typeof groups)[number], pattern: RegExp])[] = [
  ["critic", /^critic\/(score\/mean)$/],
  ["val", /^val-core\/(.*\/mean@\d+)$/],
  ["val", /^val\/(loss|accuracy|margin)$/],
  ["train", /^train\/(loss|accuracy|margin)$/],
  ["actor", /^actor\/(entropy)$/],
  ["response", /^response_(length\/mean)$/],
  ["actor", /^actor\/(ppo_kl)$/],
  ["actor", /^actor\/(pg_clipfrac)$/],
  ["actor", /^actor\/(grad_norm)$/],
  ["train", /^train\/(grad_norm|lr)$/],
  ["actor", /^actor\/(kl_loss)$/],
  ["response", /^response_(length\/clip_ratio)$/],
  ["critic", /^critic\/(rewards\/mean)$/],
  ["critic", /^critic\/(vf_explained_var)$/],
  ["actor", /^actor\/(lr)$/],
  ["sampler", /^training\/rollout_(probs_diff_mean)$/],
  ["actor", /^actor\/(pg_loss)$/],
  ["critic", /^critic\/(vf_loss)$/],
  ["critic", /^critic\/(advantages\/max)$/],
  ["response", /^response\/(aborted_ratio)$/],
  ["actor", /^actor\/(reward_kl_penalty)$/],
  ["val", /^val(?:-core)?\/(.*)$/],
  ["train", /^train\/((?:chosen|rejected)_score)$/],
];

type Shown = { readonly group: string; readonly label: string; readonly series: MetricSeries };

type TableView = {
  readonly step: number;
  readonly totalSteps: number;
  readonly columns: number;
  readonly hasColor: boolean;
};

/** The names of the metrics to watch, the most important first. */
export function watchedNames(names: Iterable<string>): string[] {
  return rank(names).map(({ name }) => name);
}

function rank(names: Iterable<string>): { name: string; group: string; label: string }[] {
  const all = [...names];
  const found = watched.flatMap(([group, pattern]) =>
    all.flatMap((name) => {
      const label = pattern.exec(name)?.[1];
      return label === undefined ? [] : [{ name, group, label: printable(label) }];
    }),
  );
  const firsts = new Map(found.map((it) => [it.name, it] as const).reverse()); // a name that matches twice counts at its first place
  return found.filter((it) => firsts.get(it.name) === it);
}

/** The lines of the table. */
export function tableLines(seriesByName: ReadonlyMap<string, MetricSeries>, view: TableView): string[] {
  const ranked = rank(seriesByName.keys()).map(({ name, group, label }): Shown => {
    return { group, label, series: seriesByName.get(name)! };
  });
  const timing = timingLine(seriesByName, view);
  const room = MAX_LINES - 1 - timing.length;
  for (let count = ranked.length; count >= 0; count--) {
    const rows = groupLines(ranked.slice(0, count), view);
    if (rows.length > room) continue;
    return [headLine(seriesByName, view, seriesByName.size - count), ...rows, ...timing];
  }
  return [];
}

/** Metrics of one group side by side, group under group. */
function groupLines(shown: readonly Shown[], { columns, hasColor }: TableView): string[] {
  const cellWithout = NAME + 1 + VALUE;
  const perLine = Math.max(1, Math.floor((columns - 1 - LABEL + GAP) / (cellWithout + 1 + MIN_SPARK + GAP)));
  const perCell = Math.floor((columns - 1 - LABEL + GAP) / perLine) - GAP;
  const spark = Math.min(MAX_SPARK, perCell - cellWithout - 1);
  const cell = ({ label, series }: Shown): string => {
    const value = figure(series.last).padStart(VALUE);
    const sparkline = spark < 1 ? "" : ` ${paint("36", series.sparkline(spark).padEnd(spark), hasColor)}`;
    return `${fitEnd(label, NAME)} ${paint(Number.isFinite(series.last) ? "1" : "31;1", value, hasColor)}${sparkline}`;
  };
  return groups.flatMap((group) => {
    const cells = shown.filter((it) => it.group === group).map(cell);
    return Array.from({ length: Math.ceil(cells.length / perLine) }, (_, i) => {
      const label = paint("2", (i === 0 ? group : "").padEnd(LABEL), hasColor);
      return (label + cells.slice(i * perLine, (i + 1) * perLine).join(" ".repeat(GAP))).trimEnd();
    });
  });
}

/** The step, the speed, and how many metrics are not shown. */
function headLine(seriesByName: ReadonlyMap<string, MetricSeries>, view: TableView, notInRows: number): string {
  const { step, totalSteps, columns, hasColor } = view;
  const seconds = seriesByName.get("timing_s/step")?.last;
  const throughput = seriesByName.get("perf/throughput")?.last;
  const speed = [
    ...(seconds === undefined ? [] : [`${duration(seconds)} per step`]),
    ...(throughput === undefined ? [] : [`${formatCount(throughput)} tokens/s`]),
  ];
  const hidden = notInRows - speed.length;
  const parts = [`step ${step}/${totalSteps}`, ...speed, ...(hidden === 0 ? [] : [`${hidden} more in metrics.jsonl`])];
  while (parts.length > 1 && parts.join(" · ").length > columns - 1) parts.pop();
  return paint("1", parts.join(" · "), hasColor);
}

function timingLine(seriesByName: ReadonlyMap<string, MetricSeries>, { columns, hasColor }: TableView): string[] {
  const parts = timingParts(seriesByName, columns - 1 - LABEL);
  return parts.length === 0 ? [] : [paint("2", "time".padEnd(LABEL), hasColor) + parts.join(" · ")];
}

/** The phases of a step with their shares of its time, the longest first, as many as fit with ` · ` between them. */
export function timingParts(seriesByName: ReadonlyMap<string, MetricSeries>, width: number): string[] {
  const step = seriesByName.get("timing_s/step")?.last ?? 0;
  const sections = [...seriesByName]
    .filter(([name, { last }]) => name.startsWith("timing_s/") && name !== "timing_s/step" && last > 0)
    .map(([name, { last: seconds }]) => ({ name: printable(name.slice("timing_s/".length)), seconds }))
    .sort((a, b) => b.seconds - a.seconds);
  if (!(step > 0) || sections.length === 0) return [];
  const total = Math.max(step, sum(sections)); // saving comes after the step whose time it is shown with
  for (let shown = sections.length; ; shown--) {
    const others = { name: "other", seconds: total - sum(sections.slice(0, shown)) };
    const parts = percentages([...sections.slice(0, shown), others], total);
    if (shown === 1 || textWidth(parts.join(" · ")) <= width) return parts;
  }
}

type Section = { readonly name: string; readonly seconds: number };

const sum = (sections: readonly Section[]): number => sections.reduce((total, { seconds }) => total + seconds, 0);

/** Whole percents that add up to 100: those that lose most by rounding down get the rest. Zeros are left out. */
function percentages(sections: readonly Section[], total: number): string[] {
  const exact = sections.map(({ seconds }) => (100 * seconds) / total);
  const whole = exact.map(Math.floor);
  const byLoss = exact.map((_, i) => i).sort((a, b) => exact[b]! - whole[b]! - (exact[a]! - whole[a]!));
  const missing = 100 - whole.reduce((all, part) => all + part, 0);
  for (const i of byLoss.slice(0, missing)) whole[i]!++;
  return sections.flatMap(({ name }, i) => (whole[i] === 0 ? [] : [`${name} ${whole[i]}%`]));
}

const duration = (seconds: number): string => (seconds < 60 ? `${figure(seconds)} s` : formatSeconds(seconds));

/** A number in at most seven characters. */
export function figure(value: number): string {
  const size = Math.abs(value);
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "NaN" : value > 0 ? "inf" : "-inf";
  if (value === 0) return "0";
  if (size >= 1e4) return size >= 1e15 ? value.toExponential(0) : `${value < 0 ? "-" : ""}${formatCount(size)}`;
  if (Number.isInteger(value)) return String(value);
  if (size >= 0.001) return value.toPrecision(size < 0.01 ? 2 : size < 0.1 ? 3 : 4);
  const digits = [2, 1, 0].find((count) => value.toExponential(count).length <= 7) ?? 0;
  return value.toExponential(digits).replace(/\.?0+e/, "e");
}

const paint = (style: string, text: string, hasColor: boolean): string =>
  hasColor ? `\x1b[${style}m${text}\x1b[0m` : text;
