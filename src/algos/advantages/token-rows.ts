/**
 * Arithmetic on rows that advantage estimators share: totals, rewards to go, one number spread over a row, whitening.
 *
 * New rows are 0 wherever the mask is 0. Means are taken relative to one of the values, so that
 * equal values have exactly their value as mean and whiten to exactly 0. A number that is not finite shows in the sum of
 * its row, so only sums are checked, and the entry is looked for when one is not finite.
 */
import { UserError } from "../../util/errors.ts";
import { checkFinite, type FloatRows, type Rows } from "../batch.ts";

/** Zeros in the shape of `rows`. */
export function zerosLike(rows: Rows): FloatRows {
  return rows.map(({ length }) => new Float64Array(length));
}

/** The total reward of each row, over all positions: what stands at a masked one counts too, as in verl. */
export function totals(rewards: Rows): Float64Array {
  const sums = new Float64Array(rewards.length);
  rewards.forEach((row, i) => {
    let sum = 0;
    for (let t = 0; t < row.length; t++) sum += row[t]!;
    if (!Number.isFinite(sum)) refuseRow(i, rewards.map(ones), { rewards });
    sums[i] = sum;
  });
  return sums;
}

const ones = (row: ArrayLike<number>): Uint8Array => new Uint8Array(row.length).fill(1);

/** Stop because a sum over row `i` of these rows is not finite, at the entry that is the cause. */
export function refuseRow(i: number, mask: Rows, parts: Readonly<Record<string, Rows>>): never {
  for (const [name, rows] of Object.entries(parts)) checkFinite(name, rows, mask);
  throw new UserError(
    `Numbers of row ${i} (${Object.keys(parts).join(", ")}) are too large to add up. Scale rewards down.`,
  );
}

/** Every unmasked token of row i gets `credits[i]`. */
export function spread(credits: ArrayLike<number>, mask: Rows): FloatRows {
  const rows = zerosLike(mask);
  rows.forEach((row, i) => {
    const [credit, counts] = [credits[i]!, mask[i]!];
    for (let t = 0; t < row.length; t++) if (counts[t] !== 0) row[t] = credit;
  });
  return rows;
}

/**
 * Discounted reward from each unmasked token to the end of its row. Masked tokens are passed over: they give no reward
 * and cost no discount. With `stopsAtMask` nothing reaches a token from beyond a masked one.
 */
export function rewardsToGo(rewards: Rows, mask: Rows, { gamma = 1, stopsAtMask = false } = {}): FloatRows {
  const rows = zerosLike(mask);
  rows.forEach((row, i) => {
    const [given, counts] = [rewards[i]!, mask[i]!];
    let rest = 0;
    for (let t = row.length - 1; t >= 0; t--) {
      if (counts[t] !== 0) {
        rest = given[t]! + gamma * rest;
        row[t] = rest;
      } else if (stopsAtMask && Number.isFinite(rest)) rest = 0;
    }
    if (!Number.isFinite(rest)) refuseRow(i, mask, { rewards });
  });
  return rows;
}

/**
 * Unmasked entries of all rows together moved and scaled to mean 0 and variance 1, as verl's masked_whiten does. A batch
 * with fewer than two unmasked tokens has no spread to go by and stays as it is. `into` may be `rows`.
 */
export function whiten(rows: FloatRows, mask: Rows, into: FloatRows = zerosLike(rows)): FloatRows {
  const moments = momentsOf(rows, mask);
  const mean = moments?.mean ?? 0;
  const scale = moments === null ? 1 : 1 / Math.sqrt(moments.variance + 1e-8); // verl's guard against equal values
  if (!Number.isFinite(mean) || !(scale > 0)) {
    throw new UserError(
      `Advantages with mean ${mean} cannot be whitened. Rewards must be finite, and not as far apart.`,
    );
  }
  into.forEach((row, i) => {
    const [given, counts] = [rows[i]!, mask[i]!];
    for (let t = 0; t < row.length; t++) if (counts[t] !== 0) row[t] = (given[t]! - mean) * scale;
  });
  return into;
}

/** Sums over distances from a value of the batch: with one of its own as origin, variance loses no digits that matter. */
type Sums = { count: number; origin: number; sum: number; squares: number };

/** The mean and the unbiased variance of the unmasked entries; null where there are fewer than two. */
export function momentsOf(rows: FloatRows, mask: Rows): { readonly mean: number; readonly variance: number } | null {
  const sums: Sums = { count: 0, origin: 0, sum: 0, squares: 0 };
  rows.forEach((row, i) => {
    addTo(sums, row, mask[i]!);
  });
  const { count, origin, sum, squares } = sums;
  if (count < 2) return null;
  return { mean: origin + sum / count, variance: Math.max(squares - (sum * sum) / count, 0) / (count - 1) };
}

/** A function of one row, with sums in local variables: twice as fast as one loop over all rows. */
function addTo(sums: Sums, row: Float64Array, counts: ArrayLike<number>): void {
  let { count, origin, sum, squares } = sums;
  for (let t = 0; t < row.length; t++) {
    if (counts[t] === 0) continue;
    if (count === 0) origin = row[t]!;
    count++;
    const distance = row[t]! - origin;
    sum += distance;
    squares += distance * distance;
  }
  Object.assign(sums, { count, origin, sum, squares });
}
