/**
 * What the metric table is for: finding what a name means, and the page docs/metrics.md, which `node scripts/docs.ts`
 * writes. All of its text is in the table.
 */
import { metricTable } from "./table.ts";
import type { MetricRow } from "./table-row.ts";

/** The row that describes a metric, or null for a name that no row covers. */
export function findMetric(name: string): MetricRow | null {
  return matchers.find(({ pattern }) => pattern.test(name))?.row ?? null;
}

const matchers = metricTable.flatMap(({ rows }) => rows.map((row) => ({ row, pattern: patternOf(row.name) })));

/** The page. */
export function metricReference(): string {
  const sections = metricTable.map(({ title, from, rows }) =>
    [
      `## ${title}`,
      from.startsWith("train/") ? "Logged by the training loop." : `Made in \`src/${from}\`.`,
      table(
        ["metric", "unit", "meaning", "when to worry"],
        rows.map(({ name, unit, meaning, worry }) => [`\`${name}\``, unit, meaning, worry]),
      ),
    ].join("\n\n"),
  );
  return `${[introduction, ...sections].join("\n\n")}\n`;
}

const introduction = `<!-- Made by scripts/docs.ts from src/algos/metrics/table.ts; do not edit. -->

# Metrics

One line of \`metrics.jsonl\` holds the metrics of one step: \`{"step": 7, "data": {"critic/score/mean": 0.41, …}}\`. The names are verl's. In a name, \`{mean,max,min}\` stands for one of these and \`{section}\` for anything.

- A statistic of nothing is absent: a step without a finished episode has no \`critic/score/mean\`. No metric is NaN for want of data.
- Values over mini-batches or workers become one: the largest if the name contains \`max\`, the smallest if it contains \`min\`, else their mean.
- Names that begin with \`timing_\` or \`perf/\` depend on the clock; all others are equal in two runs of one config.`;

function table(header: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]) => `| ${cells.map((cell) => cell.replaceAll("|", "\\|")).join(" | ")} |`;
  return [line(header), line(header.map(() => "---")), ...rows.map(line)].join("\n");
}

/** What matches the names that a name of the table stands for. */
export function patternOf(name: string): RegExp {
  const escaped = (text: string) => text.replace(/[^\w/@-]/g, "\\$&");
  const parts = name.split(/(\{[^}]*\})/).map((part) => {
    if (!part.startsWith("{")) return escaped(part);
    return part.includes(",") ? `(?:${part.slice(1, -1).split(",").map(escaped).join("|")})` : ".+";
  });
  return new RegExp(`^${parts.join("")}$`);
}
