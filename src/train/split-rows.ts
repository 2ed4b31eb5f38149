/** The rows of a split of a run: those of its files, or those that the dataset of `data.custom_cls` gives. */
import type { HookSource } from "../config/hooks.ts";
import { readRows } from "../data/files.ts";
import type { DataRow, DatasetRequest } from "../data/hooks.ts";
import { isObject } from "../data/json-files.ts";
import { describe, type Row } from "../data/row.ts";
import type { Tokenizer } from "../text/tokenizer.ts";
import { UserError } from "../util/errors.ts";
import { callHook, loadHook } from "./load-hook.ts";

/** The keys below `data.` that say where rows are. */
export type DataKeys = DataRow & {
  readonly train_files: readonly string[];
  readonly val_files: readonly string[];
  readonly custom_cls: HookSource<"dataset">;
};

/** Reads the rows of a split, up to so many. */
export type SplitReader = (split: DatasetRequest["split"], maxRows: number) => Promise<readonly Row[]>;

export async function splitReader(data: DataKeys, tokenizer: Tokenizer): Promise<SplitReader> {
  const hook = await loadHook("dataset", "data.custom_cls", data.custom_cls);
  return async (split, maxRows) => {
    const files = split === "train" ? data.train_files : data.val_files;
    if (hook === null) return (await readRows(files, { maxRows })).rows;
    return await callHook(hook, "the dataset", async () =>
      hookRows(await hook.definition({ split, files, tokenizer, config: data }), { file: hook.name, maxRows }),
    );
  };
}

type HookRows = {
  /** What messages about a row call its file. */
  readonly file: string;
  /** The number of the first row. */
  readonly first?: number;
  readonly maxRows?: number;
};

/** The rows that a hook gave, checked to be objects. */
export async function hookRows(
  given: unknown,
  { file, first = 1, maxRows = Number.POSITIVE_INFINITY }: HookRows,
): Promise<Row[]> {
  if (!isIterable(given))
    throw new UserError(`what it gave is ${describe(given)}. Return rows: a list, or an iterable of objects.`);
  const rows: Row[] = [];
  for await (const values of given) {
    if (rows.length >= maxRows) break;
    const row = first + rows.length;
    if (!isObject(values)) throw new UserError(`row ${row} is ${describe(values)}. A row is an object with columns.`);
    rows.push({ values, file, row });
  }
  return rows;
}

const isIterable = (value: unknown): value is AsyncIterable<unknown> | Iterable<unknown> =>
  typeof value === "object" && value !== null && (Symbol.iterator in value || Symbol.asyncIterator in value);
