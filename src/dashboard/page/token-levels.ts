/**
 * How strongly a token is coloured: a small whole number for which the style sheet has a colour. Pure.
 *
 * Probability and entropy have fixed bounds, so that colours mean the same in every response. Advantages have no fixed
 * scale: they are relative to the largest of their group. A token that the policy did not draw has no colours.
 */
import type { RolloutEpisode } from "../../run/rollouts.ts";

/** Bounds of probability: from nearly certain (0) to one in a hundred (5). */
const probabilityBounds = [0.9, 0.6, 0.3, 0.1, 0.01] as const;

/** Bounds of entropy in nats: from no choice (0) to many choices (5). */
const entropyBounds = [0.1, 0.5, 1, 1.5, 2.5] as const;

/** 0 for a token that was nearly certain, 5 for a very unlikely one. */
export function surpriseLevel(logprob: number | null | undefined): number {
  if (logprob === null || logprob === undefined) return 0;
  const probability = Math.exp(logprob);
  return probabilityBounds.filter((bound) => probability <= bound).length;
}

/** 0 where one token was certain, 5 where many were likely. */
export function entropyLevel(entropy: number | null | undefined): number {
  if (entropy === null || entropy === undefined) return 0;
  return entropyBounds.filter((bound) => entropy >= bound).length;
}

/** -4 to 4, 0 for none: relative to `largest`, the largest absolute value in the group. */
export function advantageLevel(advantage: number | null | undefined, largest: number): number {
  if (advantage === null || advantage === undefined || largest <= 0 || advantage === 0) return 0;
  const level = Math.ceil(Math.min(1, Math.abs(advantage) / largest) * 4);
  return advantage > 0 ? level : -level;
}

/** The largest absolute value; 0 if there is none. */
export function largestOf(rows: readonly (readonly (number | null)[] | undefined)[]): number {
  let largest = 0;
  for (const row of rows) for (const value of row ?? []) largest = Math.max(largest, Math.abs(value ?? 0));
  return largest;
}

/** Whether the policy drew a token; if not, it is of a tool, a template or a user. */
export function isDrawn({ drawn }: Pick<RolloutEpisode, "drawn">, at: number): boolean {
  return drawn === undefined || drawn[at] === 1;
}

/** The classes of a token: its colours, or `given` for one that the policy did not draw. */
export function levelsOf(
  episode: Pick<RolloutEpisode, "advantages" | "logprobs" | "entropy" | "drawn">,
  at: number,
  largest: number,
): string[] {
  if (!isDrawn(episode, at)) return ["given"];
  const level = advantageLevel(episode.advantages?.[at], largest);
  return [
    level === 0 ? "" : level > 0 ? `up${level}` : `down${-level}`,
    `p${surpriseLevel(episode.logprobs[at])}`,
    `e${entropyLevel(episode.entropy?.[at])}`,
  ];
}

/** The role to show before the first token of each turn, by that token's place; none for a single answer. */
export function rolesOf({ turns, drawn }: Pick<RolloutEpisode, "turns" | "drawn">): Map<number, string> {
  if (turns.length === 1 && drawn === undefined) return new Map();
  return new Map(turns.map(({ role, start }) => [start, role]));
}

/** The order in which responses are shown. */
export type Order = "sampled" | "best" | "worst" | "extremes";

/** Places of responses by their scores, those without a score last; `extremes` are the best and the worst. */
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
