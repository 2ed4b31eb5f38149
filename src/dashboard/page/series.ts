/**
 * Series of numbers for charts: smoothed, thinned out, or picked at even distances. Pure; NaN means that there is no value.
 */

/**
 * The weight for a curve of `count` points: as asked for at 150 of them, nearer to 1 for more and to 0 for fewer, so
 * that every curve is smoothed over the same part of its width.
 */
export const weightFor = (amount: number, count: number): number => amount ** (150 / Math.max(1, count));

/**
 * Mean around each value, neighbours weighted by `amount` to the power of their distance (0 to below 1). It looks both
 * ways, so that a curve does not lag behind itself; at the ends it has one side only. Missing values stay missing and
 * do not count, neither as values nor as distance.
 */
export function smooth(values: ArrayLike<number>, amount: number): Float64Array {
  const sums = new Float64Array(values.length);
  const weights = new Float64Array(values.length);
  const pass = (from: number, to: number, direction: number) => {
    let sum = 0;
    let weight = 0;
    for (let i = from; i !== to; i += direction) {
      const value = values[i]!;
      if (Number.isNaN(value)) continue;
      sums[i]! += sum; // what lies before, without the value itself
      weights[i]! += weight;
      sum = amount * (sum + value);
      weight = amount * (weight + 1);
    }
  };
  pass(0, values.length, 1);
  pass(values.length - 1, -1, -1);
  return sums.map((sum, i) => (sum + values[i]!) / (weights[i]! + 1));
}

/** Which of `length` places to keep so that at most `count` are left: evenly spaced, first and last among them. */
export function evenly(length: number, count: number): number[] {
  if (length <= count) return Array.from({ length }, (_, i) => i);
  return Array.from({ length: count }, (_, i) => Math.round((i * (length - 1)) / (count - 1)));
}

/** At most `count` means of neighbouring values, in order; values that are missing are left out. */
export function thin(values: ArrayLike<number>, count: number): number[] {
  const present = Array.from(values).filter((value) => !Number.isNaN(value));
  if (present.length <= count) return present;
  return Array.from({ length: count }, (_, i) => {
    const begin = Math.floor((i * present.length) / count);
    const end = Math.floor(((i + 1) * present.length) / count);
    let sum = 0;
    for (let j = begin; j < end; j++) sum += present[j]!;
    return sum / (end - begin);
  });
}

/** The last value that is there; NaN without one. */
export function latest(values: ArrayLike<number>): number {
  for (let i = values.length - 1; i >= 0; i--) if (!Number.isNaN(values[i]!)) return values[i]!;
  return Number.NaN;
}
