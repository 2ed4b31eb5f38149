/** What the checks of rows for `trainyard sft` and `trainyard reward` have in common. */
import type { Schema } from "../config/schema.ts";
import type { SftConfig } from "../config/sft/schema.ts";
import type { Row } from "../data/row.ts";
import type { RowLimits } from "../train/row-encoders.ts";
import type { DataKeys } from "../train/split-rows.ts";
import type { Tree } from "../util/field.ts";
import type { Findings } from "./findings.ts";
import { type CheckTask, configOf, openReading, type Reading, rowsOf, spread } from "./row-check.ts";

/** To know the whole length of a row; with the stand-in tokenizer no row is too long. */
export const unlimited: RowLimits = { maxLength: Number.MAX_SAFE_INTEGER, truncation: "error" };

/** The config that would train on the file, what its rows are read with, and the rows. */
export async function openSupervised<
  T extends Tree,
  Config extends Pick<SftConfig, "model"> & { readonly data: DataKeys },
>(
  task: CheckTask,
  schema: Schema<T, Config>,
  findings: Findings,
): Promise<{ readonly config: Config; readonly reading: Reading; readonly rows: readonly Row[] }> {
  const fixed = { modelKey: "model.path", keys: { "data.train_files": [task.file] } };
  const { config, hasModel } = configOf(task, schema, fixed);
  const { path, tokenizer_path: tokenizerPath } = config.model;
  const reading = await openReading(hasModel ? { path, tokenizerPath } : null, task, findings);
  return { config, reading, rows: await rowsOf(task, config.data, reading) };
}

/** The rows that `data.train_max_samples` leaves. */
export function firstRows(rows: readonly Row[], most: number): readonly Row[] {
  return most < 0 ? rows : rows.slice(0, most);
}

type Lengths = { readonly lengths: readonly number[]; readonly limit: number; readonly reading: Reading };

/** Say how long the rows are, where a model is named. */
export function sayLengths(findings: Findings, what: string, { lengths, limit, reading }: Lengths): void {
  if (reading.model === null || lengths.length === 0) return;
  findings.say("note", `The ${what} have ${spread(lengths)}; \`data.max_length\` is ${limit}.`);
}
