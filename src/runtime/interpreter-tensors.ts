/** The tensors of the interpreter: whole arrays in double precision, and the plain loops over them. */

/** A tensor; booleans are 0 and 1. */
export type Value = { readonly shape: number[]; readonly data: Float64Array };

export type Index = readonly number[];

export function sizeOf(shape: Index): number {
  return shape.reduce((a, b) => a * b, 1);
}

export function zeros(shape: Index): Value {
  return { shape: [...shape], data: new Float64Array(sizeOf(shape)) };
}

export function copy(x: Value): Value {
  return { shape: x.shape, data: x.data.slice() };
}

/** Visit every index of a shape, in the order of the data. */
export function forEachIndex(shape: Index, visit: (index: Index, flat: number) => void): void {
  const index = shape.map(() => 0);
  for (let flat = 0; flat < sizeOf(shape); flat++) {
    visit(index, flat);
    for (let axis = shape.length - 1; axis >= 0 && ++index[axis]! === shape[axis]; axis--) index[axis] = 0;
  }
}

/** A tensor with the entry that `entry` returns at each index. */
export function fill(shape: Index, entry: (index: Index) => number): Value {
  const result = zeros(shape);
  forEachIndex(shape, (index, flat) => {
    result.data[flat] = entry(index);
  });
  return result;
}

/**
 * Where an index lies, by numpy's rule: axes are matched from the last, and an axis of size 1 has one entry for all.
 */
export function placeOf(shape: Index, index: Index): number {
  const skipped = index.length - shape.length;
  return shape.reduce((flat, size, axis) => flat * size + (size === 1 ? 0 : index[skipped + axis]!), 0);
}

export function at(x: Value, index: Index): number {
  return x.data[placeOf(x.shape, index)]!;
}

export function map(x: Value, f: (v: number) => number): Value {
  return { shape: x.shape, data: x.data.map((v) => f(v)) };
}

/** An elementwise function of tensors that spread to their common shape. */
export function spread(values: readonly Value[], f: (entries: readonly number[]) => number): Value {
  const rank = Math.max(...values.map(({ shape }) => shape.length));
  const shape = Array.from({ length: rank }, (_, axis) => {
    const sizes = values.map((value) => value.shape[axis - rank + value.shape.length] ?? 1);
    return sizes.find((size) => size !== 1) ?? 1;
  });
  return fill(shape, (index) => f(values.map((value) => at(value, index))));
}

export function reduce(x: Value, axes: Index, start: number, f: (total: number, v: number) => number): Value {
  const kept = x.shape.map((size, axis) => (axes.includes(axis) ? 1 : size));
  const result = fill(kept, () => start);
  forEachIndex(x.shape, (index, flat) => {
    const to = placeOf(kept, index);
    result.data[to] = f(result.data[to]!, x.data[flat]!);
  });
  return result;
}

/** The rows of `x` that `ids` name, in its shape. */
export function rowsOf(x: Value, ids: Value): Value {
  const rank = ids.shape.length;
  return fill([...ids.shape, ...x.shape.slice(1)], (index) =>
    at(x, [at(ids, index.slice(0, rank)), ...index.slice(rank)]),
  );
}

/** A function of the last axis; every row gives a row of the same new length. */
export function perRow(x: Value, f: (row: Float64Array) => Float64Array): Value {
  const width = x.shape.at(-1)!;
  const rows = Array.from({ length: x.data.length / width }, (_, i) => f(x.data.subarray(i * width, (i + 1) * width)));
  const data = Float64Array.from(rows.flatMap((row) => [...row]));
  return { shape: replaced(x.shape, x.shape.length - 1, data.length / rows.length), data };
}

export function replaced(list: Index, axis: number, value: number): number[] {
  return list.map((v, i) => (i === axis ? value : v));
}
