/**
 * Micro-batches: which sequences run together in one padded [batch, time] block.
 *
 * Sequences are sorted by length, and the sorted list is cut where the total work is least: padded tokens plus a fixed
 * price per micro-batch. So blocks hold sequences of like length, and a block is split only where the padding it saves
 * is worth another run. The result depends on the lengths alone; longest blocks come first, so that a run that needs
 * too much memory says so at its start.
 */
import { invariant } from "../util/errors.ts";

/** Sequences that run as one block of `indices.length` rows and `time` columns. */
export type MicroBatch = { readonly indices: readonly number[]; readonly time: number };

/**
 * What one more micro-batch costs, in tokens. Reading the weights twice and writing, reading and adding the gradients
 * moves 24 bytes per parameter; a token takes 6 operations per parameter. At 10 GB/s and 80 GFLOP/s that is 32 tokens,
 * whatever the model.
 */
export const RUN_COST_TOKENS = 32;

/** Groups of like length whose padded size is at most `maxTokens`; a longer sequence runs alone. */
export function microBatches(lengths: readonly number[], { maxTokens }: { maxTokens: number }): MicroBatch[] {
  invariant(maxTokens >= 1, `a token budget is positive, not ${maxTokens}`);
  const order = byLength(lengths);
  const sorted = order.map((index) => Math.max(1, lengths[index]!)); // longest first
  const cuts = cheapestCuts(sorted, maxTokens);
  const batches: MicroBatch[] = [];
  for (let start = 0; start < order.length; start = cuts[start]!)
    batches.push({ indices: order.slice(start, cuts[start]!), time: sorted[start]! });
  return batches;
}

/** Groups of `size` sequences of like length; the last group may be smaller. */
export function fixedMicroBatches(lengths: readonly number[], size: number): MicroBatch[] {
  invariant(Number.isInteger(size) && size >= 1, `a micro-batch size is a positive whole number, not ${size}`);
  const order = byLength(lengths);
  const batches: MicroBatch[] = [];
  for (let start = 0; start < order.length; start += size)
    batches.push({ indices: order.slice(start, start + size), time: Math.max(1, lengths[order[start]!]!) });
  return batches;
}

function byLength(lengths: readonly number[]): number[] {
  return lengths.map((_, index) => index).sort((a, b) => lengths[b]! - lengths[a]! || a - b);
}

/**
 * For each position of the sorted lengths, where the block that starts there ends in the cheapest division of the rest.
 *
 * Dynamic programming from the end: cost(i) = min over j of (j - i) * sorted[i] + RUN_COST_TOKENS + cost(j). Ends are
 * tried only where the length changes and where the budget is full, and no further than where splitting the block in
 * its middle is cheaper, which keeps 100,000 sequences within a fraction of a second.
 */
function cheapestCuts(sorted: readonly number[], maxTokens: number): Uint32Array {
  const count = sorted.length;
  const cuts = new Uint32Array(count);
  const cost = new Float64Array(count + 1);
  const runEnd = new Uint32Array(count); // where the run of equal lengths that holds i ends
  for (let i = count - 1; i >= 0; i--)
    runEnd[i] = i + 1 < count && sorted[i + 1] === sorted[i] ? runEnd[i + 1]! : i + 1;

  for (let i = count - 1; i >= 0; i--) {
    const longest = sorted[i]!;
    const full = Math.min(count, i + Math.max(1, Math.floor(maxTokens / longest)));
    let best = Number.POSITIVE_INFINITY;
    for (let j = Math.min(runEnd[i]!, full); ; j = Math.min(runEnd[j]!, full)) {
      const total = (j - i) * longest + RUN_COST_TOKENS + cost[j]!;
      // A tie goes to the larger block: fewer runs.
      if (total <= best) {
        best = total;
        cuts[i] = j;
      }
      if (j === full) break;
      const middle = (i + j) >> 1;
      if ((j - middle) * (longest - sorted[middle]!) > RUN_COST_TOKENS) break;
    }
    cost[i] = best;
  }
  return cuts;
}
