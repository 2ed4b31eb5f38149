/**
 * Rows to sample from, in verl's schema: `prompt`, `data_source`, `ability`, `reward_model`, `extra_info`, `agent_name`.
 *
 * Rows are checked, chosen (`max_samples`), turned to tokens once, and filtered by templated length
 * (`filter_overlong_prompts`), in that order; verl 0.7 turns them to tokens each time they are sampled from.
 * Departures: a plain text is a prompt too, and an unfiltered overlong prompt obeys `data.truncation` instead of
 * breaking the batch. Rows for an agent loop other than `single_turn_agent` are refused: there are no agents here.
 */
import { z } from "zod";
import type { Message } from "../text/chat-template.ts";
import type { Tokenizer } from "../text/tokenizer.ts";
import { messageOf, UserError } from "../util/errors.ts";
import { Random } from "../util/random.ts";
import { isObject } from "./json-files.ts";
import { encodePromptTurn, promptOf, type Template, withoutNulls } from "./messages.ts";
import { columnOf, parseColumn, placeOf, type Row, rowError } from "./row.ts";
import { type Truncation, truncate } from "./truncate.ts";

/** One prompt to sample from, with what its reward needs. */
export type RlRow = {
  readonly prompt: readonly Message[];
  /** The prompt as it is in the file, if it is a text and not a chat. */
  readonly promptText: string | null;
  readonly dataSource: string;
  readonly ability: string | null;
  readonly rewardModel: { readonly style?: string | null | undefined; readonly [key: string]: unknown } | null;
  readonly extraInfo: Readonly<Record<string, unknown>>;
  readonly index: number | string;
  readonly toolsKwargs: Readonly<Record<string, unknown>>;
  readonly interactionKwargs: Readonly<Record<string, unknown>>;
  readonly agentName: string | null;
  /** The row as it is in the file: the reward function gets every column. */
  readonly source: Row;
};

/** Which columns to read; the names are those of the config keys under `data.`. */
type RlColumns = { readonly promptKey?: string; readonly rewardFnKey?: string };

/** How a prompt becomes tokens; the tools are those of the run, not of a row. */
type PromptTemplate = Template & { readonly tools?: readonly object[] | null };

/** `data.train_max_samples`, `data.shuffle` and `data.seed`. */
type Selection = { readonly maxSamples: number; readonly shuffle: boolean; readonly seed: number };

export type RlOptions = RlColumns & Selection & PromptEncoding & { readonly filterOverlongPrompts: boolean };

/** How a prompt becomes at most `maxPromptLength` tokens. */
export type PromptEncoding = PromptTemplate & { readonly maxPromptLength: number; readonly truncation: Truncation };

/** A row and the tokens of its prompt. */
export type EncodedRow = { readonly row: RlRow; readonly ids: Int32Array };

/** The prompts that fit, and how many were left out and why. */
export type Filtered = {
  readonly prompts: readonly EncodedRow[];
  readonly overlong: number;
  readonly refused: number;
  /** The message of the chat template about the first row that it refused. */
  readonly firstRefusal: string | null;
};

const OptionalText = z.string({ error: "text or null" }).nullish();
const Keywords = z.record(z.string(), z.unknown(), { error: "an object or null" }).nullish();
const RewardModel = z
  .looseObject({ style: OptionalText }, { error: "an object such as {style, ground_truth}, or null" })
  .nullish();
const ExtraInfo = z
  .looseObject(
    {
      index: z.union([z.number(), z.string()], { error: "a number, a text or null" }).nullish(),
      tools_kwargs: Keywords,
      interaction_kwargs: Keywords,
    },
    { error: "an object or null" },
  )
  .nullish();

/** Reads up to so many rows. */
type RowReader = (maxRows: number) => Promise<readonly Row[]>;

/** Read, choose, check, tokenize and filter prompts. */
export async function loadRlRows(read: RowReader, tokenizer: Tokenizer, options: RlOptions): Promise<Filtered> {
  const { maxSamples, shuffle } = options;
  const rows = await read(maxSamples > 0 && !shuffle ? maxSamples : Number.POSITIVE_INFINITY);
  const chosen = chooseSamples(rows.length, options).map((index) => rows[index]!);
  const filtered = encodeRlRows(chosen, tokenizer, options);
  if (chosen.length > 0 && filtered.prompts.length === 0)
    throw new UserError(
      `Of ${chosen.length} prompts none is left: ${filtered.overlong} have more than ${options.maxPromptLength} tokens ` +
        `(\`data.max_prompt_length\`), and the chat template refuses ${filtered.refused}` +
        `${filtered.firstRefusal === null ? "." : ` (${filtered.firstRefusal}).`}`,
    );
  return filtered;
}

