/**
 * The footer of a parquet file: how many rows it has, and the types of its columns.
 *
 * Only for files whose rows were read before: reading them checks a damaged footer.
 */
import { asyncBufferFromFile, parquetMetadataAsync, parquetSchema } from "hyparquet";
import { type ColumnType, typeInFile } from "./column-type.ts";

/** `columns` has null for a type that is not known here. */
type ParquetHead = {
  readonly rows: number;
  readonly columns: readonly (readonly [name: string, type: ColumnType | null])[];
};

export const isParquet = (file: string): boolean => file.toLowerCase().endsWith(".parquet");

/** Read the footer of a file. */
export async function parquetHead(file: string): Promise<ParquetHead> {
  const metadata = await parquetMetadataAsync(await asyncBufferFromFile(file));
  const columns = parquetSchema(metadata).children.map((column) => [column.element.name, typeInFile(column)] as const);
  return { rows: Number(metadata.num_rows), columns };
}
