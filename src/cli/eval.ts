/** `trainyard eval`: the scores of the responses of a file, as a table or as JSON. */
import { evalSchema } from "../config/eval/schema.ts";
import type { EvalReport, Figures } from "../train/evaluate/evaluate.ts";
import { writeFileAtomic } from "../util/files.ts";
import { info } from "../util/log.ts";
import { configVerb } from "./config-verb.ts";
import type { Verb } from "./verb.ts";

export const verb: Verb = configVerb({
  schema: evalSchema,
  examples: [
    "trainyard eval data.path=answers.parquet",
    "trainyard eval data.path=answers.jsonl custom_reward_function.path=reward.ts --json",
    "trainyard eval data.path=answers.parquet data.group_key=extra_info.level data.output_path=scores.json",
  ],
  switches: { json: "print the scores as JSON instead of a table" },
  async run(config, { switches, ...context }) {
    const { evaluate } = await import("../train/evaluate/evaluate.ts");
    const { rows, ...report } = await evaluate(config, context);
    const { output_path: output } = config.data;
    if (output !== null) {
      await writeFileAtomic(output, `${JSON.stringify({ ...report, rows }, null, 2)}\n`);
      info(`The score of every response is in ${output}.`);
    }
    process.stdout.write(switches.has("json") ? `${JSON.stringify(report, null, 2)}\n` : table(report));
  },
});

/** One line per data source, its groups below it. */
function table({ figures }: Pick<EvalReport, "figures">): string {
  const counts = [...new Set(figures.flatMap(({ pass }) => Object.keys(pass).map(Number)))].sort((a, b) => a - b);
  const hasFailures = figures.some(({ failed }) => failed > 0);
  const header = ["data source", "rows", "responses", ...(hasFailures ? ["failed"] : []), "test_score"];
  const lines = figures.map((row) => [
    row.group === null ? row.dataSource : `  ${row.group}`,
    ...[row.rows, row.responses, ...(hasFailures ? [row.failed] : [])].map(String),
    row.testScore === null ? "-" : row.testScore.toFixed(4),
    ...counts.map((k) => passAt(row, k)),
  ]);
  const cells = [[...header, ...counts.map((k) => `pass@${k}`)], ...lines];
  const widths = cells[0]?.map((_, column) => Math.max(...cells.map((line) => line[column]?.length ?? 0))) ?? [];
  const aligned = (line: readonly string[]) =>
    line.map((cell, i) => (i === 0 ? cell.padEnd(widths[i] ?? 0) : cell.padStart(widths[i] ?? 0))).join("  ");
  return `${cells.map((line) => aligned(line).trimEnd()).join("\n")}\n`;
}

function passAt({ pass }: Figures, k: number): string {
  return pass[k] === undefined ? "-" : pass[k].toFixed(4);
}
