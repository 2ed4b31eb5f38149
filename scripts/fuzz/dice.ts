/** What random cases are drawn from: numbers, rows of them, masks. Numbers are multiples of 1/1024, so they are exact. */
import type { Random } from "../../src/util/random.ts";

export type Numbers = number[][];

export const pick = <T>(random: Random, list: readonly T[]): T => list[random.int(list.length)]!;
export const chance = (random: Random, share: number): boolean => random.uniform() < share;
export const times = <T>(count: number, make: (i: number) => T): T[] =>
  Array.from({ length: count }, (_, i) => make(i));

/** A number near 0, `scale` wide; sometimes a round one, sometimes one of the size 100. */
export function number(random: Random, scale = 1): number {
  if (chance(random, 0.1)) return pick(random, [0, 1, -1, 0.5, 100, -100]) * scale;
  return exact(random.normal(0, scale));
}

export const exact = (value: number): number => Math.round(value * 1024) / 1024 + 0; // + 0: not -0, which JSON loses

/** Rows like those of `mask`, each entry from `make`. */
export const rowsLike = (mask: Numbers, make: (row: number, t: number) => number): Numbers =>
  mask.map((row, i) => row.map((_, t) => make(i, t)));

/** A response mask: full rows, rows of different lengths, gaps, rows without a token, a single token, none at all. */
export function maskOf(random: Random, rows = 1 + random.int(8), time = 1 + random.int(8)): Numbers {
  const kind = pick(random, ["full", "ragged", "ragged", "gaps", "gaps", "empty rows", "one token", "none"] as const);
  if (kind === "none" && chance(random, 0.5)) return maskOf(random, rows, time); // rare
  const single = random.int(rows * time);
  return times(rows, (row) => {
    const length = kind === "full" ? time : kind === "empty rows" && chance(random, 0.3) ? 0 : 1 + random.int(time);
    return times(time, (t) => {
      if (kind === "none") return 0;
      if (kind === "one token") return Number(row * time + t === single);
      return Number(t < length && !(kind === "gaps" && chance(random, 0.25)));
    });
  });
}

/** Rewards of rows: one at the end, one per token, 0 or 1 with ties, all equal. */
export function rewardsOf(random: Random, mask: Numbers): Numbers {
  const kind = pick(random, ["outcome", "outcome", "dense", "binary", "equal"] as const);
  return mask.map((row) => {
    const last = Math.max(0, row.lastIndexOf(1));
    return row.map((counts, t) => {
      if (kind === "dense") return counts === 0 ? 0 : number(random, 0.2);
      if (t !== last) return 0;
      return kind === "outcome" ? number(random) : kind === "binary" ? random.int(2) : 1;
    });
  });
}

/** The group of each row. */
export const groupsOf = (random: Random, rows: number): string[] => {
  const names = ["uid-a", "uid-b", "uid-c", "uid-d"].slice(0, 1 + random.int(4));
  return times(rows, () => pick(random, names));
};

/** Log-probs, which are at most 0. */
export const logprobsOf = (random: Random, mask: Numbers): Numbers =>
  rowsLike(mask, () => (chance(random, 0.05) ? 0 : -Math.abs(exact(random.normal(0, 2)))));

/** Log-probs near others: equal, close, apart, very far. */
export function moved(random: Random, logprobs: Numbers): Numbers {
  const scale = pick(random, [0, 0.01, 0.1, 0.3, 1, 3, 25]);
  const step = () => Math.max(-39, Math.min(39, random.normal(0, scale)));
  return rowsLike(logprobs, (i, t) => Math.min(0, exact(logprobs[i]![t]! + step())));
}
