/**
 * Which worker gets which sequences, so that all have about the same work.
 *
 * How the sequences of one worker are cut into micro-batches is in `data/balance.ts`. Everything depends on the lengths
 * alone. Row numbers are positions in the list of lengths.
 *
 * Departures from verl: rows that do not fill a mini-batch are refused, not dropped, and ordering a worker's rows leaves
 * them in their mini-batch. Rows of a group need not be contiguous. A batch that workers cannot share evenly is divided
 * into nearly equal work, not refused. Statistics of rows that cannot be divided evenly
 * compare nearly equal shares, where verl adds a short one.
 */
import { invariant, UserError } from "../../util/errors.ts";
import { groupRows } from "../batch.ts";
import type { Metrics } from "../metrics/metrics.ts";
import { karmarkarKarp, type Parts, partSums } from "./partition.ts";

/**
 * Relative work of a sequence in a transformer of hidden size h: 12 h^2 operations for each token and 2 h for each pair
 * of tokens, over 2 h. verl has h = 4096, which is 24576 L + L^2.
 */
export function workload(length: number, hiddenSize = 4096): number {
  return 6 * hiddenSize * length + length * length;
}

type WorkerOptions = {
  readonly workers: number;
  /** Balance within each run of this many rows, so that a mini-batch keeps its rows; all rows by default. */
  readonly miniBatchSize?: number;
  /** The group of each row: rows of a group stay together, and workers get the same number of groups. */
  readonly groups?: readonly string[];
};

/**
 * The rows of each worker: the same number for all, mini-batch after mini-batch, with small sequences first and last
 * unless groups are kept together.
 */
export function balanceWorkers(lengths: readonly number[], { workers, miniBatchSize, groups }: WorkerOptions): Parts {
  const size = miniBatchSize ?? Math.max(1, lengths.length);
  invariant(Number.isInteger(size) && size >= 1, `a mini-batch has a positive number of rows, not ${size}`);
  const left = lengths.length % size;
  if (left !== 0) {
    throw new UserError(
      `${lengths.length} rows are no whole number of mini-batches of ${size}: ${left} are left over. ` +
        "Let the mini-batch size divide the number of rows.",
    );
  }
  const all = Array.from({ length: workers }, (): number[] => []);
  for (let start = 0; start < lengths.length; start += size) {
    const rows = Array.from({ length: size }, (_, i) => start + i);
    const units = groups === undefined ? rows.map((row) => [row]) : membersOf(rows, groups);
    const weights = units.map((unit) => unit.reduce((sum, row) => sum + workload(lengths[row]!), 0));
    karmarkarKarp(weights, workers, { equalSize: true }).forEach((part, worker) => {
      const own = part.flatMap((unit) => units[unit]!);
      for (const row of groups === undefined ? withSmallAtEnds(own, lengths) : own) all[worker]!.push(row);
    });
  }
  return all;
}

/**
 * The rows of a batch for workers that may not get the same number of them, and the order in which mini-batches are cut
 * from it: one row of each worker in turn. In verl every worker cuts its own rows, so a mini-batch has the same share of
 * each; here a mini-batch is cut from the whole, and has the same rows.
 */
export function balanceBatch(
  lengths: readonly number[],
  count: number,
): { readonly parts: Parts; readonly order: readonly number[] } {
  const workers = Math.max(1, Math.min(count, lengths.length));
  const isEven = lengths.length % workers === 0;
  const weights = () => lengths.map((length) => workload(length));
  const parts = isEven ? balanceWorkers(lengths, { workers }) : karmarkarKarp(weights(), workers);
  const longest = Math.max(...parts.map((rows) => rows.length));
  const order = Array.from({ length: longest }, (_, i) => parts.flatMap((rows) => rows.slice(i, i + 1))).flat();
  return { parts, order };
}

/** Tokens per worker if rows were given out in order, and as they were given out; the names are `{prefix}/min` and so on. */
export function balanceMetrics(lengths: readonly number[], parts: Parts, prefix = "global_seqlen"): Metrics {
  if (parts.length === 0) return {};
  const cut = (i: number) => Math.floor((i * lengths.length) / parts.length);
  const sum = (tokens: readonly number[]) => tokens.reduce((total, count) => total + count, 0);
  const before = parts.map((_, i) => sum(lengths.slice(cut(i), cut(i + 1)))).sort((a, b) => a - b);
  const after = partSums(lengths, parts).sort((a, b) => a - b);
  return {
    [`${prefix}/min`]: before[0]!,
    [`${prefix}/max`]: before.at(-1)!,
    [`${prefix}/minmax_diff`]: before.at(-1)! - before[0]!,
    [`${prefix}/balanced_min`]: after[0]!,
    [`${prefix}/balanced_max`]: after.at(-1)!,
    [`${prefix}/mean`]: sum(before) / parts.length,
  };
}

/** Rows of each group, in the order of first appearance. */
function membersOf(rows: readonly number[], groups: readonly string[]): number[][] {
  return [...groupRows(rows.map((row) => groups[row]!)).values()].map((members) => members.map((i) => rows[i]!));
}

/** Pipelines fill and drain on their first and last rows, so these should be short. */
function withSmallAtEnds(rows: number[], lengths: readonly number[]): number[] {
  rows.sort((a, b) => lengths[a]! - lengths[b]! || a - b);
  return [...rows.filter((_, i) => i % 2 === 0), ...rows.filter((_, i) => i % 2 === 1).reverse()];
}
