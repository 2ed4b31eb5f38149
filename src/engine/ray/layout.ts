/**
 * A batch divided among workers: rows to workers by work, each worker's rows to micro-batches of like length, and a
 * micro-batch to the arrays that a worker reads.
 *
 * Workers pass through their micro-batches together, so all have the same number of them; where one has none left it
 * gets a stand-in that counts for nothing. As everywhere, a counted token `t` is predicted from position `t - 1`, and
 * a score head reads position `t` itself.
 */
import { workload } from "../../algos/balancing/balancing.ts";
import { karmarkarKarp } from "../../algos/balancing/partition.ts";
import { fixedMicroBatches, microBatches } from "../../data/balance.ts";
import { UserError } from "../../util/errors.ts";
import type { HeadName, MicroBatching, TokenRow } from "../contract.ts";

/** The rows of each worker's micro-batch, by rank; none where a worker has nothing to do. */
export type Round = readonly (readonly number[])[];

/** Past `end` tokens a rotary embedding depends on the length of a sequence: on each length, or there is a second one. */
export type Regime = { readonly type: "dynamic" | "longrope"; readonly end: number };

/** Cut a batch into rounds: one micro-batch for every worker. */
export function divide(
  rows: readonly TokenRow[],
  { micro, regime, workers }: { micro: MicroBatching; regime: Regime | null; workers: number },
): Round[] {
  const queues = partsOf(rows, workers).map((own) => {
    // Such rows keep to themselves, as if alone.
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

/** Sequences of the same number may share a pass. */
function regimeOf(regime: Regime | null, length: number): number {
  if (regime === null || length <= regime.end) return 0;
  return regime.type === "dynamic" ? length : 1;
}

/** The rows of each worker, with like work for all. */
function partsOf(rows: readonly TokenRow[], workers: number): readonly (readonly number[])[] {
  const most = Math.min(workers, rows.length);
  if (most === 0) return Array.from({ length: workers }, () => []);
  const weights = rows.map((row) => workload(row.ids.length));
  const parts = karmarkarKarp(weights, most);
  return [...parts, ...Array.from({ length: workers - most }, () => [])];
}

/** One worker's micro-batch: `positions` of the flat [rows, time] are what the head reads, `places` what it is about. */
export type Block = {
  /** Which rows of the batch these are. */
  readonly indices: readonly number[];
  readonly rows: number;
  readonly time: number;
  readonly ids: Int32Array;
  readonly positions: Int32Array;
  readonly places: Int32Array;
  readonly targets: Int32Array;
  /** Row of the batch and index in it, for each counted token. */
  readonly owners: readonly { readonly row: number; readonly at: number }[];
};

/** Lay out the rows `indices` of a batch; null when no token of theirs counts. */
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

/** What a worker computes while the others have something to do. */
export const standIn: Block = {
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
