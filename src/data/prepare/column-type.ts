/**
 * Types of parquet columns: the one a source file has, or the one that follows from the values, as Arrow infers it.
 *
 * Arrow's rules as the files of verl's scripts have them: whole numbers take 64 bits, the fields of a struct are sorted
 * by name, and what is null in every row has the type null. (Newer releases of Arrow keep the order in which fields were
 * first seen; readers go by name.) A column that is copied unchanged keeps the type of its source.
 */
import type { SchemaElement, SchemaTree } from "hyparquet";
import { UserError } from "../../util/errors.ts";
import { isObject } from "../json-files.ts";
import { describe } from "../row.ts";

/** What `datasets` calls the type of a value without parts. */
type Leaf = "null" | "bool" | "int32" | "int64" | "float32" | "float64" | "string" | "binary";

export type ColumnType =
  | { readonly kind: "leaf"; readonly leaf: Leaf }
  | { readonly kind: "list"; readonly element: ColumnType }
  | { readonly kind: "struct"; readonly fields: readonly (readonly [name: string, type: ColumnType])[] };

const leaves: Readonly<Record<Leaf, Omit<SchemaElement, "name">>> = {
  null: { type: "INT32", logical_type: { type: "NULL" } },
  bool: { type: "BOOLEAN" },
  int32: { type: "INT32" },
  int64: { type: "INT64" },
  float32: { type: "FLOAT" },
  float64: { type: "DOUBLE" },
  string: { type: "BYTE_ARRAY", converted_type: "UTF8", logical_type: { type: "STRING" } },
  binary: { type: "BYTE_ARRAY" },
};
const leafNames = Object.keys(leaves) as readonly Leaf[]; // the keys of a total record

const leafType = (leaf: Leaf): ColumnType => ({ kind: "leaf", leaf });

/** The type of a column in a parquet file; null for any other type. */
export function typeInFile({ element, children }: SchemaTree): ColumnType | null {
  if (element.repetition_type === "REPEATED") return null;
  if (element.converted_type === "LIST" || element.logical_type?.type === "LIST") {
    const [repeated, ...others] = children;
    const [item, ...more] = repeated?.children ?? [];
    if (item === undefined || others.length > 0 || more.length > 0) return null;
    const inner = typeInFile(item);
    return inner && { kind: "list", element: inner };
  }
  if (children.length > 0) {
    const fields = children.map((child) => [child.element.name, typeInFile(child)] as const);
    const known = fields.flatMap(([name, type]) => (type === null ? [] : [[name, type] as const]));
    const isStruct = element.converted_type === undefined && known.length === fields.length;
    return isStruct ? { kind: "struct", fields: known } : null;
  }
  const leaf = leafNames.find((name) => isLeaf(element, leaves[name]));
  return leaf === undefined ? null : leafType(leaf);
}

function isLeaf(element: SchemaElement, leaf: Omit<SchemaElement, "name">): boolean {
  const isText = (it: Omit<SchemaElement, "name">) =>
    it.converted_type === "UTF8" || it.logical_type?.type === "STRING";
  if (isText(element) || isText(leaf)) return isText(element) && isText(leaf);
  return (
    element.type === leaf.type &&
    element.converted_type === undefined &&
    element.logical_type?.type === leaf.logical_type?.type
  );
}

/** The type that holds all values; `where` names the place of a value that does not fit the others. */
export function typeOfValues(values: readonly unknown[], where: (index: number) => string): ColumnType {
  let type: ColumnType = leafType("null");
  for (const [index, value] of values.entries()) type = merge(type, value, () => where(index));
  return type;
}

