/** `trainyard data show`: the schema of a data file and some of its rows. */
import { existsSync } from "node:fs";
import { expandHome, readRows } from "../data/files.ts";
import { isParquet, parquetHead } from "../data/prepare/parquet-head.ts";
import { isLines } from "../data/row.ts";
import { UserError } from "../util/errors.ts";
import { printColumns, printRow, printType, typeOfRows } from "./data-print.ts";
import { flagVerb } from "./flag-verb.ts";
import type { FlagValues } from "./flags.ts";

const flags = {
  rows: { kind: "count", least: 1, fallback: 2, doc: "how many rows to show" },
  from: { kind: "count", least: 1, fallback: 1, doc: "the first row to show, counted from 1" },
  full: { kind: "switch", doc: "do not cut long texts and lists" },
} as const;

export const verb = flagVerb({
  flags,
  help,
  async run({ flags: settings, words: [file, extra] }) {
    if (file === undefined) throw new UserError("There is no file to show. Name one: trainyard data show FILE.");
    if (extra !== undefined) throw new UserError(`Both ${file} and ${extra} are files. Show one of them.`);
    process.stdout.write(`${(await linesOf(file, settings)).join("\n")}\n`);
    return 0;
  },
});

/** What is shown of a file. */
async function linesOf(file: string, settings: FlagValues<typeof flags>): Promise<string[]> {
  const { rows, count, columns } = await read(checkFile(file), settings.from + settings.rows - 1);
  const counted = `${count} row${count === 1 ? "" : "s"}`;
  if (settings.from > count)
    throw new UserError(`\`--from\` is ${settings.from}, and ${file} has ${counted}. Choose a smaller number.`);
  const width = Math.max(40, process.stdout.columns ?? 80);
  const what = isLines(file) ? "line" : "row";
  const lines = [`${file}: ${counted}, ${columns.length} column${columns.length === 1 ? "" : "s"}`, ""];
  lines.push(...printColumns(columns, width));
  for (const row of rows.slice(settings.from - 1)) {
    const title = `── ${what} ${row.row} `;
    lines.push("", title.padEnd(width, "─"), ...printRow(row.values, { width, isWhole: settings.full }));
  }
  return lines;
}

/** The path of a file that must exist: the message of a row reader would name config keys, which are not used here. */
export function checkFile(file: string): string {
  const path = expandHome(file);
  if (existsSync(path)) return path;
  throw new UserError(`${file} does not exist. Check the path.`);
}

/** The first rows of a file, how many it has, and its columns with their types. */
async function read(file: string, most: number) {
  if (!isParquet(file)) {
    const { rows, columns } = await readRows(file); // how many rows there are is known after the last one
    return { rows: rows.slice(0, most), count: rows.length, columns: typeOfRows(rows, columns) };
  }
  const { rows } = await readRows(file, { maxRows: most });
  const head = await parquetHead(file);
  const columns = head.columns.map(([name, type]) => [name, type === null ? "?" : printType(type)] as const);
  return { rows, count: head.rows, columns };
}

function help(options: string): string {
  return `trainyard data show: print the schema and some rows of a parquet, jsonl or json file.

Usage: trainyard data show FILE [options]

  trainyard data show ~/data/gsm8k/train.parquet
  trainyard data show answers.jsonl --rows 1 --from 42 --full

Options
${options}
`;
}
