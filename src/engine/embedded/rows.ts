/** Sequences as rows of a grid, padded at the end to a common length. */
import type { TokenRow } from "../contract.ts";
import { type Counted, countedArrays, type Layout, type LayoutOptions, partsFor } from "./layout.ts";
import { rotationArrays } from "./rotations.ts";

/**
 * Lay out the rows `indices` of a batch; null when none of their tokens counts. A token `t` that counts is predicted
 * from position `t - 1`, so the head reads the hidden state there; a score head reads position `t` itself.
 */
export function layOutRows(
  rows: readonly TokenRow[],
  indices: readonly number[],
  options: LayoutOptions,
): Layout | null {
  const { heads, extra, scratch } = options;
  const shift = heads.includes("scores") ? 0 : 1;
  const batch = indices.length;
  const longest = Math.max(...indices.map((i) => rows[i]!.ids.length));
  const { parts, span, time } = partsFor(longest);
  const ids = scratch.ints("ids", batch * time).fill(0);
  const counted: Counted[] = [];
  indices.forEach((row, b) => {
    const { ids: own, mask } = rows[row]!;
    ids.set(own, b * time);
    for (let t = shift; t < own.length; t++) {
      const place = b * time + t;
      if (mask[t]) counted.push({ row, at: t, position: place - shift, place });
    }
  });
  if (counted.length === 0) return null;
  const starts = indices.map((row, b) => ({ row, place: b * time, from: 0, to: rows[row]!.ids.length }));
  const rotations = rotationArrays(options.tables(time, longest));
  const given = { rows, tokens: batch * time, cells: batch * time, starts, extra, scratch };
  return {
    form: { kind: "rows", parts },
    bindings: { batch, span, n: counted.length },
    arrays: { ids, ...rotations, ...countedArrays(counted, given) },
    owners: counted,
  };
}
