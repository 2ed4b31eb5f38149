/**
 * A batch divided over workers: rows to workers with equal work, each worker's rows to micro-batches of similar length,
 * and a micro-batch to the arrays that a worker reads.
 *
 * Workers compute their micro-batches together, so all have the same number of them. A worker that has none left gets a
 * dummy block, whose outputs are ignored. As everywhere, a counted token `t` is predicted from position `t - 1`, and a
 * score head reads position `t` itself.
 */
import { workload } from "../../algos/balancing/balancing.ts";
import { karmarkarKarp } from "../../algos/balancing/partition.ts";
import { fixedMicroBatches, microBatches } from "../../data/balance.ts";
import { UserError } from "../../util/errors.ts";
import type { HeadName, MicroBatching, TokenRow } from "../contract.ts";

/** The rows of each worker's micro-batch, by rank; empty for a worker that has no more rows. */
export type Round = readonly (readonly number[])[];

/** Above `end` tokens the rotary embedding differs: for each length (`dynamic`), or there is a second one (`longrope`). */
export type Regime = { readonly type: "dynamic" | "longrope"; readonly end: number };

/** Split a batch into rounds: one micro-batch for every worker. */
export function divide(
  rows: readonly TokenRow[],
  { micro, regime, workers }: { micro: MicroBatching; regime: Regime | null; workers: number },
): Round[] {
  const queues = partsOf(rows, workers).map((own) => {
    // Rows of different regimes do not share a pass.
    const regimes = Map.groupBy(own, (i) => regimeOf(regime, rows[i]!.ids.length));
    return [...regimes.values()].flatMap((indices) => {
      const lengths = indices.map((i) => rows[i]!.ids.length);
      const batches = "rows" in micro ? fixedMicroBatches(lengths, micro.rows) : microBatches(lengths, micro);
      return batches.map((batch) => batch.indices.map((i) => indices[i]!));
    });
  });
  const count = Math.max(0, ...queues.map((queue) => queue.length));
  return Array.from({ length: count }, (_, i) => queues.map((queue) => queue[i] ?? []));
}

/** Sequences with the same number may share a pass. */
function regimeOf(regime: Regime | null, length: number): number {
  if (regime === null || length <= regime.end) return 0;
  return regime.type === "dynamic" ? length : 1;
}

/** The rows of each worker, with equal work for all. */
function partsOf(rows: readonly TokenRow[], workers: number): readonly (readonly number[])[] {
  const most = Math.min(workers, rows.length);
  if (most === 0) return Array.from({ length: workers }, () => []);
  const weights = rows.map((row) => workload(row.ids.length));
  const parts = karmarkarKarp(weights, most);
  return [...parts, ...Array.from({ length: workers - most }, () => [])];
}

/** One worker's micro-batch. In the flat [rows, time], the head reads `positions`; `places` are the counted tokens. */
export type Block = {
  /** Its rows of the batch. */
  readonly indices: readonly number[];
  readonly rows: number;
  readonly time: number;
  readonly ids: Int32Array;
  readonly positions: Int32Array;
  readonly places: Int32Array;
  readonly targets: Int32Array;
  /** The row of the batch and the index in it, for each counted token. */
  readonly owners: readonly { readonly row: number; readonly at: number }[];
};

/** Lay out the rows `indices` of a batch; null if none of their tokens counts. */
export function layOut(
  rows: readonly TokenRow[],
  indices: readonly number[],
  { heads, vocabSize }: { heads: readonly HeadName[]; vocabSize: number },
): Block | null {
  const shift = heads.includes("scores") ? 0 : 1;
  const time = Math.max(0, ...indices.map((i) => rows[i]!.ids.length));
  const ids = new Int32Array(indices.length * time);
  const places: number[] = [];
  const owners: { row: number; at: number }[] = [];
  indices.forEach((row, b) => {
    const { ids: own, mask } = rows[row]!;
    checkIds(own, vocabSize);
    ids.set(own, b * time);
    for (let at = shift; at < own.length; at++) {
      if (!mask[at]) continue;
      places.push(b * time + at);
      owners.push({ row, at });
    }
  });
  if (owners.length === 0) return null;
  return {
    indices,
    rows: indices.length,
    time,
    ids,
    owners,
    positions: Int32Array.from(places, (place) => place - shift),
    places: Int32Array.from(places),
    targets: Int32Array.from(places, (place) => ids[place]!),
  };
}

/** What a worker computes when it has no rows left and others have. */
export const dummyBlock: Block = {
  indices: [],
  rows: 1,
  time: 1,
  ids: Int32Array.of(0),
  owners: [],
  positions: Int32Array.of(0),
  places: Int32Array.of(0),
  targets: Int32Array.of(0),
};

function checkIds(ids: Int32Array, vocabSize: number): void {
  for (const id of ids) {
    if (id < 0 || id >= vocabSize) {
      throw new UserError(
        `The token id ${id} is not in the model's vocabulary of ${vocabSize}: the tokenizer belongs to another model.`,
      );
    }
  }
}
