/**
 * Data files to rows and back: parquet, jsonl and json, by the file's extension.
 *
 * Any problem with a file becomes a `UserError` that names the file, and its row, line or column where possible.
 */
import { stat } from "node:fs/promises";
import { homedir } from "node:os";
import { extname, join } from "node:path";
import { codeOf, UserError } from "../util/errors.ts";
import { writeFileAtomic } from "../util/files.ts";
import { jsonLines, readJsonLines, readJsonList } from "./json-files.ts";
import { readParquet } from "./parquet.ts";
import { parquetBytes } from "./parquet-writer.ts";
import { isLines, type Row, type Table } from "./row.ts";

const FORMATS = ".parquet, .jsonl, .ndjson or .json (the last three also as .gz)";

/** The rows of one or several files, one after the other. */
export async function readRows(
  paths: string | readonly string[],
  { maxRows = Number.POSITIVE_INFINITY }: { maxRows?: number } = {},
): Promise<Table> {
  const rows: Row[] = [];
  for (const path of typeof paths === "string" ? [paths] : paths) {
    if (rows.length >= maxRows) break;
    for (const row of await readFileRows(expandHome(path), maxRows - rows.length)) rows.push(row);
  }
  return { rows, columns: columnsOf(rows) };
}

/** Write rows as parquet or jsonl, by the extension; the file appears complete or not at all. */
export async function writeRows(path: string, rows: readonly Readonly<Record<string, unknown>>[]): Promise<void> {
  const file = expandHome(path);
  if (extname(file) === ".parquet") return writeFileAtomic(file, parquetBytes(file, rows));
  if (isLines(file) && !file.endsWith(".gz")) return writeFileAtomic(file, jsonLines(rows));
  throw new UserError(`${path} cannot be written: the extension says the format, and it must be .parquet or .jsonl.`);
}

/** `~/data` -> `/home/me/data`. */
export function expandHome(path: string): string {
  return path === "~" || path.startsWith("~/") ? join(homedir(), path.slice(1)) : path;
}

async function readFileRows(file: string, maxRows: number): Promise<Row[]> {
  try {
    const status = await stat(file);
    if (status.isDirectory())
      throw new UserError(`${file} is a folder. Name the data files in it, such as ${join(file, "train.parquet")}.`);
    if (status.size === 0) throw new UserError(`${file} is empty (0 bytes). Write it again, or leave it out.`);
    const rows = await readerFor(file)(file, maxRows);
    if (rows.length === 0 && maxRows > 0) throw new UserError(`${file} has no rows. Write it again, or leave it out.`);
    return rows;
  } catch (error) {
    throw explainRead(file, error);
  }
}

function readerFor(file: string): (file: string, maxRows: number) => Promise<Row[]> {
  const name = file.toLowerCase();
  if (name.endsWith(".parquet")) return readParquet;
  if (isLines(name)) return readJsonLines;
  if (/\.json(\.gz)?$/.test(name)) return readJsonList;
  throw new UserError(`${file} has an extension that is not known here. Data files end in ${FORMATS}.`);
}

function explainRead(file: string, error: unknown): unknown {
  const code = codeOf(error);
  if (code === "ENOENT" || code === "ENOTDIR")
    return new UserError(
      `${file} does not exist. Check the path (\`data.train_files\`, \`data.val_files\` or \`data.path\`).`,
      {
        cause: error,
      },
    );
  if (code === "EACCES" || code === "EPERM")
    return new UserError(`${file} cannot be opened: its permissions do not allow it.`, { cause: error });
  return error;
}

/** All columns that occur, in order of appearance. */
function columnsOf(rows: readonly Row[]): string[] {
  const columns = new Set<string>();
  for (const { values } of rows) for (const name of Object.keys(values)) columns.add(name);
  return [...columns];
}
