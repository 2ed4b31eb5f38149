/**
 * How strongly a token is coloured, as a small whole number that the style sheet knows. Pure.
 *
 * Probability and entropy have fixed bounds, so that colours mean the same in every response. Advantages have no scale
 * of their own: they are measured by the largest of their group.
 */

/** Bounds of probability: from a sure thing (0) to one in a hundred (5). */
export const probabilityBounds = [0.9, 0.6, 0.3, 0.1, 0.01] as const;

/** Bounds of entropy in nats: from no choice at all (0) to many (5). */
export const entropyBounds = [0.1, 0.5, 1, 1.5, 2.5] as const;

/** 0 for a token that was sure to come, 5 for a great surprise. */
export function surpriseLevel(logprob: number | null | undefined): number {
  if (logprob === null || logprob === undefined) return 0;
  const probability = Math.exp(logprob);
  return probabilityBounds.filter((bound) => probability <= bound).length;
}

/** 0 where there was nothing to choose, 5 where there was much. */
export function entropyLevel(entropy: number | null | undefined): number {
  if (entropy === null || entropy === undefined) return 0;
  return entropyBounds.filter((bound) => entropy >= bound).length;
}

/** -4 to 4, 0 for none: a share of `largest`, the largest size in the group. */
export function advantageLevel(advantage: number | null | undefined, largest: number): number {
  if (advantage === null || advantage === undefined || largest <= 0 || advantage === 0) return 0;
  const level = Math.ceil(Math.min(1, Math.abs(advantage) / largest) * 4);
  return advantage > 0 ? level : -level;
}

/** The largest size of any number; 0 without one. */
export function largestOf(rows: readonly (readonly (number | null)[] | undefined)[]): number {
  let largest = 0;
  for (const row of rows) for (const value of row ?? []) largest = Math.max(largest, Math.abs(value ?? 0));
  return largest;
}

/** The order in which responses are shown. */
export type Order = "sampled" | "best" | "worst" | "extremes";

/** Places of responses by their scores; those without a score come last, and `extremes` are the best and the worst. */
export function orderByScore(scores: readonly (number | null)[], order: Order): number[] {
  const places = [...scores.keys()];
  if (order === "sampled") return places;
  const sign = order === "worst" ? 1 : -1;
  const rank = (place: number) => (scores[place] === null ? Number.POSITIVE_INFINITY : sign * scores[place]!);
  const sorted = places.sort((a, b) => (rank(a) === rank(b) ? a - b : rank(a) - rank(b)));
  if (order !== "extremes") return sorted;
  const scored = sorted.filter((place) => scores[place] !== null);
  return [...new Set([scored[0], scored.at(-1)])].filter((place) => place !== undefined);
}
