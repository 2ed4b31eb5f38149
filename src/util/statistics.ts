/**
 * Masked sum, mean, variance and whitening, in double precision.
 *
 * Values and mask are flat and of the same length. An entry counts where its mask is not 0; other entries (NaN included)
 * are never read. Formulas are those of verl's masked_* functions. Departures: too few entries never give NaN. An empty
 * mask has sum and mean 0, and with too few entries to whiten the values stay as they are.
 */
import { invariant, UserError } from "./errors.ts";

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

/** The variance of the entries that count; `unbiased` (the default) divides by one less than their number. */
export function maskedVar(values: Numbers, mask: Numbers, { unbiased = true } = {}): number {
  const count = countOf(mask);
  const freedom = unbiased ? count - 1 : count;
  if (freedom < 1) {
    throw new UserError(
      `The variance of ${count} tokens is not defined: it takes at least ${unbiased ? 2 : 1} that count. ` +
        "Use more or longer responses.",
    );
  }
  const mean = maskedMean(values, mask);
  const squares = Float64Array.from({ length: values.length }, (_, i) => (values[i]! - mean) ** 2);
  return maskedSum(squares, mask) / freedom;
}

/**
 * All values, shifted and scaled so that those that count have mean 0 and variance 1; with `shiftMean: false` they keep
 * their mean. With fewer than two entries that count, the values stay as they are.
 */
export function maskedWhiten(values: Numbers, mask: Numbers, { shiftMean = true } = {}): Float64Array {
  if (countOf(mask) < 2) return Float64Array.from(values);
  const mean = maskedMean(values, mask);
  const scale = 1 / Math.sqrt(maskedVar(values, mask) + 1e-8); // verl's guard against equal values
  const base = shiftMean ? 0 : mean;
  return Float64Array.from(values, (value) => (value - mean) * scale + base);
}

function countOf(mask: Numbers): number {
  let count = 0;
  for (let i = 0; i < mask.length; i++) if (mask[i] !== 0) count++;
  return count;
}
