/**
 * Columns of metrics as bytes, for both ends: the server encodes, the page decodes.
 *
 * Four bytes with the length of a JSON header, the header, spaces up to a multiple of eight, the steps as doubles, then
 * each column as floats. Ten thousand steps of thirty metrics are 1.3 MB and need no parsing.
 */

/** Rows of a run from `from` on; NaN where a step does not have the metric. */
export type ColumnBlock = {
  readonly version: number;
  readonly from: number;
  readonly steps: Float64Array;
  readonly columns: ReadonlyMap<string, Float32Array>;
};

type Header = {
  readonly version: number;
  readonly from: number;
  readonly rows: number;
  readonly names: readonly string[];
};

/** Write a block; columns may be of doubles. */
export function encodeColumns(
  block: Omit<ColumnBlock, "columns"> & { readonly columns: ReadonlyMap<string, ArrayLike<number>> },
): Uint8Array<ArrayBuffer> {
  const { version, from, steps, columns } = block;
  const rows = steps.length;
  const header: Header = { version, from, rows, names: [...columns.keys()] };
  const text = new TextEncoder().encode(JSON.stringify(header));
  const start = Math.ceil((4 + text.length) / 8) * 8;
  const bytes = new Uint8Array(start + rows * (8 + 4 * columns.size)).fill(32, 4, start);
  new DataView(bytes.buffer).setUint32(0, start - 4, true);
  bytes.set(text, 4);
  new Float64Array(bytes.buffer, start, rows).set(steps);
  let at = start + 8 * rows;
  for (const column of columns.values()) {
    new Float32Array(bytes.buffer, at, rows).set(column);
    at += 4 * rows;
  }
  return bytes;
}

/** Read a block; its arrays are views of the bytes. */
export function decodeColumns(buffer: ArrayBuffer): ColumnBlock {
  const start = 4 + new DataView(buffer).getUint32(0, true);
  const { version, from, rows, names }: Header = JSON.parse(
    new TextDecoder().decode(new Uint8Array(buffer, 4, start - 4)),
  );
  const columns = new Map(
    names.map((name, i) => [name, new Float32Array(buffer, start + 8 * rows + 4 * rows * i, rows)] as const),
  );
  return { version, from, steps: new Float64Array(buffer, start, rows), columns };
}
