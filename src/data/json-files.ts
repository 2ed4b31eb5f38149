/**
 * Rows of .jsonl, .ndjson and .json files, plain or gzipped.
 *
 * Lines are read one at a time from a stream, so a file may be larger than memory allows for one string. A `.json` file
 * is a list of objects, `{"data": [...]}`, or (as Hugging Face's loader allows) one object per line.
 */
import { createReadStream } from "node:fs";
import { createGunzip } from "node:zlib";
import { messageOf, UserError } from "../util/errors.ts";
import { describe, type Row } from "./row.ts";

const OBJECT_ADVICE = 'Each row must be an object such as {"prompt": "…"}.';

/** The rows of a file with one JSON object per line; blank lines are left out. */
export async function readJsonLines(file: string, maxRows: number): Promise<Row[]> {
  const rows: Row[] = [];
  if (maxRows <= 0) return rows;
  let line = 0;
  for await (const text of linesOf(file)) {
    line++;
    if (text.trim() === "") continue;
    rows.push({ values: parseObject(file, line, text), file, row: line });
    if (rows.length >= maxRows) break;
  }
  return rows;
}

/** The rows of a file that holds one JSON list. */
export async function readJsonList(file: string, maxRows: number): Promise<Row[]> {
  const parts: string[] = [];
  for await (const text of textOf(file)) parts.push(text);
  const text = parts.join("");
  let list: unknown;
  try {
    list = JSON.parse(text);
  } catch (error) {
    if (isObjectText(text.trimStart().split("\n", 1)[0] ?? "")) return readJsonLines(file, maxRows);
    throw brokenJson(file, text, error);
  }
  if (isObject(list)) list = Object.hasOwn(list, "data") ? list.data : [list];
  if (!Array.isArray(list))
    throw new UserError(`${file} holds ${describe(list)}, not a list. Write it as [{…}, {…}] or {"data": [{…}, {…}]}.`);
  return list.slice(0, maxRows).map((values: unknown, index) => {
    if (!isObject(values))
      throw new UserError(`${file}, row ${index + 1} is ${describe(values)}, not an object. ${OBJECT_ADVICE}`);
    return { values, file, row: index + 1 };
  });
}

/** Rows as JSON lines; integers above 2^53 become texts, because JSON readers would round them. */
export function jsonLines(rows: readonly Readonly<Record<string, unknown>>[]): Uint8Array {
  const exact = (_key: string, value: unknown) => {
    if (typeof value !== "bigint") return value;
    return Number.isSafeInteger(Number(value)) ? Number(value) : String(value);
  };
  return Buffer.concat(rows.map((row) => Buffer.from(`${JSON.stringify(row, exact)}\n`)));
}

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function isObjectText(text: string): boolean {
  try {
    return isObject(JSON.parse(text));
  } catch {
    return false;
  }
}

function parseObject(file: string, line: number, text: string): Record<string, unknown> {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw brokenJson(file, text, error, line);
  }
  if (isObject(value)) return value;
  throw new UserError(`${file}, line ${line} is ${describe(value)}, not an object. ${OBJECT_ADVICE}`);
}

/** The text of a file in pieces, without a byte order mark; bytes that are not UTF-8 are refused. */
async function* textOf(file: string): AsyncGenerator<string> {
  const decoder = new TextDecoder("utf-8", { fatal: true });
  const source = createReadStream(file);
  const bytes = file.toLowerCase().endsWith(".gz") ? source.pipe(createGunzip()) : source;
  // A pipe does not forward errors: without this, the reader would wait forever after a read error.
  if (bytes !== source) source.on("error", (error) => bytes.destroy(error));
  let offset = 0;
  try {
    for await (const chunk of bytes) {
      yield decode(() => decoder.decode(chunk, { stream: true }), file, offset);
      offset += chunk.length;
    }
    yield decode(() => decoder.decode(), file, offset);
  } catch (error) {
    if (bytes === source || error instanceof UserError) throw error;
    throw new UserError(
      `${file} is not a complete gzip file (${messageOf(error)}). Copy or compress it again, or name it without .gz.`,
      { cause: error },
    );
  } finally {
    source.destroy();
    bytes.destroy();
  }
}

function decode(step: () => string, file: string, offset: number): string {
  try {
    return step();
  } catch (error) {
    throw new UserError(`${file} is not UTF-8 text (after byte ${offset}). Save it as UTF-8, or check its format.`, {
      cause: error,
    });
  }
}

async function* linesOf(file: string): AsyncGenerator<string> {
  let pending: string[] = []; // the current line in pieces, so that a long line is joined only once
  for await (const text of textOf(file)) {
    let start = 0;
    for (let end = text.indexOf("\n"); end >= 0; end = text.indexOf("\n", start)) {
      pending.push(text.slice(start, end));
      yield pending.join("");
      pending = [];
      start = end + 1;
    }
    if (start < text.length) pending.push(text.slice(start));
  }
  if (pending.length > 0) yield pending.join("");
}

function brokenJson(file: string, text: string, error: unknown, line?: number): UserError {
  const { position, isCutShort } = firstFault(text);
  const before = text.slice(0, position).split("\n");
  const where = `line ${line ?? before.length}, column ${(before.at(-1)?.length ?? 0) + 1}`;
  const what = isCutShort ? "the text ends before the value does" : `unexpected ${excerpt(text.slice(position))}`;
  return new UserError(`${file}, ${where}: not JSON: ${what}. Correct or remove that ${line ? "line" : "place"}.`, {
    cause: error,
  });
}

/**
 * The place of a syntax error in JSON. The engine's own message often lacks it, so the shortest prefix that cannot be
 * the start of a JSON text is found by bisection; its last character is the error.
 */
function firstFault(text: string): { position: number; isCutShort: boolean } {
  if (canContinue(text)) return { position: text.trimEnd().length, isCutShort: true };
  let good = 0;
  let bad = text.length;
  while (bad - good > 1) {
    const middle = (good + bad) >> 1;
    if (canContinue(text.slice(0, middle))) good = middle;
    else bad = middle;
  }
  return { position: good, isCutShort: false };
}

/** Whether a text is JSON or could become JSON by adding to its end. */
function canContinue(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch (error) {
    const message = messageOf(error);
    if (/unexpected end|unterminated/i.test(message)) return true;
    const position = /at position (\d+)/.exec(message)?.[1];
    return position !== undefined && Number(position) >= text.length;
  }
}

function excerpt(text: string): string {
  const shown = text.slice(0, 20).split("\n", 1)[0] ?? "";
  return shown === "" ? "end of line" : `\`${shown}${text.length > 20 ? "…" : ""}\``;
}
