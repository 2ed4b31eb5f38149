/**
 * Checks the sizes in a parquet file before the parquet library uses them.
 *
 * The library trusts the counts it reads: a damaged file could make it allocate gigabytes or loop for minutes. Here
 * every list length, page size, value count and run length is compared with the bytes that exist. A file that passes
 * may still be damaged, but then reading it ends with an error in reasonable time and memory.
 */

import { brotliDecompressSync, gunzipSync, zstdDecompressSync } from "node:zlib";
import type { ColumnMetaData, FileMetaData, SchemaTree } from "hyparquet";
import { parquetSchema } from "hyparquet";
import { parquetHeader } from "hyparquet/src/column.js";
import { getMaxDefinitionLevel, getMaxRepetitionLevel, getTreePath, isFlatColumn } from "hyparquet/src/schema.js";
import { readVarInt, readZigZag } from "hyparquet/src/thrift.js";
import { compressors as packaged } from "hyparquet-compressors";

type Reader = { view: DataView<ArrayBuffer>; offset: number };
type PageHeader = ReturnType<typeof parquetHeader>;
type Decompress = (input: Uint8Array, outputLength: number) => Uint8Array;

/** Values a file of `bytes` bytes may hold: repetition packs many into few bytes, but there is a limit. */
const maxValues = (bytes: number) => 4_000_000 + 64 * bytes;
/** Runs may be padded past the last value: to a multiple of 8 by the format, further by some writers. */
const RUN_SLACK = 512;
const MAX_DEPTH = 64;

/** Why a parquet file cannot be read. */
export class DamagedParquet extends Error {
  override readonly name = "DamagedParquet";
}

function hold(condition: unknown, message: string): asserts condition {
  if (!condition) throw new DamagedParquet(message);
}

/** Decompression by name of codec, never past the length that the page promises. */
export const decompressors: Readonly<Record<string, Decompress | undefined>> = {
  GZIP: (input, maxOutputLength) => gunzipSync(input, { maxOutputLength }),
  ZSTD: (input, maxOutputLength) => zstdDecompressSync(input, { maxOutputLength }),
  BROTLI: (input, maxOutputLength) => brotliDecompressSync(input, { maxOutputLength }),
  SNAPPY: bounded(packaged.SNAPPY),
  LZ4: bounded(packaged.LZ4),
  LZ4_RAW: bounded(packaged.LZ4_RAW),
};

/** These allocate the promised size, so it is checked first: neither format packs more than 255 to 1. */
function bounded(decompress: Decompress | undefined): Decompress | undefined {
  return (
    decompress &&
    ((input, outputLength) => {
      hold(outputLength <= 256 * input.length + 64, `a page of ${input.length} bytes claims to hold ${outputLength}`);
      return decompress(input, outputLength);
    })
  );
}

/** Compare a footer's list lengths with its size; afterwards it is safe to parse. */
export function checkFooter(bytes: ArrayBuffer): void {
  const view = new DataView(bytes);
  skimStruct({ view, offset: 0 }, 0);
}

/** Compare the numbers of a parsed footer with the size of the file. */
export function checkMetadata(metadata: FileMetaData, fileBytes: number): void {
  let rows = 0n;
  let values = 0n;
  for (const group of metadata.row_groups) {
    hold(group.num_rows >= 0n, "a row group has a negative number of rows");
    hold(group.columns.length > 0 || group.num_rows === 0n, "a row group has rows but no columns");
    rows += group.num_rows;
    for (const { meta_data: column } of group.columns) {
      hold(column, "a column has no description");
      const [start, end] = chunkRange(column);
      hold(start >= 0 && start <= end && end <= fileBytes, "a column lies outside the file");
      hold(column.num_values >= group.num_rows, "a column has fewer values than there are rows");
      values += column.num_values;
    }
  }
  hold(rows === metadata.num_rows, "the row groups do not add up to the number of rows");
  hold(values <= BigInt(maxValues(fileBytes)), `${fileBytes} bytes claim to hold ${values} values`);
}

