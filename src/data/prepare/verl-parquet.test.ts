import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { afterAll, describe, expect, test } from "vitest";
import { readRows } from "../files.ts";
import { type ColumnType, typeOfValues } from "./column-type.ts";
import { parquetHead } from "./parquet-head.ts";
import { verlParquet } from "./verl-parquet.ts";

const folder = mkdtempSync(join(tmpdir(), "trainyard-parquet-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** A type, and values that have it. */
type Typed = { readonly type: ColumnType; readonly values: fc.Arbitrary<unknown> };

const leaf = (name: "string" | "bool" | "int64" | "float64", values: fc.Arbitrary<unknown>): Typed => ({
  type: { kind: "leaf", leaf: name },
  values,
});
const leaves: readonly Typed[] = [
  leaf("string", fc.string({ unit: "grapheme" })),
  leaf("bool", fc.boolean()),
  leaf(
    "int64",
    fc.maxSafeInteger().filter((value) => !Object.is(value, -0)),
  ),
  leaf(
    "float64",
    fc
      .double({ noNaN: true, noDefaultInfinity: true })
      .map((value) => value + 0.5)
      .filter((it) => !Number.isInteger(it)),
  ),
];

function typed(depth: number): fc.Arbitrary<Typed> {
  const plain = fc.constantFrom(...leaves);
  if (depth === 0) return plain;
  const inner = typed(depth - 1);
  const list = inner.map(
    ({ type, values }): Typed => ({
      type: { kind: "list", element: type },
      values: fc.array(fc.option(values), { minLength: 1, maxLength: 3 }),
    }),
  );
  const struct = fc
    .uniqueArray(fc.tuple(fc.stringMatching(/^[a-z]{1,3}$/), inner), {
      minLength: 1,
      maxLength: 3,
      selector: ([name]) => name,
    })
    .map((fields): Typed => {
      const sorted = fields.sort(([a], [b]) => (a < b ? -1 : 1));
      return {
        type: { kind: "struct", fields: sorted.map(([name, { type }]) => [name, type]) },
        values: fc.record(Object.fromEntries(sorted.map(([name, { values }]) => [name, fc.option(values)]))),
      };
    });
  return fc.oneof(plain, list, struct);
}

describe("columns of any type", () => {
  test("are read back as they were, with the same types", async () => {
    const columns = typed(3).chain(({ type, values }) =>
      fc.record({ type: fc.constant(type), values: fc.array(fc.option(values), { minLength: 1, maxLength: 5 }) }),
    );
    await fc.assert(
      fc.asyncProperty(columns, async ({ type, values }) => {
        const file = join(folder, "column.parquet");
        writeFileSync(file, verlParquet([{ name: "it", type, values }]));
        expect((await readRows(file)).rows.map((row) => row.values.it)).toEqual(values);
        expect(await parquetHead(file)).toEqual({ rows: values.length, columns: [["it", type]] });
      }),
      { numRuns: 150 },
    );
  });

  test("have the type of their values, whatever the order of rows and of keys", () => {
    fc.assert(
      fc.property(
        typed(2).chain(({ type, values }) =>
          fc.tuple(fc.constant(type), fc.array(values, { minLength: 1, maxLength: 4 })),
        ),
        ([, values]) => {
          const turned = JSON.parse(JSON.stringify(values), (_, value: unknown) =>
            typeof value === "object" && value !== null && !Array.isArray(value)
              ? Object.fromEntries(Object.entries(value).reverse())
              : value,
          ).reverse();
          expect(typeOfValues(turned, String)).toEqual(typeOfValues(values, String));
        },
      ),
      { numRuns: 150 },
    );
  });
});

test("a column of nulls has the type null, and an object without keys is null", () => {
  expect(typeOfValues([null, undefined, {}], String)).toEqual({ kind: "leaf", leaf: "null" });
});

test("values of two types are refused, with the place of the second", () => {
  const values = [{ a: [1, 2] }, { a: [3, "four"] }];
  expect(() => typeOfValues(values, (index) => `row ${index + 1}`)).toThrow(
    /^row 2\.a\[1\] is the text "four", where a parquet column needs one type and earlier rows have type int64\./,
  );
});
