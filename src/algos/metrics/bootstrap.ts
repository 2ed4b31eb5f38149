/**
 * Estimates from n answers to one prompt: what the best, the worst or the majority of k of them would be.
 *
 * `drawSamples` draws k of the n answers with replacement, a thousand times, from the very numbers numpy's legacy
 * generator gives verl. Drawing with replacement makes the best of n low: with one correct answer of four, best@4 is
 * 0.68 though one of the four is always correct. `passAtK` is the estimate without that bias, for answers that are
 * right or wrong (arXiv:2107.03374).
 */
import { invariant, UserError } from "../../util/errors.ts";
import { MersenneTwister } from "./mersenne-twister.ts";

/** A number from the answers that were drawn. */
export type Reduce = (drawn: Uint32Array) => number;
/** Mean and population standard deviation over the draws. */
export type Estimate = { readonly mean: number; readonly std: number };

export type BootstrapOptions = { readonly draws?: number; readonly seed?: number };

/** The samples of a bootstrap: they depend on the numbers alone, so that they can be kept for prompts of like size. */
export function drawSamples(
  count: number,
  size: number,
  { draws = 1000, seed = 42 }: BootstrapOptions = {},
): Uint32Array[] {
  if (count === 0) throw new UserError("There are no answers to draw from. Validate on at least one.");
  invariant(size >= 1 && draws >= 1, `${draws} draws of ${size} answers are none`);
  const random = new MersenneTwister(seed);
  return Array.from({ length: draws }, () => Uint32Array.from({ length: size }, () => random.int(count)));
}

/** Mean and population standard deviation; of at least one number. */
export function estimate(values: readonly number[]): Estimate {
  const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
  const variance = values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / values.length;
  return { mean, std: Math.sqrt(variance) };
}

/** The largest value drawn. */
export const best =
  (values: ArrayLike<number>): Reduce =>
  (drawn) => {
    let most = Number.NEGATIVE_INFINITY;
    for (const answer of drawn) if (values[answer]! > most) most = values[answer]!;
    return most;
  };

/** The smallest value drawn. */
export const worst =
  (values: ArrayLike<number>): Reduce =>
  (drawn) => {
    let least = Number.POSITIVE_INFINITY;
    for (const answer of drawn) if (values[answer]! < least) least = values[answer]!;
    return least;
  };

/** The value of the vote that most of those drawn share: of the first who cast it. A tie goes to the vote seen first. */
export function majority(values: ArrayLike<number>, votes: readonly unknown[]): Reduce {
  const names = new Map<unknown, number>();
  const ballots = Uint32Array.from(votes, (vote) => {
    if (!names.has(vote)) names.set(vote, names.size);
    return names.get(vote)!;
  });
  const counts = new Uint32Array(names.size);
  return (drawn) => {
    counts.fill(0);
    let most = 0;
    for (const answer of drawn) {
      const count = counts[ballots[answer]!]! + 1;
      counts[ballots[answer]!] = count;
      if (count > most) most = count;
    }
    return values[drawn.find((answer) => counts[ballots[answer]!] === most)!]!;
  };
}

/** The chance that k of n answers, drawn without replacement, hold a correct one when `correct` of the n are. */
export function passAtK(n: number, correct: number, k: number): number {
  invariant(k >= 1 && k <= n && correct >= 0 && correct <= n, `pass@${k} of ${correct} correct of ${n} has no meaning`);
  if (n - correct < k) return 1;
  let allWrong = 1; // C(n - correct, k) / C(n, k), factor by factor
  for (let i = 0; i < k; i++) allWrong *= (n - correct - i) / (n - i);
  return 1 - allWrong;
}