/** Where the bytes of a column chunk start and end in the file. */
export function chunkRange(column: ColumnMetaData): [number, number] {
  const start = column.dictionary_page_offset || column.data_page_offset;
  return [Number(start), Number(start + column.total_compressed_size)];
}

/** Compare every page of a column chunk with its bytes. */
export function checkChunk(
  bytes: ArrayBuffer,
  column: ColumnMetaData,
  metadata: FileMetaData,
  groupRows: number,
): void {
  const path = getTreePath(parquetSchema(metadata), column.path_in_schema);
  const isFlat = isFlatColumn(path);
  const reader: Reader = { view: new DataView(bytes), offset: 0 };
  let values = 0;
  while (reader.offset < bytes.byteLength - 1 && !(isFlat && values >= groupRows)) {
    skimStruct({ ...reader }, 0);
    const header = parquetHeader(reader);
    const size = header.compressed_page_size;
    hold(size >= 0 && reader.offset + size <= bytes.byteLength, "a page reaches past the end of its column");
    hold(header.uncompressed_page_size >= 0, "a page has a negative size");
    const page = new Uint8Array(bytes, reader.offset, size);
    reader.offset += size;
    if (header.type === "DICTIONARY_PAGE") {
      const count = header.dictionary_page_header?.num_values ?? 0;
      hold(count >= 0 && count <= 8 * header.uncompressed_page_size, `a dictionary claims ${count} values`);
    } else {
      const count = (header.data_page_header ?? header.data_page_header_v2)?.num_values ?? 0;
      hold(count >= 0, "a page has a negative number of values");
      values += count;
      hold(values <= Number(column.num_values), "the pages of a column hold more values than the column");
      if (header.data_page_header_v2) checkPageV2(page, header, column, path);
      else checkPageV1(page, header, column, path);
    }
  }
  hold(values >= groupRows, "a column ends early");
}

function checkPageV1(compressed: Uint8Array, header: PageHeader, column: ColumnMetaData, path: SchemaTree[]): void {
  const description = header.data_page_header;
  hold(description, "a page has no description");
  const reader = readerOf(decompress(compressed, header.uncompressed_page_size, column.codec));
  const count = description.num_values;
  for (const maxLevel of [getMaxRepetitionLevel(path), getMaxDefinitionLevel(path)]) {
    if (maxLevel === 0) continue;
    const length = reader.view.getUint32(reader.offset, true);
    const start = reader.offset + 4;
    hold(start + length <= reader.view.byteLength, "the levels of a page reach past its end");
    checkRuns({ view: reader.view, offset: start }, bitsFor(maxLevel), count);
    reader.offset = start + length;
  }
  if (column.type === "BOOLEAN") checkBooleans(reader, description.encoding, count);
  else checkIndices(reader, description.encoding, count);
}

function checkPageV2(compressed: Uint8Array, header: PageHeader, column: ColumnMetaData, path: SchemaTree[]): void {
  const description = header.data_page_header_v2;
  hold(description, "a page has no description");
  const { num_values: count, num_nulls: nulls } = description;
  const repetitionBytes = description.repetition_levels_byte_length;
  const levelBytes = repetitionBytes + description.definition_levels_byte_length;
  hold(nulls >= 0 && nulls <= count, "a page has more nulls than values");
  hold(repetitionBytes >= 0 && levelBytes >= repetitionBytes, "a page has levels of negative size");
  hold(levelBytes <= compressed.length, "the levels of a page reach past its end");
  const levels = readerOf(compressed);
  if (getMaxRepetitionLevel(path) > 0) checkRuns({ ...levels }, bitsFor(getMaxRepetitionLevel(path)), count);
  levels.offset = repetitionBytes;
  if (getMaxDefinitionLevel(path) > 0) checkRuns(levels, bitsFor(getMaxDefinitionLevel(path)), count);
  const body = compressed.subarray(levelBytes);
  const plain =
    description.is_compressed === false
      ? body
      : decompress(body, header.uncompressed_page_size - levelBytes, column.codec);
  if (description.encoding === "RLE") checkBooleans(readerOf(plain), description.encoding, count - nulls);
  else checkIndices(readerOf(plain), description.encoding, count - nulls);
}

