/**
 * Rows of parquet files, read one row group at a time so that the bytes of only one group are in memory at a time.
 *
 * Values come out as plain JavaScript: whole numbers are numbers where they fit, lists are arrays, structs are objects,
 * absent values are null. Binary columns stay bytes. Sizes are checked (`parquet-guard.ts`) before anything is decoded.
 */
import { type FileHandle, open } from "node:fs/promises";
import { type FileMetaData, parquetMetadata, parquetReadObjects, type RowGroup } from "hyparquet";
import { messageOf, UserError } from "../util/errors.ts";
import { checkChunk, checkFooter, checkMetadata, chunkRange, DamagedParquet, decompressors } from "./parquet-guard.ts";
import type { Row } from "./row.ts";

const MAGIC = "PAR1";
const TAIL_BYTES = 8; // the length of the footer, then the magic number

/** The first `maxRows` rows of a parquet file. */
export async function readParquet(file: string, maxRows: number): Promise<Row[]> {
  const handle = await open(file, "r");
  try {
    const { size } = await handle.stat();
    const metadata = await readMetadata(handle, size);
    const rows: Row[] = [];
    let start = 0;
    for (const group of metadata.row_groups) {
      if (rows.length >= maxRows) break;
      const groupRows = Number(group.num_rows);
      const end = Math.min(start + groupRows, maxRows);
      if (groupRows > 0)
        for (const record of await readGroup(handle, { metadata, group, start, end }))
          rows.push({ values: plainRecord(record), file, row: rows.length + 1 });
      start += groupRows;
    }
    return rows;
  } catch (error) {
    throw new UserError(
      `${file} cannot be read as parquet: ${reasonOf(error)}. ` +
        "Copy or write the file again, and check that it is a parquet file.",
      { cause: error },
    );
  } finally {
    await handle.close();
  }
}

/** A damaged file often causes a type or range error inside the library; such a message does not help the user. */
function reasonOf(error: unknown): string {
  const isStumble = error instanceof TypeError || error instanceof RangeError;
  return isStumble ? "its parts do not fit together" : messageOf(error);
}

async function readMetadata(handle: FileHandle, size: number): Promise<FileMetaData> {
  if (size < TAIL_BYTES + MAGIC.length) throw new DamagedParquet(`it has only ${size} bytes`);
  const tail = new DataView(await readBytes(handle, size - TAIL_BYTES, size));
  const magic = String.fromCharCode(...new Uint8Array(tail.buffer, 4));
  if (magic !== MAGIC) throw new DamagedParquet(`it does not end in ${MAGIC}, as parquet files do`);
  const length = tail.getUint32(0, true);
  if (length > size - TAIL_BYTES) throw new DamagedParquet(`its footer claims ${length} of the file's ${size} bytes`);
  const footer = await readBytes(handle, size - TAIL_BYTES - length, size);
  checkFooter(footer);
  const metadata = parquetMetadata(footer, { geoparquet: false });
  checkMetadata(metadata, size);
  return metadata;
}

type GroupRange = { metadata: FileMetaData; group: RowGroup; start: number; end: number };

/** Rows `start` to `end` of the file, which lie in one row group. */
async function readGroup(
  handle: FileHandle,
  { metadata, group, start, end }: GroupRange,
): Promise<Record<string, unknown>[]> {
  const columns = group.columns.map(({ meta_data }) => meta_data).filter((column) => column !== undefined);
  const ranges = columns.map(chunkRange);
  const first = Math.min(...ranges.map(([from]) => from));
  const last = Math.max(...ranges.map(([, to]) => to));
  const bytes = await readBytes(handle, first, last);
  const slice = (from: number, to = last) => bytes.slice(from - first, to - first);
  for (const column of columns) checkChunk(slice(...chunkRange(column)), column, metadata, Number(group.num_rows));
  return parquetReadObjects({
    file: { byteLength: last, slice },
    metadata,
    rowStart: start,
    rowEnd: end,
    compressors: { ...decompressors },
    utf8: false,
    useOffsetIndex: false,
  });
}

async function readBytes(handle: FileHandle, start: number, end: number): Promise<ArrayBuffer> {
  const bytes = new Uint8Array(end - start);
  for (let done = 0; done < bytes.length; ) {
    const { bytesRead } = await handle.read(bytes, done, bytes.length - done, start + done);
    if (bytesRead === 0) throw new DamagedParquet("the file became shorter while it was read");
    done += bytesRead;
  }
  return bytes.buffer;
}

function plainRecord(record: Record<string, unknown>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(record).map(([key, value]) => [key, plain(value)]));
}

function plain(value: unknown): unknown {
  if (value === undefined || value === null) return null;
  if (typeof value === "bigint") return Number.isSafeInteger(Number(value)) ? Number(value) : value;
  if (typeof value !== "object" || value instanceof Date || value instanceof Uint8Array) return value;
  if (Array.isArray(value)) return value.map(plain);
  return ArrayBuffer.isView(value) ? value : plainRecord({ ...value });
}
