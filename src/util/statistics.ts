/**
 * Masked sum and mean, in double precision.
 *
 * Values and mask are flat and of the same length. An entry counts where its mask is not 0; other entries (NaN included)
 * are never read. Formulas are those of verl's masked_* functions. Departure: an empty
 * mask has sum and mean 0, not NaN.
 */
import { invariant } from "./errors.ts";

type Numbers = ArrayLike<number>;

export function maskedSum(values: Numbers, mask: Numbers): number {
  invariant(values.length === mask.length, `${values.length} values have a mask of ${mask.length}`);
  let total = 0;
  for (let i = 0; i < values.length; i++) if (mask[i] !== 0) total += values[i]!;
  return total;
}

/** The mean of the entries that count; 0 if there are none. */
export function maskedMean(values: Numbers, mask: Numbers): number {
  const count = countOf(mask);
  return count === 0 ? 0 : maskedSum(values, mask) / count;
}

function countOf(mask: Numbers): number {
  let count = 0;
  for (let i = 0; i < mask.length; i++) if (mask[i] !== 0) count++;
  return count;
}
