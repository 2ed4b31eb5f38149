/**
 * Rows as the bytes of a parquet file, with native lists and structs so that pandas, polars and verl read them.
 *
 * Column types are found from the values. A value that is absent in some rows is null there. Objects that never have a
 * key cannot be structs (parquet has no empty struct) and are written as JSON.
 */
import type { SchemaElement } from "hyparquet";
import { parquetWriteBuffer } from "hyparquet-writer";
import { UserError } from "../util/errors.ts";
import { isObject } from "./json-files.ts";
import { describe } from "./row.ts";

type Records = readonly Readonly<Record<string, unknown>>[];

/** The type of a column or of a part of it, as far as the values so far show. */
type Kind =
  | { readonly kind: "null" | "boolean" | "integer" | "double" | "text" | "bytes" | "date" }
  | { readonly kind: "list"; readonly element: Kind }
  | { readonly kind: "struct"; readonly fields: ReadonlyMap<string, Kind> };

const ROWS_PER_GROUP = 10_000;

/** The bytes of a snappy-compressed parquet file with these rows. */
export function parquetBytes(path: string, rows: Records): Uint8Array {
  const columns = new Map<string, Kind>();
  for (const [index, row] of rows.entries())
    for (const [name, value] of Object.entries(row))
      columns.set(name, merge(columns.get(name), value, `${path}, row ${index + 1}, column \`${name}\``));
  if (columns.size === 0) throw new UserError(`${path} cannot be written: there are no rows, so there are no columns.`);
  const kinds = [...columns];
  return new Uint8Array(
    parquetWriteBuffer({
      columnData: kinds.map(([name, kind]) => ({ name, data: rows.map((row) => stored(row[name], kind)) })),
      schema: [
        { name: "schema", num_children: kinds.length },
        ...kinds.flatMap(([name, kind]) => elements(name, kind)),
      ],
      rowGroupSize: ROWS_PER_GROUP,
    }),
  );
}

/** The type that holds what was seen before and this value too. */
function merge(seen: Kind | undefined, value: unknown, where: string): Kind {
  const before: Kind = seen ?? { kind: "null" };
  if (value === null || value === undefined) return before;
  if (Array.isArray(value)) {
    if (before.kind !== "list" && before.kind !== "null") throw mixed(before, value, where);
    let element: Kind = before.kind === "list" ? before.element : { kind: "null" };
    for (const [i, item] of value.entries()) element = merge(element, item, `${where}[${i}]`);
    return { kind: "list", element };
  }
  const scalar = scalarKind(value);
  if (scalar !== null) {
    if (before.kind === "null" || before.kind === scalar) return { kind: scalar };
    const numbers = ["integer", "double"];
    if (numbers.includes(before.kind) && numbers.includes(scalar)) return { kind: "double" };
    throw mixed(before, value, where);
  }
  if (!isObject(value)) throw mixed(before, value, where);
  if (before.kind !== "struct" && before.kind !== "null") throw mixed(before, value, where);
  const fields = new Map(before.kind === "struct" ? before.fields : []);
  for (const [key, item] of Object.entries(value)) fields.set(key, merge(fields.get(key), item, `${where}.${key}`));
  return { kind: "struct", fields };
}

function scalarKind(value: unknown): "boolean" | "integer" | "double" | "text" | "bytes" | "date" | null {
  if (typeof value === "string") return "text";
  if (typeof value === "boolean") return "boolean";
  if (typeof value === "bigint") return "integer";
  // Minus zero is a double; as a whole number it would lose its sign.
  if (typeof value === "number") return Number.isSafeInteger(value) && !Object.is(value, -0) ? "integer" : "double";
  if (value instanceof Uint8Array) return "bytes";
  return value instanceof Date ? "date" : null;
}

function mixed(before: Kind, value: unknown, where: string): UserError {
  return new UserError(
    `${where} is ${describe(value)}, where a parquet column needs one type` +
      `${before.kind === "null" ? "" : ` and earlier rows have type ${before.kind}`}. ` +
      "Give all rows the same type, or write a .jsonl file.",
  );
}

/** The schema of a column: its element, followed by its children's. */
function elements(name: string, kind: Kind): SchemaElement[] {
  const optional = { name, repetition_type: "OPTIONAL" } as const;
  switch (kind.kind) {
    case "boolean":
      return [{ ...optional, type: "BOOLEAN" }];
    case "integer":
      return [{ ...optional, type: "INT64" }];
    case "double":
      return [{ ...optional, type: "DOUBLE" }];
    case "null": // all values are null, so any type will do
    case "text":
      return [{ ...optional, type: "BYTE_ARRAY", converted_type: "UTF8" }];
    case "bytes":
      return [{ ...optional, type: "BYTE_ARRAY" }];
    case "date":
      return [{ ...optional, type: "INT64", converted_type: "TIMESTAMP_MILLIS" }];
    case "list":
      return [
        { ...optional, converted_type: "LIST", num_children: 1 },
        { name: "list", repetition_type: "REPEATED", num_children: 1 },
        ...elements("element", kind.element),
      ];
    case "struct":
      if (kind.fields.size === 0) return [{ ...optional, type: "BYTE_ARRAY", converted_type: "JSON" }];
      return [
        { ...optional, num_children: kind.fields.size },
        ...[...kind.fields].flatMap(([key, field]) => elements(key, field)),
      ];
  }
  return kind satisfies never;
}

/** A value in the form that the writer takes for its type. */
function stored(value: unknown, kind: Kind): unknown {
  if (value === null || value === undefined) return null;
  if (kind.kind === "integer" && typeof value === "number") return BigInt(value);
  if (kind.kind === "double" && typeof value === "bigint") return Number(value);
  if (kind.kind === "list" && Array.isArray(value)) return value.map((item: unknown) => stored(item, kind.element));
  if (kind.kind === "struct" && kind.fields.size > 0 && isObject(value))
    return Object.fromEntries([...kind.fields].map(([key, field]) => [key, stored(value[key], field)]));
  return value;
}
