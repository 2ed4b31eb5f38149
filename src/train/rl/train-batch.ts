/** What an update is computed from: episodes, which of their tokens count, and everything that a loss may read by name. */
import type { Rows } from "../../algos/batch.ts";
import { extraName } from "../../algos/losses/token-loss.ts";
import type { TokenLoss, TokenRow } from "../../engine/contract.ts";
import { type Episode, tokenRows } from "./episode.ts";

/** Every list has one row per episode, which begins after the prompt. */
export type TrainBatch = {
  readonly episodes: readonly Episode[];
  readonly mask: Rows;
  /** Per-token inputs of losses, by name: `oldLogprobs`, `advantages`, … */
  readonly columns: Readonly<Record<string, Rows>>;
};

/** Some rows of a batch, in the order given; a row may come several times. */
export function selectRows({ episodes, mask, columns }: TrainBatch, rows: readonly number[]): TrainBatch {
  const pick = <T>(list: readonly T[]): T[] => rows.map((row) => list[row]!);
  const picked = Object.entries(columns).map(([name, column]) => [name, pick(column)] as const);
  return { episodes: pick(episodes), mask: pick(mask), columns: Object.fromEntries(picked) };
}

/** The batch with further columns; one of the same name is replaced. Columns that are null are left out. */
export function withColumns(batch: TrainBatch, added: Readonly<Record<string, Rows | null | undefined>>): TrainBatch {
  const given = Object.entries(added).filter((entry): entry is [string, Rows] => entry[1] != null);
  return { ...batch, columns: { ...batch.columns, ...Object.fromEntries(given) } };
}

/** The batch as an engine trains on it, with the columns that the loss reads; the engine names a missing one. */
export function rowsFor({ episodes, mask, columns }: TrainBatch, { extra = [] }: Pick<TokenLoss, "extra">): TokenRow[] {
  const names = extra.map(extraName);
  const read = Object.entries(columns).filter(([name]) => names.includes(name));
  return tokenRows(episodes, mask, Object.fromEntries(read));
}
