/**
 * The likeliest entries of a row of probabilities, without sorting it.
 *
 * Entries are first counted and summed by class: the leading bits of a positive single-precision number, whose order
 * is the order of the numbers. Only the class in which the target is reached is sorted, so it takes two passes over the
 * row for any distribution. The result is the same as with sorting everything.
 */

export type Row = Float32Array | Float64Array;

/** Entries above `least`, and the first `ties` of those equal to it. */
export type Bound = { readonly least: number; readonly ties: number };

/** Eight bits of exponent and eight of fraction: a class is at most 0.4 % wide. */
const SHIFT = 15;
/** Enough for numbers below 2. */
const CLASSES = 1 << 15;
const counts = new Float64Array(CLASSES);
const masses = new Float64Array(CLASSES);

/** The `count` largest entries of those that are at least `from`; all of them if there are fewer. */
export const largest = (row: Row, count: number, from = 0): Bound => reach(row, { from, target: count, by: "count" });

/** The fewest of the largest entries, at least `from`, that sum to `mass`; all of them if they do not reach it. */
export const covering = (row: Row, mass: number, from = 0): Bound => reach(row, { from, target: mass, by: "mass" });

type Target = { readonly from: number; readonly target: number; readonly by: "count" | "mass" };

function reach(row: Row, { from, target, by }: Target): Bound {
  const single = row instanceof Float32Array ? row : new Float32Array(row); // rounding keeps the order
  const bits = new Uint32Array(single.buffer, single.byteOffset, single.length);
  counts.fill(0);
  masses.fill(0);
  for (let i = 0; i < row.length; i++) {
    const p = row[i]!;
    if (!(p > 0 && p >= from)) continue;
    const at = bits[i]! >>> SHIFT;
    counts[at]!++;
    masses[at]! += p;
  }
  const weights = by === "count" ? counts : masses;
  let sum = 0;
  let at = CLASSES - 1;
  while (at >= 0 && sum + weights[at]! < target) sum += weights[at--]!;
  if (at < 0) return { least: from, ties: Infinity };

  const values = new Float64Array(counts[at]!);
  let filled = 0;
  for (let i = 0; i < row.length; i++) {
    const p = row[i]!;
    if (bits[i]! >>> SHIFT === at && p > 0 && p >= from) values[filled++] = p;
  }
  values.sort().reverse();
  let end = 0;
  for (; end < filled && sum < target; end++) sum += by === "count" ? 1 : values[end]!;
  const least = values[end - 1]!;
  return { least, ties: end - values.indexOf(least) };
}
