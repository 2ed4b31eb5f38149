/**
 * What a dataset of `trainyard data` is: where its raw rows are, which files are made of them, and how a row becomes one
 * of verl's. One small value per script of verl's examples/data_preprocess; `prepare.ts` does the work for all of them.
 *
 * The files follow verl's, column by column: source columns that a script does not remove stay in their order, and the
 * columns that it adds come after them.
 */
import { z } from "zod";
import { nearest, UserError } from "../../util/errors.ts";
import { parseColumn, placeOf, type Row } from "../row.ts";

/** The columns that are made for one row. */
export type Made = Readonly<Record<string, unknown>>;

/** The place of a row among those that are used: `index` counts from 0 in its split. */
export type At = { readonly split: string; readonly index: number };

/** One file, made of one split of the source. */
export type Output = {
  /** Its name below the folder, such as `train.parquet`. */
  readonly file: string;
  /** The split it is made of. */
  readonly split: string;
  /** Source columns that are removed; "all" keeps only the columns that are made. */
  readonly takes: readonly string[] | "all";
  /** The new columns of a row, or of several rows that are made from it. */
  make(row: Row, at: At): Made | readonly Made[];
  /** The places of the rows that are used, given the number of rows; all if absent. */
  readonly choose?: (count: number) => readonly number[];
  /** Which of the files that `--split` chooses from this is. */
  readonly part?: string;
};

export type Dataset = {
  readonly name: string;
  /** Other names, such as that of verl's script. */
  readonly aliases: readonly string[];
  /** One line for the list of datasets. */
  readonly summary: string;
  /** On the hub; null where the rows are made here. `config` is the folder of one of several configurations. */
  readonly source: { readonly repo: string; readonly config: string | null } | null;
  /** The default folder for the files, as in verl. */
  readonly saveDir: string;
  readonly outputs: readonly Output[];
  /** Cleans a raw row before it is used; null leaves it out. */
  readonly read?: (row: Row) => Row | null;
  /** Whether the first row of every file is also written as JSON, as one of verl's scripts does. */
  readonly hasExamples?: boolean;
};

const Text = z.string({ error: "text" });

/** The value of a column that every row of this dataset has. */
export function cellOf(row: Row, column: string): unknown {
  if (Object.hasOwn(row.values, column)) return row.values[column];
  const names = Object.keys(row.values);
  const [close] = nearest(column, names, 1);
  throw new UserError(
    `${placeOf(row)}: there is no column \`${column}\`, which the rows of this dataset have. ` +
      `${names.length === 0 ? "The row is empty." : `The columns are ${names.map((name) => `\`${name}\``).join(", ")}.`} ` +
      (close === undefined ? "Is it the raw form of another dataset?" : `Rename \`${close}\`, if that is the one.`),
  );
}

/** The text of such a column. */
export function textOf(row: Row, column: string): string {
  return parseColumn(row, column, Text, cellOf(row, column));
}

/** One message of a conversation. */
export type Turn = { readonly role: string; readonly content: string };
export const user = (content: string): Turn => ({ role: "user", content });
export const system = (content: string): Turn => ({ role: "system", content });
export const assistant = (content: string): Turn => ({ role: "assistant", content });

/** `train.parquet` and `test.parquet`, each made of the split of its name by the same rule. */
export function trainAndTest(rule: Pick<Output, "takes" | "make">): readonly Output[] {
  return ["train", "test"].map((split) => ({ file: `${split}.parquet`, split, ...rule }));
}