/** Values that are places in a dictionary come in runs too. `count` may include nulls. */
function checkIndices(reader: Reader, encoding: string, count: number): void {
  if (!isRuns(encoding) || count === 0 || reader.offset >= reader.view.byteLength) return;
  const width = reader.view.getUint8(reader.offset++);
  hold(width <= 32, `dictionary places of ${width} bits`);
  checkRuns(reader, width, count);
}

/** Booleans come in runs of one bit, behind the length of the runs. */
function checkBooleans(reader: Reader, encoding: string, count: number): void {
  if (isRuns(encoding)) checkRuns({ view: reader.view, offset: reader.offset + 4 }, 1, count);
}

const isRuns = (encoding: string) => encoding === "RLE" || encoding.endsWith("_DICTIONARY");

/** Check the runs of an encoded sequence; one with too many values would be written past the end. */
function checkRuns(reader: Reader, width: number, count: number): void {
  const end = reader.view.byteLength;
  for (let seen = 0; seen < count && reader.offset < end; ) {
    const header = readVarInt(reader);
    hold(header >= 0, "a run of negative length");
    const isPacked = (header & 1) === 1;
    const run = (header >>> 1) * (isPacked ? 8 : 1);
    hold(run > 0 || !isPacked, "a run of no values");
    hold(run <= count - seen + RUN_SLACK, `a run of ${run} values where ${count - seen} are missing`);
    reader.offset += isPacked ? Math.max(1, (run / 8) * width) : (width + 7) >> 3;
    seen += run;
  }
}

function decompress(bytes: Uint8Array, size: number, codec: string): Uint8Array {
  if (codec === "UNCOMPRESSED") return bytes;
  const run = decompressors[codec];
  hold(run, `the compression ${codec} is not known here`);
  return run(bytes, size);
}

function readerOf(bytes: Uint8Array): Reader {
  const own = bytes.buffer instanceof ArrayBuffer ? bytes.buffer : new Uint8Array(bytes).buffer;
  return { view: new DataView(own, bytes.byteOffset, bytes.byteLength), offset: 0 };
}

const bitsFor = (value: number) => 32 - Math.clz32(value);

/** Skip a Thrift struct (compact protocol), checking that no length in it exceeds the bytes that are left. */
function skimStruct(reader: Reader, depth: number): void {
  hold(depth < MAX_DEPTH, "the description is nested too deeply");
  for (;;) {
    const byte = next(reader);
    if ((byte & 0x0f) === 0) return;
    if (byte >> 4 === 0) readZigZag(reader);
    skimValue(reader, byte & 0x0f, depth);
  }
}

function skimValue(reader: Reader, type: number, depth: number): void {
  if (type === 1 || type === 2) return; // true, false
  if (type === 3) next(reader);
  else if (type >= 4 && type <= 6) while (next(reader) & 0x80);
  else if (type === 7) skip(reader, 8);
  else if (type === 8) skip(reader, readVarInt(reader));
  else if (type === 9) skimList(reader, depth);
  else if (type === 12) skimStruct(reader, depth + 1);
  else throw new DamagedParquet(`the description holds a value of kind ${type}`);
}

function skimList(reader: Reader, depth: number): void {
  hold(depth < MAX_DEPTH, "the description is nested too deeply");
  const byte = next(reader);
  const type = byte & 0x0f;
  const size = byte >> 4 === 15 ? readVarInt(reader) : byte >> 4;
  hold(size >= 0 && size <= reader.view.byteLength - reader.offset, `the description holds a list of ${size}`);
  for (let i = 0; i < size; i++) skimValue(reader, type <= 2 ? 3 : type, depth + 1);
}

function next(reader: Reader): number {
  skip(reader, 1);
  return reader.view.getUint8(reader.offset - 1);
}

function skip(reader: Reader, bytes: number): void {
  hold(bytes >= 0 && reader.offset + bytes <= reader.view.byteLength, "the description ends early");
  reader.offset += bytes;
}
