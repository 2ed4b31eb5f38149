/**
 * Micro-batches by token budget: as few as fit, of like work, for sequences that are packed without padding (padded
 * blocks are `data/balance.ts`'s).
 *
 * The budget bounds every micro-batch, as in verl 0.9.1; with `version: "0.7"` only their average, as in verl 0.7.
 * Departures: a sequence is held against the budget by its own length, not by the width it would be padded to, and the
 * smallest number that fits is searched by doubling and halving, not one by one; among hundreds, to the nearest percent.
 */
import { invariant, UserError } from "../../util/errors.ts";
import { workload } from "./balancing.ts";
import { karmarkarKarp, type Parts, partSums } from "./partition.ts";

export type TokenBudget = {
  /** Tokens of a micro-batch, at most. */
  readonly maxTokens: number;
  /** Make at least this many, for pipelines. */
  readonly minCount?: number;
  /** Make a multiple of this many, for virtual pipelines. */
  readonly multipleOf?: number;
  /** This many consecutive rows stay together. */
  readonly groupSize?: number;
  /** Put small micro-batches first and last (`use_dynamic_bsz_balance`; the default). */
  readonly smallAtEnds?: boolean;
  /** "0.7" takes the total over the budget, rounded up, whether or not every micro-batch fits. */
  readonly version?: "0.7" | "0.9";
};

/** The rows of each micro-batch of one worker. */
export function microBatchesByTokens(lengths: readonly number[], budget: TokenBudget): Parts {
  return microBatchesOfWorkers([lengths], budget)[0]!;
}

/** The micro-batches of several workers, the same number for each, so that they stay in step. */
export function microBatchesOfWorkers(lengths: readonly (readonly number[])[], budget: TokenBudget): readonly Parts[] {
  const { maxTokens, groupSize = 1, smallAtEnds = true } = budget;
  const workers = lengths.map((own) => unitsOf(own, groupSize));
  if (workers.every(({ tokens }) => tokens.length === 0)) return workers.map(() => []);
  for (const { tokens } of workers) checkLongest(tokens, maxTokens);
  return divided(workers, budget).map((parts, i) => {
    const ordered = smallAtEnds ? withSmallAtEnds(parts, workers[i]!.weights) : parts;
    return ordered.map((units) => units.flatMap((unit) => range(unit * groupSize, groupSize)));
  });
}

/** What cannot be divided: rows, or runs of `groupSize` rows; their tokens and their work. */
type Units = { readonly tokens: readonly number[]; readonly weights: readonly number[] };

function unitsOf(lengths: readonly number[], groupSize: number): Units {
  invariant(Number.isInteger(groupSize) && groupSize >= 1, `a group has a positive number of rows, not ${groupSize}`);
  if (lengths.length % groupSize !== 0) {
    throw new UserError(
      `${lengths.length} rows are no whole number of groups of ${groupSize}: ${lengths.length % groupSize} are left over.`,
    );
  }
  const starts = range(0, lengths.length / groupSize).map((unit) => unit * groupSize);
  const sums = (of: (length: number) => number) =>
    starts.map((start) => lengths.slice(start, start + groupSize).reduce((sum, length) => sum + of(length), 0));
  return { tokens: sums((length) => length), weights: sums((length) => workload(length)) };
}

function checkLongest(tokens: readonly number[], maxTokens: number): void {
  const longest = tokens.reduce((most, count) => Math.max(most, count), 0);
  if (longest <= maxTokens) return;
  throw new UserError(
    `Row (or group of rows) ${tokens.indexOf(longest)} has ${longest} tokens where a micro-batch may have ${maxTokens}. ` +
      `Raise the token budget to at least ${longest}, or lower the longest prompt or response.`,
  );
}

/** Each worker's units in the smallest number of parts that the budget allows. */
function divided(workers: readonly Units[], budget: TokenBudget): readonly Parts[] {
  const { maxTokens, minCount = 1, multipleOf = 1, version = "0.9" } = budget;
  const fewest = version === "0.7" ? fewestByTotal : fewestPossible;
  const lowest = workers.reduce((most, { tokens }) => Math.max(most, fewest(tokens, maxTokens)), minCount);
  const highest = workers.reduce((least, { tokens }) => Math.min(least, tokens.length), Number.POSITIVE_INFINITY);
  const attempt = (multiple: number): readonly Parts[] | null => {
    const all = workers.map(({ weights }) => karmarkarKarp(weights, multiple * multipleOf));
    const isWithin = all.every((parts, i) => partSums(workers[i]!.tokens, parts).every((sum) => sum <= maxTokens));
    return isWithin || version === "0.7" ? all : null;
  };
  const found = smallest(Math.ceil(lowest / multipleOf), Math.floor(highest / multipleOf), attempt);
  if (found !== null) return found;
  const asked = [
    minCount > 1 ? [`at least ${minCount}`] : [],
    multipleOf > 1 ? [`a multiple of ${multipleOf}`] : [],
    workers.length > 1 ? ["as many on every worker"] : [],
  ].flat();
  throw new UserError(
    `${highest} rows (or groups) cannot be divided into micro-batches of at most ${maxTokens} tokens` +
      `${asked.length > 0 ? ` when there are to be ${asked.join(", ")}` : ""}. ` +
      "Raise the token budget, or use more rows.",
  );
}

function fewestByTotal(tokens: readonly number[], maxTokens: number): number {
  const total = tokens.reduce((sum, count) => sum + count, 0);
  return Math.min(tokens.length, Math.max(1, Math.ceil(total / maxTokens)));
}

function fewestPossible(tokens: readonly number[], maxTokens: number): number {
  const large = tokens.filter((count) => 2 * count > maxTokens).length; // no two of these go together
  return Math.max(fewestByTotal(tokens, maxTokens), large);
}

/**
 * What `attempt` gives for the smallest number from `low` to `high` at which it is not null, provided that larger ones
 * stay so; of numbers beyond 256, for one that is less than a hundredth above it.
 */
function smallest<T>(low: number, high: number, attempt: (n: number) => T | null): T | null {
  if (low > high) return null;
  const grain = Math.max(1, low >> 7);
  let failed = low - grain;
  let n = low;
  let found = attempt(n);
  for (let step = grain; found === null && n < high; step *= 2) {
    failed = n;
    n = Math.min(high, n + step);
    found = attempt(n);
  }
  while (found !== null && n - failed > grain) {
    const middle = (failed + n) >> 1;
    const fewer = attempt(middle);
    if (fewer === null) failed = middle;
    else [n, found] = [middle, fewer];
  }
  return found;
}

/** Pipelines fill and drain on their first and last micro-batches, which had better be short. */
function withSmallAtEnds(parts: Parts, weights: readonly number[]): Parts {
  const sums = partSums(weights, parts);
  const order = range(0, parts.length).sort((a, b) => sums[b]! - sums[a]! || parts[b]![0]! - parts[a]![0]!);
  const [even, odd] = [order.filter((_, i) => i % 2 === 0), order.filter((_, i) => i % 2 === 1)];
  return [...even.reverse(), ...odd].map((part) => parts[part]!);
}

function range(start: number, count: number): number[] {
  return Array.from({ length: count }, (_, i) => start + i);
}
