/**
 * Columns as the bytes of a parquet file that `datasets`, pandas and verl read as one of their own: native lists and
 * structs, snappy, and the description of its columns that `datasets` puts into its files.
 */
import { parquetWriteBuffer } from "hyparquet-writer";
import { type ColumnType, elementsOf, featureOf, storedAs } from "./column-type.ts";

export type Column = { readonly name: string; readonly type: ColumnType; readonly values: readonly unknown[] };

/** Rows per group, as `datasets` writes them. */
const rowGroupSize = 1000;

/** The bytes of a file with these columns, which are of one length. */
export function verlParquet(columns: readonly Column[]): Uint8Array {
  const features = Object.fromEntries(columns.map(({ name, type }) => [name, featureOf(type)]));
  return new Uint8Array(
    parquetWriteBuffer({
      columnData: columns.map(({ name, type, values }) => ({
        name,
        data: values.map((value) => storedAs(value, type)),
      })),
      schema: [
        { name: "schema", num_children: columns.length },
        ...columns.flatMap(({ name, type }) => elementsOf(name, type)),
      ],
      rowGroupSize,
      kvMetadata: [{ key: "huggingface", value: JSON.stringify({ info: { features } }) }],
    }),
  );
}