/** Check, tokenize and filter rows. */
export function encodeRlRows(
  source: readonly Row[],
  tokenizer: Tokenizer,
  options: Omit<RlOptions, keyof Selection>,
): Filtered {
  const rows = source.map((row) => rlRow(row, options));
  if (options.filterOverlongPrompts) return filterOverlong(rows, tokenizer, options);
  const prompts = rows.map((row) => ({ row, ids: encodePrompt(row, tokenizer, options) }));
  return { prompts, overlong: 0, refused: 0, firstRefusal: null };
}

/** The rows that `max_samples` leaves: the first ones, or with shuffle a seeded choice; all if it is not positive. */
export function chooseSamples(count: number, { maxSamples, shuffle, seed }: Selection): number[] {
  const wanted = maxSamples > 0 ? Math.min(maxSamples, count) : count;
  if (!shuffle || wanted === count) return Array.from({ length: wanted }, (_, i) => i);
  return [...new Random(seed, "max_samples").permutation(count).subarray(0, wanted)];
}

/** Check one row against verl's schema. */
export function rlRow(row: Row, { promptKey = "prompt", rewardFnKey = "data_source" }: RlColumns = {}): RlRow {
  const { values } = row;
  const column = <T>(name: string, schema: z.ZodType<T>): T => parseColumn(row, name, schema, values[name]);
  for (const media of ["images", "videos"]) {
    const items = values[media];
    if (Array.isArray(items) && items.length > 0) throw rowError(row, media, "no images or videos (text only)", items);
  }
  const prompt = promptOf(row, promptKey, columnOf(row, promptKey, "data.prompt_key"));
  const extraInfo = column("extra_info", ExtraInfo) ?? {};
  const agentName = column("agent_name", OptionalText) ?? null;
  checkAgent(row, agentName);
  return {
    prompt: prompt.messages,
    promptText: prompt.text,
    dataSource: column(rewardFnKey, OptionalText) ?? "unknown", // verl's name for rows without one
    ability: column("ability", OptionalText) ?? null,
    rewardModel: column("reward_model", RewardModel) ?? null,
    extraInfo,
    index: extraInfo.index ?? 0,
    toolsKwargs: keywords(row, extraInfo.tools_kwargs),
    interactionKwargs: keywords(row, extraInfo.interaction_kwargs),
    agentName,
    source: row,
  };
}

/** The agent loops that a row may name: one response to its prompt. */
const agentLoops: readonly string[] = ["single_turn_agent"];

/** A row for another agent loop would train on single responses, which is not what it was made for. */
function checkAgent(row: Row, name: string | null): void {
  if (name === null || agentLoops.includes(name)) return;
  throw new UserError(
    `${placeOf(row)}, column \`agent_name\`: there is no agent loop ${JSON.stringify(name)} here. ` +
      `The only one is ${agentLoops.join(", ")}: one response to each prompt, without tools. ` +
      "Remove the column to train like this, or use a dataset without agents.",
  );
}

/** Leave out prompts whose templated length is over `maxPromptLength`, and those the chat template refuses. */
export function filterOverlong(
  rows: readonly RlRow[],
  tokenizer: Tokenizer,
  { maxPromptLength, ...template }: PromptTemplate & { readonly maxPromptLength: number },
): Filtered {
  const prompts: EncodedRow[] = [];
  let refused = 0;
  let firstRefusal: string | null = null;
  for (const row of rows) {
    try {
      const ids = promptIds(row, tokenizer, template);
      if (ids.length <= maxPromptLength) prompts.push({ row, ids });
    } catch (error) {
      refused++;
      firstRefusal ??= `${placeOf(row.source)}: ${messageOf(error)}`;
    }
  }
  return { prompts, overlong: rows.length - prompts.length - refused, refused, firstRefusal };
}

/** The tokens of a prompt, cut to `maxPromptLength` as `truncation` says. */
export function encodePrompt(
  row: RlRow,
  tokenizer: Tokenizer,
  { maxPromptLength, truncation, ...template }: PromptEncoding,
): Int32Array {
  const ids = promptIds(row, tokenizer, template);
  if (ids.length > maxPromptLength && truncation === "error")
    throw new UserError(
      `${placeOf(row.source)}: the prompt has ${ids.length} tokens, and \`data.max_prompt_length\` is ` +
        `${maxPromptLength}. Raise it, set \`data.filter_overlong_prompts=true\` to leave such rows out, or set ` +
        "`data.truncation` to `left`, `right` or `middle` to cut them.",
    );
  return truncate(ids, maxPromptLength, truncation);
}

function promptIds(row: RlRow, tokenizer: Tokenizer, template: PromptTemplate): Int32Array {
  return encodePromptTurn(tokenizer, { messages: row.prompt, text: row.promptText }, template);
}

function keywords(row: Row, value: unknown): Record<string, unknown> {
  const stripped = withoutNulls(row, value ?? {});
  return isObject(stripped) ? stripped : {};
}
