/**
 * A batch cut into micro-batches, each small enough for the memory of a step. Sequences that share a prefix go together
 * (`branches.ts`), the others go by similar length (`rows.ts`).
 */
import { fixedMicroBatches, type MicroBatch, microBatches } from "../../data/balance.ts";
import { type ModelConfig, positionRegime, positionsOf } from "../../models/config.ts";
import { modelCost } from "../../models/cost.ts";
import { UserError } from "../../util/errors.ts";
import type { HeadName, MicroBatching, TokenRow } from "../contract.ts";
import { cutGroups, layOutBranches, type PrefixGroup, prefixGroups, tokensInGroup } from "./branches.ts";
import { type Layout, type LayoutOptions, partsFor } from "./layout.ts";
import { layOutRows } from "./rows.ts";

/** Rows that run together: in groups that share a prefix, or as padded rows (`groups` is null). */
export type Block = { readonly indices: readonly number[]; readonly groups: readonly PrefixGroup[] | null };

/** Cut a batch into micro-batches, each small enough for the memory of a step. */
export function cut(
  rows: readonly TokenRow[],
  micro: MicroBatching,
  { heads, config }: { heads: readonly HeadName[]; config: ModelConfig },
): Block[] {
  // Past the trained length some rope scalings depend on the length: rows of other tables go in other micro-batches.
  const schemes = positionsOf(config);
  const regimes = Map.groupBy(rows.keys(), (i) => positionRegime(schemes, rows[i]!.ids.length));
  return [...regimes.values()].flatMap((indices) => {
    const { shared, alone } = prefixGroups(rows, indices, { heads, config });
    const longest = Math.max(1, ...indices.map((i) => rows[i]!.ids.length));
    const branching = cutGroups(shared, micro, mostTokens(config, longest, micro)).map((batch) => ({
      indices: batch.flat().map(({ row }) => row),
      groups: batch,
    }));
    const lengths = alone.map((i) => rows[i]!.ids.length);
    const padded = cutLengths(lengths, micro, config).map((batch) => ({
      indices: batch.indices.map((i) => alone[i]!),
      groups: null,
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
 * What the activations of one micro-batch may take. A micro-batch that is given in rows is as large as asked for, up to
 * `MOST_BYTES`; one that is given in tokens is as large as makes products fast. The numbers are fixed, so that a batch
 * is cut in the same way on every machine.
 */
const MOST_BYTES = 6e9;
const ENOUGH_BYTES = 5e8;
const FAST_TOKENS = 512;

/** An upper bound of what one token keeps in memory until its gradient is known, in all layers and the head. */
function bytesPerToken(config: ModelConfig, time: number): number {
  const { layers, head } = modelCost(config, { use: "limit", length: time, keys: time });
  return layers.activationBytes + head.activationBytes;
}

/** Tokens that a block computes, padding included. */
export function tokensOfBlock(rows: readonly TokenRow[], { indices, groups }: Block): number {
  if (groups !== null) return groups.reduce((sum, group) => sum + tokensInGroup(group), 0);
  return indices.length * partsFor(Math.max(...indices.map((i) => rows[i]!.ids.length))).time;
}

/** How many tokens may be in memory at once, in sequences of up to `time` tokens. */
function mostTokens(config: ModelConfig, time: number, micro: MicroBatching): number {
  const bytes = bytesPerToken(config, time);
  const most = Math.max(1, Math.floor(MOST_BYTES / bytes));
  if ("rows" in micro) return most;
  return Math.min(most, micro.maxTokens, Math.max(FAST_TOKENS, Math.floor(ENOUGH_BYTES / bytes)));
}

/** Lay out a block of a batch; null when no token of its rows counts. */
export function layOut(rows: readonly TokenRow[], block: Block, options: LayoutOptions): Layout | null {
  for (const row of block.indices) checkIds(rows[row]!.ids, options.config.vocabSize);
  return block.groups === null ? layOutRows(rows, block.indices, options) : layOutBranches(rows, block.groups, options);
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
