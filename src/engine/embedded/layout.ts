/**
 * Sequences laid out as the arrays a program reads: one micro-batch, padded to a common length at the end.
 *
 * A token `t` that counts is predicted from position `t - 1`, so the head reads the hidden state there; a score head
 * reads position `t` itself. `positions` lists what the head reads, `places` where each result belongs in the grid.
 */
import { fixedMicroBatches, type MicroBatch, microBatches } from "../../data/balance.ts";
import type { ModelConfig } from "../../models/config.ts";
import type { HeadName, MicroBatching, TokenRow } from "../contract.ts";
import { TIME_MULTIPLE } from "./programs.ts";
import type { Scratch } from "./scratch.ts";

export type Layout = {
  readonly bindings: { readonly batch: number; readonly span: number; readonly n: number };
  readonly time: number;
  readonly arrays: Readonly<Record<string, Int32Array | Float32Array>>;
  /** Row of the batch and index in it, for each counted token. */
  readonly owners: readonly { readonly row: number; readonly at: number }[];
};

/** Cut a batch into micro-batches of sequences of like length, each small enough for the memory of a step. */
export function cut(rows: readonly TokenRow[], micro: MicroBatching, config: ModelConfig): MicroBatch[] {
  const lengths = rows.map((row) => row.ids.length);
  const most = Math.floor(ACTIVATION_BYTES / bytesPerToken(config, Math.max(1, ...lengths)));
  if ("maxTokens" in micro) return microBatches(lengths, { maxTokens: Math.max(1, Math.min(micro.maxTokens, most)) });
  const groups = fixedMicroBatches(lengths, micro.rows);
  return groups.flatMap((group) => {
    if (group.time * group.indices.length <= most) return [group];
    const own = group.indices.map((index) => lengths[index]!);
    const finer = microBatches(own, { maxTokens: Math.max(1, most) });
    return finer.map(({ indices, time }) => ({ indices: indices.map((i) => group.indices[i]!), time }));
  });
}

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
  options: { heads: readonly HeadName[]; extra: readonly string[]; scratch: Scratch },
): Layout | null {
  const { heads, extra, scratch } = options;
  const shift = heads.includes("scores") ? 0 : 1;
  const batch = indices.length;
  const longest = Math.max(...indices.map((i) => rows[i]!.ids.length));
  const span = Math.ceil(longest / TIME_MULTIPLE);
  const time = span * TIME_MULTIPLE;
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
  return { bindings: { batch, span, n }, time, arrays, owners };
}
