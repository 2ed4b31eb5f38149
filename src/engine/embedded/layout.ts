/**
 * Sequences laid out as the arrays a program reads: one micro-batch, padded to a common length at the end.
 *
 * A token `t` that counts is predicted from position `t - 1`, so the head reads the hidden state there; a score head
 * reads position `t` itself. `positions` lists what the head reads, `places` where each result belongs in the grid.
 */
import { fixedMicroBatches, type MicroBatch, microBatches } from "../../data/balance.ts";
import type { ModelConfig } from "../../models/config.ts";
import { ropeRegime } from "../../models/rope.ts";
import { UserError } from "../../util/errors.ts";
import type { HeadName, MicroBatching, TokenRow } from "../contract.ts";
import type { Parts } from "./programs.ts";
import type { Scratch } from "./scratch.ts";

export type Layout = {
  readonly bindings: { readonly batch: number; readonly span: number; readonly n: number };
  /** The kind of program that runs it: time is `parts * span`. */
  readonly parts: Parts;
  readonly time: number;
  /** The longest sequence, without padding. */
  readonly length: number;
  readonly arrays: Readonly<Record<string, Int32Array | Float32Array>>;
  /** Row of the batch and index in it, for each counted token. */
  readonly owners: readonly { readonly row: number; readonly at: number }[];
};

/** Cut a batch into micro-batches of sequences of like length, each small enough for the memory of a step. */
export function cut(rows: readonly TokenRow[], micro: MicroBatching, config: ModelConfig): MicroBatch[] {
  // Past the trained length some rope scalings depend on the length: such rows keep to themselves, as if alone.
  const regimes = Map.groupBy(rows.keys(), (i) => ropeRegime(config.rope, rows[i]!.ids.length));
  return [...regimes.values()].flatMap((indices) => {
    const lengths = indices.map((i) => rows[i]!.ids.length);
    const batches = cutLengths(lengths, micro, config);
    return batches.map((batch) => ({ ...batch, indices: batch.indices.map((i) => indices[i]!) }));
  });
}

function cutLengths(lengths: readonly number[], micro: MicroBatching, config: ModelConfig): MicroBatch[] {
  const most = Math.max(1, Math.floor(ACTIVATION_BYTES / bytesPerToken(config, Math.max(1, ...lengths))));
  if ("maxTokens" in micro) return microBatches(lengths, { maxTokens: Math.min(micro.maxTokens, most) });
  return fixedMicroBatches(lengths, micro.rows).flatMap((group) => {
    if (group.time * group.indices.length <= most) return [group];
    const own = group.indices.map((index) => lengths[index]!);
    const finer = microBatches(own, { maxTokens: most });
    return finer.map(({ indices, time }) => ({ indices: indices.map((i) => group.indices[i]!), time }));
  });
}

/** Below this length attention is not worth cutting. */
const SHORT = 96;

/** What the activations of one micro-batch may take. Fixed, so that a run is cut alike on every machine. */
const ACTIVATION_BYTES = 6e9;

/** About what one token leaves in memory until its gradient is known: per layer, and three rows of logits. */
function bytesPerToken({ layers, width, hidden, heads, vocabSize }: ModelConfig, time: number): number {
  return 4 * (layers * (12 * width + 6 * hidden + heads * time) + 3 * vocabSize);
}

/** Lay out the rows `indices` of a batch; null when no token of theirs counts. */
export function layOut(
  rows: readonly TokenRow[],
  indices: readonly number[],
  options: { heads: readonly HeadName[]; extra: readonly string[]; vocabSize: number; scratch: Scratch },
): Layout | null {
  const { heads, extra, scratch } = options;
  const shift = heads.includes("scores") ? 0 : 1;
  const batch = indices.length;
  const longest = Math.max(...indices.map((i) => rows[i]!.ids.length));
  const parts = longest < SHORT ? 1 : 4;
  const span = Math.ceil(longest / parts);
  const time = span * parts;
  const size = batch * time;

  const owners: { row: number; at: number }[] = [];
  const ids = scratch.ints("ids", size).fill(0);
  const rank = scratch.ints("rank", size).fill(0);
  const grid = scratch.ints("grid", size).fill(0);
  const isRead = scratch.floats("is_read", size).fill(0);
  const mask = scratch.floats("mask", size).fill(0);
  const positions: number[] = [];
  const places: number[] = [];
  indices.forEach((rowIndex, b) => {
    const row = rows[rowIndex]!;
    checkIds(row.ids, options.vocabSize);
    ids.set(row.ids, b * time);
    for (let t = shift; t < row.ids.length; t++) {
      if (!row.mask[t]) continue;
      const place = b * time + t;
      const position = place - shift;
      rank[position] = positions.length;
      isRead[position] = 1;
      grid[place] = positions.length;
      mask[place] = 1;
      positions.push(position);
      places.push(place);
      owners.push({ row: rowIndex, at: t });
    }
  });
  if (owners.length === 0) return null;

  const n = owners.length;
  const arrays: Record<string, Int32Array | Float32Array> = { ids, rank, grid, is_read: isRead, mask };
  const put = (name: string, values: ArrayLike<number>) => {
    arrays[name] = scratch.ints(name, n);
    arrays[name].set(values);
  };
  put("positions", positions);
  put("places", places);
  put(
    "targets",
    places.map((place) => ids[place]!),
  );
  for (const name of extra) {
    const values = scratch.floats(`extra/${name}`, size).fill(0);
    indices.forEach((rowIndex, b) => {
      const given = rows[rowIndex]!.extra?.[name];
      if (given !== undefined) values.set(given, b * time);
    });
    arrays[`extra/${name}`] = values;
  }
  return { bindings: { batch, span, n }, parts, time, length: longest, arrays, owners };
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
