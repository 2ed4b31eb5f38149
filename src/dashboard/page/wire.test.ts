import fc from "fast-check";
import { expect, test } from "vitest";
import { decodeColumns, encodeColumns } from "./wire.ts";

test("columns are decoded as they were encoded, rounded to floats, whatever their names and number", () => {
  const block = fc
    .record({
      version: fc.nat(),
      from: fc.nat(),
      rows: fc.nat(20),
      names: fc.uniqueArray(fc.string(), { maxLength: 6 }),
    })
    .chain(({ rows, names, ...rest }) =>
      fc.record({
        version: fc.constant(rest.version),
        from: fc.constant(rest.from),
        steps: fc.float64Array({ minLength: rows, maxLength: rows, noNaN: true }),
        values: fc.tuple(...names.map(() => fc.float64Array({ minLength: rows, maxLength: rows }))),
        names: fc.constant(names),
      }),
    );
  fc.assert(
    fc.property(block, ({ version, from, steps, values, names }) => {
      const columns = new Map(names.map((name, i) => [name, values[i]!] as const));
      const decoded = decodeColumns(encodeColumns({ version, from, steps, columns }).buffer);
      expect({ ...decoded, columns: [...decoded.columns] }).toEqual({
        version,
        from,
        steps,
        columns: [...columns].map(([name, column]) => [name, Float32Array.from(column)]),
      });
    }),
  );
});