function merge(before: ColumnType, value: unknown, where: () => string): ColumnType {
  if (value === null || value === undefined) return before;
  const isOpen = before.kind === "leaf" && before.leaf === "null";
  if (Array.isArray(value)) {
    if (!isOpen && before.kind !== "list") throw mixed(before, value, where());
    let element = before.kind === "list" ? before.element : leafType("null");
    for (const [i, item] of value.entries()) element = merge(element, item, () => `${where()}[${i}]`);
    return { kind: "list", element };
  }
  const leaf = leafOf(value);
  if (leaf !== null) {
    if (isOpen || (before.kind === "leaf" && before.leaf === leaf)) return isOpen ? leafType(leaf) : before;
    const numbers: readonly string[] = ["int64", "float64"];
    if (before.kind === "leaf" && numbers.includes(before.leaf) && numbers.includes(leaf)) return leafType("float64");
    throw mixed(before, value, where());
  }
  if (!isObject(value) || (!isOpen && before.kind !== "struct")) throw mixed(before, value, where());
  const fields = new Map(before.kind === "struct" ? before.fields : []);
  for (const [key, item] of Object.entries(value))
    fields.set(
      key,
      merge(fields.get(key) ?? leafType("null"), item, () => `${where()}.${key}`),
    );
  if (fields.size === 0) return before; // parquet has no struct without fields
  return { kind: "struct", fields: [...fields].sort(([a], [b]) => (a < b ? -1 : 1)) };
}

function leafOf(value: unknown): Leaf | null {
  if (typeof value === "string") return "string";
  if (typeof value === "boolean") return "bool";
  if (typeof value === "bigint") return "int64";
  if (typeof value === "number") return Number.isSafeInteger(value) && !Object.is(value, -0) ? "int64" : "float64";
  return value instanceof Uint8Array ? "binary" : null;
}

function mixed(before: ColumnType, value: unknown, where: string): UserError {
  const earlier = before.kind === "leaf" ? before.leaf : before.kind;
  const seen = earlier === "null" ? "" : ` and earlier rows have type ${earlier}`;
  return new UserError(
    `${where} is ${describe(value)}, where a parquet column needs one type${seen}. Give all rows the same type.`,
  );
}

/** The schema elements of a column: its own, then those of its parts. */
export function elementsOf(name: string, type: ColumnType): SchemaElement[] {
  const optional = { name, repetition_type: "OPTIONAL" } as const;
  switch (type.kind) {
    case "leaf":
      return [{ ...optional, ...leaves[type.leaf] }];
    case "list":
      return [
        { ...optional, converted_type: "LIST", logical_type: { type: "LIST" }, num_children: 1 },
        { name: "list", repetition_type: "REPEATED", num_children: 1 },
        ...elementsOf("element", type.element),
      ];
    case "struct":
      return [
        { ...optional, num_children: type.fields.length },
        ...type.fields.flatMap(([field, inner]) => elementsOf(field, inner)),
      ];
  }
  return type satisfies never;
}

/** A value in the form that the writer of parquet takes for its type. */
export function storedAs(value: unknown, type: ColumnType): unknown {
  if (value === null || value === undefined) return null;
  switch (type.kind) {
    case "leaf":
      if (type.leaf === "null") return null;
      if (type.leaf === "int64" && typeof value === "number") return BigInt(value);
      return type.leaf === "float64" && typeof value === "bigint" ? Number(value) : value;
    case "list":
      return Array.isArray(value) ? value.map((item: unknown) => storedAs(item, type.element)) : null;
    case "struct":
      if (!isObject(value)) return null;
      return Object.fromEntries(type.fields.map(([field, inner]) => [field, storedAs(value[field], inner)]));
  }
  return type satisfies never;
}

/** Whether a column holds pictures as `datasets` keeps them: their bytes, or where they are. */
export function isPicture(type: ColumnType): boolean {
  if (type.kind !== "struct" || type.fields.length !== 2) return false;
  return type.fields.every(([name, inner]) => inner.kind === "leaf" && pictureParts[name] === inner.leaf);
}

const pictureParts: Readonly<Record<string, Leaf | undefined>> = { bytes: "binary", path: "string" };

/** The type as `datasets` writes it into a file, in the form that all its releases read. */
export function featureOf(type: ColumnType): unknown {
  if (isPicture(type)) return { _type: "Image" };
  switch (type.kind) {
    case "leaf":
      return { dtype: type.leaf, _type: "Value" };
    case "list": {
      const inner = featureOf(type.element);
      const isStruct = type.element.kind === "struct" && !isPicture(type.element);
      return isStruct || Array.isArray(inner) ? [inner] : { feature: inner, _type: "Sequence" };
    }
    case "struct":
      return Object.fromEntries(type.fields.map(([field, inner]) => [field, featureOf(inner)]));
  }
  return type satisfies never;
}
