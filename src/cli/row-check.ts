/**
 * What the checks of rows have in common (`trainyard data validate`): the rows are read as a verb would read them, and
 * nothing is trained.
 *
 * A verb that reads rows brings its own check (`*-check.ts`). Every row goes through the reader that the verb itself
 * uses, with the verb's own config, and the reader's message is a finding. Without a model a stand-in takes the place of
 * the tokenizer, and what depends on tokens or on a chat template is not checked.
 */
import { homedir } from "node:os";
import { isNamed } from "../config/hooks.ts";
import type { Entry } from "../config/overrides.ts";
import { resolve } from "../config/resolve.ts";
import type { Schema } from "../config/schema.ts";
import { placeOf, type Row } from "../data/row.ts";
import { type ModelConfig, readConfig } from "../models/config.ts";
import { loadTokenizer, type Tokenizer } from "../text/tokenizer.ts";
import type { TrainContext } from "../train/context.ts";
import { fetchModel } from "../train/fetch-model.ts";
import { type DataKeys, splitReader } from "../train/split-rows.ts";
import { UserError } from "../util/errors.ts";
import type { Tree } from "../util/field.ts";
import { clearStatus, info, status } from "../util/log.ts";
import type { Findings } from "./findings.ts";
import { standInTokenizer } from "./stand-in-tokenizer.ts";

/** What to check, and with which settings. */
export type CheckTask = TrainContext & {
  readonly file: string;
  /** All rows of the file; none where a dataset reads it. */
  readonly rows: readonly Row[];
  /** The columns that any of its rows has. */
  readonly columns: readonly string[];
  /** A folder or hub id; null to check without one. */
  readonly model: string | null;
  /** Keys of a config file; what it says about the rows is not used. */
  readonly config: readonly Entry[];
  readonly overrides: readonly Entry[];
};

/** Checks the rows that the verb would use; returns how many those are. */
export type Check = (task: CheckTask, findings: Findings) => Promise<number>;

/** The key of the model, and the keys that a check sets by itself: the file, and what only a run needs. */
type Fixed = { readonly modelKey: string; readonly keys: Readonly<Record<string, unknown>> };

/** The config that the verb would have; a mistake in it is thrown as the verb would throw it. */
export function configOf<T extends Tree, Config>(
  { model, config: given, overrides, env }: CheckTask,
  schema: Schema<T, Config>,
  { modelKey, keys }: Fixed,
): { config: Config; hasModel: boolean } {
  const taken = overrides.find(({ path }) => Object.hasOwn(keys, path));
  if (taken !== undefined)
    throw new UserError(`\`${taken.path}\` is not set here: the rows are those of the file that is checked.`);
  const isNamed =
    overrides.some(({ path, op }) => path === modelKey && op === "set") ||
    (model === null && given.some(({ path }) => path === modelKey));
  const fixed = { ...keys, ...(isNamed ? {} : { [modelKey]: model ?? "no-model" }) };
  const others = given.filter(({ path }) => !Object.hasOwn(fixed, path));
  const entries = Object.entries(fixed).map(
    ([path, value]): Entry => ({ path, op: "set", value, where: "on the command line" }),
  );
  const { config, notices } = resolve(schema, [others, entries, overrides], { home: homedir(), env });
  for (const notice of notices) info(notice);
  return { config, hasModel: isNamed || model !== null };
}

/** The tokenizer to check with; `model` is null where it is the stand-in. */
export type Reading = { readonly tokenizer: Tokenizer; readonly model: ModelConfig | null };

/** Read the tokenizer and the config of a model; its weights are not read. */
export async function openReading(
  paths: { readonly path: string; readonly tokenizerPath: string | null } | null,
  { env, signal }: CheckTask,
  findings: Findings,
): Promise<Reading> {
  if (paths === null) {
    findings.say("note", "No model is named (--model), so lengths in tokens and the chat template are not checked.");
    return { tokenizer: standInTokenizer, model: null };
  }
  const folder = await fetchModel(paths.path, { env, signal });
  const model = await readConfig(folder);
  const { tokenizerPath } = paths;
  const tokenizerFolder = tokenizerPath === null ? folder : await fetchModel(tokenizerPath, { env, signal });
  return { tokenizer: await loadTokenizer(tokenizerFolder), model };
}

/** The rows that the verb would train on: those of the file, or what the dataset of `data.custom_cls` makes of it. */
export async function rowsOf({ rows }: CheckTask, data: DataKeys, { tokenizer }: Reading): Promise<readonly Row[]> {
  if (!isNamed(data.custom_cls)) return rows;
  const read = await splitReader(data, tokenizer);
  return await read("train", Number.POSITIVE_INFINITY);
}

const yieldEvery = 64;

/** Visit rows one after the other, with a live line; the signal stops it. */
export async function eachRow<T>(
  rows: readonly T[],
  signal: AbortSignal,
  visit: (row: T) => Promise<void>,
): Promise<void> {
  for (const [index, row] of rows.entries()) {
    if (index % yieldEvery === 0) {
      signal.throwIfAborted();
      status(`checking rows · ${index}/${rows.length}`);
      await new Promise(setImmediate); // lets Ctrl-C through
    }
    await visit(row);
  }
  clearStatus();
}

/** Refuse a token that the model does not have: the tokenizer belongs to another model. */
export function checkVocabulary(row: Row, ids: Int32Array, { tokenizer, model }: Reading): void {
  const unknown = model === null ? undefined : ids.find((id) => id >= model.vocabSize);
  if (unknown === undefined) return;
  throw new UserError(
    `${placeOf(row)}: the tokenizer in ${tokenizer.dir} gives the token ${unknown} ` +
      `(${JSON.stringify(tokenizer.pieceOf(unknown))}), and the model's \`vocab_size\` is ${model?.vocabSize}. ` +
      "Use the tokenizer that belongs to the model.",
  );
}

/** Finds rows with the same content as an earlier one. */
export class Repeats {
  readonly #first = new Map<string, number>();

  /** The number of the earlier row with the same content; null where this row is the first with it. */
  earlier(row: Row, content: unknown): number | null {
    const key = JSON.stringify(content, (_, value: unknown) => (typeof value === "bigint" ? `${value}n` : value));
    const first = this.#first.get(key);
    if (first === undefined) this.#first.set(key, row.row);
    return first ?? null;
  }
}

/** `12 to 310 tokens, 96 in the middle`: it helps to choose a limit. */
export function spread(lengths: readonly number[]): string {
  const sorted = lengths.toSorted((a, b) => a - b);
  const [least, middle, most] = [sorted[0], sorted[(sorted.length - 1) >> 1], sorted.at(-1)];
  return `${least} to ${most} tokens, ${middle} in the middle`;
}
