/**
 * Rows of data as text for a terminal: conversations turn by turn, objects by their keys, long texts wrapped and cut.
 *
 * Nothing that a file holds can move the cursor or change colours: control characters become visible signs. Where
 * something is cut, a line says how much.
 */
import { isObject } from "../data/json-files.ts";
import { type ColumnType, isPicture, typeOfValues } from "../data/prepare/column-type.ts";
import { describe, type Row } from "../data/row.ts";
import { printable, textWidth, wrap } from "../track/text-width.ts";
import { UserError } from "../util/errors.ts";

export type PrintOptions = {
  readonly width: number;
  /** Cut nothing. */
  readonly isWhole: boolean;
};

/** How many lines of one text, and entries of one list, are shown. */
const maxLines = 12;
const maxItems = 8;
/** The smallest width of a text in terminal columns, however deep it is nested. */
const leastWidth = 20;

/** The lines of a row: every column with its value. */
export function printRow(values: Readonly<Record<string, unknown>>, options: PrintOptions): string[] {
  return printFields(values, options);
}

function printFields(values: Readonly<Record<string, unknown>>, options: PrintOptions): string[] {
  const entries = Object.entries(values).map(([name, value]) => [printable(name), value] as const);
  const inLine = entries.filter(([, value]) => !isNested(value)).map(([name]) => textWidth(name));
  const names = Math.min(24, Math.max(0, ...inLine));
  return entries.flatMap(([name, value]) => {
    if (isNested(value)) return [name, ...indent(printValue(value, narrower(options, 2)), "  ")];
    return beside(`${name}${" ".repeat(Math.max(0, names - textWidth(name)))}  `, value, options);
  });
}

/** Whether a value is shown below its name instead of beside it. */
function isNested(value: unknown): boolean {
  if (Array.isArray(value)) return value.some((item) => isObject(item) && !(item instanceof Uint8Array));
  return isObject(value) && !isLeafObject(value) && Object.keys(value).length > 0;
}

const isLeafObject = (value: unknown): boolean =>
  value instanceof Uint8Array || value instanceof Date || pictureBytes(value) !== null;

function printValue(value: unknown, options: PrintOptions): string[] {
  if (isChat(value)) return printChat(value, options);
  if (Array.isArray(value) && isNested(value)) return printList(value, options);
  if (isObject(value) && isNested(value)) return printFields(value, options);
  return cut(wrap(plainText(value), options.width), options);
}

function printList(items: readonly unknown[], options: PrintOptions): string[] {
  const shown = options.isWhole ? items : items.slice(0, maxItems);
  const lines = shown.flatMap((item) => {
    const [first = "", ...rest] = printValue(item, narrower(options, 2));
    return [`- ${first}`, ...indent(rest, "  ")];
  });
  const left = items.length - shown.length;
  return left === 0 ? lines : [...lines, `… ${left} more of ${items.length}`];
}

type ChatMessage = Readonly<Record<string, unknown>> & { readonly role: string };

function isChat(value: unknown): value is readonly ChatMessage[] {
  const isMessage = (item: unknown) => isObject(item) && typeof item.role === "string" && "content" in item;
  return Array.isArray(value) && value.length > 0 && value.every(isMessage);
}

/** Every turn with its role in front; the other keys of a message, such as tool calls, are shown below its text. */
function printChat(messages: readonly ChatMessage[], options: PrintOptions): string[] {
  const roles = Math.min(12, Math.max(...messages.map(({ role }) => textWidth(printable(role)))));
  return messages.flatMap(({ role, content, ...others }) => {
    const label = printable(role).slice(0, 12).padEnd(roles);
    const more = Object.entries(others).filter(([, value]) => value !== null && value !== undefined);
    const texts = [...(content === null && more.length > 0 ? [] : contentOf(content)), ...more.map(extraOf)];
    const inner = narrower(options, roles + 3);
    const lines = texts.flatMap((text) => cut(wrap(text, inner.width), inner));
    return lines.map((line, index) => `${index === 0 ? label : " ".repeat(roles)} │ ${line}`.trimEnd());
  });
}

const extraOf = ([key, value]: readonly [string, unknown]): string => `${key}: ${plainText(value)}`;

/** The texts of a content: one, or one per part. */
function contentOf(content: unknown): string[] {
  if (!Array.isArray(content)) return [plainText(content)];
  return content.map((part: unknown) => {
    if (!isObject(part)) return plainText(part);
    return typeof part.text === "string" ? part.text : `[${String(part.type ?? "part")}]`;
  });
}

/** A value in one text: as it is, or as JSON. */
function plainText(value: unknown): string {
  if (typeof value === "string") return value === "" ? '""' : value;
  if (value === undefined || value === null) return "null";
  if (value instanceof Uint8Array) return describe(value);
  if (value instanceof Date) return value.toISOString();
  const bytes = pictureBytes(value);
  if (bytes !== null) return `picture of ${bytes} bytes`;
  return typeof value === "object" ? JSON.stringify(value, plainJson) : String(value);
}

/** The size of a picture in the form that `datasets` stores it in; null for anything else. */
function pictureBytes(value: unknown): number | null {
  return isObject(value) && value.bytes instanceof Uint8Array && "path" in value ? value.bytes.length : null;
}

const plainJson = (_key: string, value: unknown): unknown => {
  if (typeof value === "bigint") return String(value);
  return value instanceof Uint8Array ? describe(value) : value;
};

/** A text beside its name; its other lines below the first. */
function beside(name: string, value: unknown, options: PrintOptions): string[] {
  const inner = narrower(options, textWidth(name));
  const lines = cut(wrap(plainText(value), inner.width), inner);
  return lines.map((line, index) => `${index === 0 ? name : " ".repeat(textWidth(name))}${line}`.trimEnd());
}

function narrower({ width, isWhole }: PrintOptions, by: number): PrintOptions {
  return { width: Math.max(leastWidth, width - by), isWhole };
}

function indent(lines: readonly string[], by: string): string[] {
  return lines.map((line) => by + line);
}

function cut(lines: string[], { isWhole }: PrintOptions): string[] {
  if (isWhole || lines.length <= maxLines) return lines;
  const left = lines.slice(maxLines - 1);
  const characters = left.reduce((sum, line) => sum + line.length, 0);
  return [
    ...lines.slice(0, maxLines - 1),
    `… ${characters} more characters in ${left.length} lines (--full shows them)`,
  ];
}

/** The lines of a schema: every column with its type. */
export function printColumns(columns: readonly (readonly [name: string, type: string])[], width: number): string[] {
  return indent(printFields(Object.fromEntries(columns), { width: width - 2, isWhole: true }), "  ");
}

/** A type as text: `list of {content: string, role: string}`. */
export function printType(type: ColumnType): string {
  if (isPicture(type)) return "picture";
  if (type.kind === "list") return `list of ${printType(type.element)}`;
  if (type.kind === "leaf") return type.leaf;
  return `{${type.fields.map(([name, inner]) => `${printable(name)}: ${printType(inner)}`).join(", ")}}`;
}

/** The columns of rows without a schema, with the types of their values. */
export function typeOfRows(rows: readonly Row[], columns: readonly string[]): (readonly [string, string])[] {
  return columns.map((name) => {
    const values = rows.map(({ values: row }) => row[name]);
    try {
      return [name, printType(typeOfValues(values, () => ""))];
    } catch (error) {
      if (!(error instanceof UserError)) throw error;
      return [name, "of several types"];
    }
  });
}
