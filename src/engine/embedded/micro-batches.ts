/**
 * A batch cut into micro-batches, each small enough for the memory of a step. Sequences that begin alike go together
 * (`branches.ts`), the others by like length (`rows.ts`).
 */
import { fixedMicroBatches, type MicroBatch, microBatches } from "../../data/balance.ts";
import type { ModelConfig } from "../../models/config.ts";
import { ropeRegime } from "../../models/rope.ts";
import { UserError } from "../../util/errors.ts";
import type { HeadName, MicroBatching, TokenRow } from "../contract.ts";
import { cutFamilies, type Family, families, layOutBranches, tokensOf } from "./branches.ts";
import { type Layout, type LayoutOptions, partsFor } from "./layout.ts";
import { layOutRows } from "./rows.ts";

/** Rows that run together, as families where they begin alike. */
export type Block = { readonly indices: readonly number[]; readonly families: readonly Family[] | null };

/** Cut a batch into micro-batches, each small enough for the memory of a step. */
export function cut(
  rows: readonly TokenRow[],
  micro: MicroBatching,
  { heads, config }: { heads: readonly HeadName[]; config: ModelConfig },
): Block[] {
  // Past the trained length some rope scalings depend on the length: such rows keep to themselves, as if alone.
  const regimes = Map.groupBy(rows.keys(), (i) => ropeRegime(config.rope, rows[i]!.ids.length));
  return [...regimes.values()].flatMap((indices) => {
    const { shared, alone } = families(rows, indices, { heads, config });
    const longest = Math.max(1, ...indices.map((i) => rows[i]!.ids.length));
    const branching = cutFamilies(shared, micro, mostTokens(config, longest, micro)).map((batch) => ({
      indices: batch.flat().map(({ row }) => row),
      families: batch,
    }));
    const lengths = alone.map((i) => rows[i]!.ids.length);
    const padded = cutLengths(lengths, micro, config).map((batch) => ({
      indices: batch.indices.map((i) => alone[i]!),
      families: null,
    }));
    return [...branching, ...padded];
  });
}

function cutLengths(lengths: readonly number[], micro: MicroBatching, config: ModelConfig): MicroBatch[] {
  const most = mostTokens(config, Math.max(1, ...lengths), micro);
  if ("maxTokens" in micro) return microBatches(lengths, { maxTokens: most });
  return fixedMicroBatches(lengths, micro.rows).flatMap((group) => {
    if (group.time * group.indices.length <= most) return [group];
    const own = group.indices.map((index) => lengths[index]!);
    const finer = microBatches(own, { maxTokens: most });
    return finer.map(({ indices, time }) => ({ indices: indices.map((i) => group.indices[i]!), time }));
  });
}

/**
 * What the activations of one micro-batch may take: of so many rows, as many as were asked for unless that is very much;
 * of tokens, as many as make products fast. Fixed, so that a run is cut alike on every machine.
 */
const MOST_BYTES = 6e9;
const ENOUGH_BYTES = 5e8;
const FAST_TOKENS = 512;

/** About what one token leaves in memory until its gradient is known: per layer, and three rows of logits. */
function bytesPerToken({ layers, width, hidden, heads, vocabSize }: ModelConfig, time: number): number {
  return 4 * (layers * (12 * width + 6 * hidden + heads * time) + 3 * vocabSize);
}

/** Tokens that a block computes, padding included. */
export function tokensOfBlock(rows: readonly TokenRow[], { indices, families: batch }: Block): number {
  if (batch !== null) return batch.reduce((sum, family) => sum + tokensOf(family), 0);
  return indices.length * partsFor(Math.max(...indices.map((i) => rows[i]!.ids.length))).time;
}

/** Tokens of sequences of up to `time` that may be in memory at once. */
function mostTokens(config: ModelConfig, time: number, micro: MicroBatching): number {
  const bytes = bytesPerToken(config, time);
  const most = Math.max(1, Math.floor(MOST_BYTES / bytes));
  if ("rows" in micro) return most;
  return Math.min(most, micro.maxTokens, Math.max(FAST_TOKENS, Math.floor(ENOUGH_BYTES / bytes)));
}

/** Lay out a block of a batch; null when no token of its rows counts. */
export function layOut(rows: readonly TokenRow[], block: Block, options: LayoutOptions): Layout | null {
  for (const row of block.indices) checkIds(rows[row]!.ids, options.config.vocabSize);
  return block.families === null
    ? layOutRows(rows, block.indices, options)
    : layOutBranches(rows, block.families, options);
}

function checkIds(ids: Int32Array, vocabSize: number): void {
  for (const id of ids) {
    if (id < 0 || id >= vocabSize) {
      throw new UserError(
        `The token id ${id} is not in the model's vocabulary of ${vocabSize}: the tokenizer belongs to another model.`,
      );
    }
  }
}
