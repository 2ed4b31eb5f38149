/**
 * A row of data with its file and its number, so that every error about it names file, row and column.
 */
import { extname } from "node:path";
import type { z } from "zod";
import { nearest, UserError } from "../util/errors.ts";

/** One row; `row` counts from 1 and is the line number in a jsonl file. */
export type Row = {
  readonly values: Readonly<Record<string, unknown>>;
  readonly file: string;
  readonly row: number;
};

/** All rows of some files, in order, and the columns that occur in them. */
export type Table = { readonly rows: readonly Row[]; readonly columns: readonly string[] };

/** `train.parquet, row 12` or `train.jsonl, line 12`. */
export function placeOf({ file, row }: Row): string {
  return `${file}, ${isLines(file) ? "line" : "row"} ${row}`;
}

/** Whether the rows of a file are its lines. */
export function isLines(file: string): boolean {
  return [".jsonl", ".ndjson"].includes(extname(file.toLowerCase().replace(/\.gz$/, "")));
}

/** An error about one value: what was expected and what was found. */
export function rowError(row: Row, column: string, expected: string, found: unknown): UserError {
  return new UserError(`${placeOf(row)}, column \`${column}\`: expected ${expected}, found ${describe(found)}.`);
}

/** The value of a column; `key` is the setting that names the column. */
export function columnOf(row: Row, column: string, key: string): unknown {
  if (Object.hasOwn(row.values, column)) return row.values[column];
  const names = Object.keys(row.values);
  const close = nearest(column, names);
  throw new UserError(
    `${placeOf(row)}: there is no column \`${column}\`. ` +
      (names.length === 0
        ? "The row is empty. "
        : `The columns are ${names.map((name) => `\`${name}\``).join(", ")}. `) +
      (close.length === 0 ? `Name the right one with \`${key}\`.` : `Did you mean \`${key}=${close[0]}\`?`),
  );
}

/** A value checked against a schema whose error texts say what was expected ("text", "a list of messages"). */
export function parseColumn<T>(row: Row, column: string, schema: z.ZodType<T>, value: unknown): T {
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  const issue = parsed.error.issues[0];
  const path = issue?.path ?? [];
  let found = value;
  for (const step of path) found = member(found, step);
  throw rowError(row, pathText(column, path), issue?.message ?? "another value", found);
}

function member(value: unknown, step: PropertyKey): unknown {
  return typeof value === "object" && value !== null ? Reflect.get(value, step) : undefined;
}

function pathText(column: string, path: readonly PropertyKey[]): string {
  return path.reduce<string>(
    (text, step) => (typeof step === "number" ? `${text}[${step}]` : `${text}.${String(step)}`),
    column,
  );
}

/** A value in a few words, for messages. */
export function describe(value: unknown): string {
  if (value === undefined) return "nothing";
  if (value === null) return "null";
  if (typeof value === "string") return value === "" ? "an empty text" : `the text ${shortened(JSON.stringify(value))}`;
  if (Array.isArray(value)) return value.length === 0 ? "an empty list" : `a list of ${value.length}`;
  if (value instanceof Uint8Array) return `${value.length} bytes`;
  if (value instanceof Date) return "a date";
  if (typeof value === "object") {
    const keys = Object.keys(value);
    return keys.length === 0 ? "an object without keys" : `an object with ${shortened(keys.join(", "))}`;
  }
  return `the ${typeof value} ${String(value)}`;
}

function shortened(text: string): string {
  return text.length <= 60 ? text : `${text.slice(0, 57)}…`;
}
