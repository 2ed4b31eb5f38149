/** What `trainyard sft` and `trainyard reward` would make of rows to learn from. */

import type { Entry } from "../config/overrides.ts";
import { rewardSchema } from "../config/reward/schema.ts";
import type { Schema } from "../config/schema.ts";
import { type SftConfig, sftSchema } from "../config/sft/schema.ts";
import { isObject } from "../data/json-files.ts";
import { isUndecidable, preferenceEncoder } from "../data/preference-rows.ts";
import type { Row } from "../data/row.ts";
import { multiTurnEncoder, type SftLimits, type SftRow, singleTurnEncoder } from "../data/sft-rows.ts";
import { paddingOf } from "../train/supervised/preference-data.ts";
import type { Tree } from "../util/field.ts";
import {
  type Check,
  type CheckTask,
  checkVocabulary,
  configOf,
  eachRow,
  openReading,
  type Reading,
  Repeats,
  spread,
} from "./data-check.ts";
import type { Findings } from "./data-findings.ts";

/** To know how long a row is; with the stand-in tokenizer nothing is too long. */
const unlimited = { maxLength: Number.MAX_SAFE_INTEGER, truncation: "error" } as const;

/** The config that would train on the file, and what its rows are read with. */
async function open<T extends Tree, Config extends Pick<SftConfig, "model">>(
  task: CheckTask,
  schema: Schema<T, Config>,
  findings: Findings,
): Promise<{ readonly config: Config; readonly reading: Reading }> {
  const fixed = { modelKey: "model.path", keys: { "data.train_files": [task.file] } };
  const { config, hasModel } = configOf(task, schema, fixed);
  const { path, tokenizer_path: tokenizerPath } = config.model;
  return { config, reading: await openReading(hasModel ? { path, tokenizerPath } : null, task, findings) };
}

/** Rows to learn from. */
export const checkSft: Check = async (given, findings) => {
  const task = { ...given, overrides: [...guessedKeys(given, findings), ...given.overrides] };
  const { config, reading } = await open(task, sftSchema, findings);
  const { data } = config;
  const used = firstRows(task.rows, data.train_max_samples);
  const encode = sftEncoder(config, reading, unlimited);
  const encodeLimited = sftEncoder(config, reading, { maxLength: data.max_length, truncation: data.truncation });
  const repeats = new Repeats();
  const lengths: number[] = [];
  await eachRow(used, task.signal, async (row) => {
    const whole = await findings.attempt(row, () => encode(row));
    if (whole === null) return;
    lengths.push(whole.ids.length);
    const isLong = reading.model !== null && whole.ids.length > data.max_length;
    const read = isLong ? await findings.attempt(row, () => encodeLimited(row)) : whole;
    if (read === null) return;
    await findings.attempt(row, () => checkVocabulary(row, read.ids, reading));
    warnOfSft(row, read, { data, findings });
    const first = repeats.earlier(row, contentOf(row, data));
    if (first !== null)
      findings.add("warning", row, `the row is row ${first} again. Remove it, unless it is to count twice.`);
  });
  saySpread(findings, "rows", { lengths, limit: data.max_length, reading });
  return used.length;
};

/** Prompts and responses under the names that datasets give them, where the keys of the config name no column. */
function guessedKeys({ columns, overrides }: CheckTask, findings: Findings): readonly Entry[] {
  const isSaid = overrides.some(({ path }) => /^data\.(multiturn|messages_key|prompt_key|response_key)/.test(path));
  if (isSaid || columns.includes("messages")) return [];
  const pairs = [
    ["prompt", "response"],
    ["question", "answer"],
    ["instruction", "output"],
  ] as const;
  const pair = pairs.find((names) => names.every((name) => columns.includes(name)));
  if (pair === undefined) return [];
  const [promptKey, responseKey] = pair;
  findings.say(
    "note",
    `There is no column \`messages\`, so the rows are read with data.prompt_key=${promptKey} ` +
      `data.response_key=${responseKey}. Give the same keys to \`trainyard sft\`.`,
  );
  const entry = (path: string, value: string): Entry => ({ path, op: "set", value, where: "by the columns" });
  return [entry("data.prompt_key", promptKey), entry("data.response_key", responseKey)];
}

function sftEncoder(
  { data, model }: SftConfig,
  { tokenizer }: Reading,
  limits: Pick<SftLimits, "maxLength" | "truncation">,
): (row: Row) => SftRow {
  const common = { ...limits, extra: data.apply_chat_template_kwargs, template: model.custom_chat_template };
  if (data.multiturn.enable) {
    const { messages_key: messagesKey, tools_key: toolsKey, enable_thinking_key: enableThinkingKey } = data;
    const keys = { messagesKey, toolsKey, enableThinkingKey, ignoreInputIdsMismatch: data.ignore_input_ids_mismatch };
    return multiTurnEncoder(tokenizer, { ...common, ...keys });
  }
  const { prompt_key: promptKey, response_key: responseKey } = data;
  const { prompt_dict_keys: promptDictKeys, response_dict_keys: responseDictKeys } = data;
  return singleTurnEncoder(tokenizer, { ...common, promptKey, responseKey, promptDictKeys, responseDictKeys });
}

type SftContext = { readonly data: SftConfig["data"]; readonly findings: Findings };

function warnOfSft(row: Row, { lossMask, cut }: SftRow, { data, findings }: SftContext): void {
  if (cut > 0) findings.add("warning", row, `${cut} tokens are cut to \`data.max_length\`=${data.max_length}.`);
  if (!lossMask.includes(1)) findings.add("warning", row, "there is no token to learn: nothing of a response is left.");
  if (hasEmptyResponse(row, data))
    findings.add("warning", row, "a response is empty, so only its end is learnt. Remove the row, or fill it in.");
}

function hasEmptyResponse({ values }: Row, data: SftConfig["data"]): boolean {
  const isBlank = (value: unknown) => typeof value === "string" && value.trim() === "";
  if (!data.multiturn.enable) return isBlank(values[data.response_key]);
  const messages = values[data.messages_key];
  return (
    Array.isArray(messages) &&
    messages.some(
      (message: unknown) =>
        isObject(message) &&
        message.role === "assistant" &&
        isBlank(message.content) &&
        (message.tool_calls ?? null) === null,
    )
  );
}

function contentOf({ values }: Row, data: SftConfig["data"]): unknown {
  return data.multiturn.enable ? values[data.messages_key] : [values[data.prompt_key], values[data.response_key]];
}

/** Preference pairs. */
export const checkRewardPairs: Check = async (task, findings) => {
  const { config, reading } = await open(task, rewardSchema, findings);
  const { data, model } = config;
  const used = firstRows(task.rows, data.train_max_samples);
  const options = {
    chosenKey: data.chosen_key,
    rejectedKey: data.rejected_key,
    promptKey: data.prompt_key,
    marginKey: data.margin_key,
    extra: data.apply_chat_template_kwargs,
    template: model.custom_chat_template,
    padId: reading.model === null ? null : (paddingOf(reading.model) ?? reading.tokenizer.padId),
  };
  const encode = preferenceEncoder(reading.tokenizer, { ...options, ...unlimited });
  const { max_length: maxLength, truncation } = data;
  const encodeLimited = preferenceEncoder(reading.tokenizer, { ...options, maxLength, truncation });
  const repeats = new Repeats();
  const lengths: number[] = [];
  await eachRow(used, task.signal, async (row) => {
    const whole = await findings.attempt(row, () => encode(row));
    if (whole === null) return;
    const longest = Math.max(whole.chosen.length, whole.rejected.length);
    lengths.push(whole.chosen.length, whole.rejected.length);
    const isLong = reading.model !== null && longest > maxLength;
    const pair = isLong ? await findings.attempt(row, () => encodeLimited(row)) : whole;
    if (pair === null) return;
    for (const ids of [pair.chosen, pair.rejected])
      await findings.attempt(row, () => checkVocabulary(row, ids, reading));
    if (isUndecidable(pair))
      findings.add("warning", row, "cut to `data.max_length`, its two sides are the same: the pair is left out.");
    else if (pair.isCut) findings.add("warning", row, `a side is cut to \`data.max_length\`=${maxLength}.`);
    const { [data.prompt_key]: prompt, [data.chosen_key]: chosen, [data.rejected_key]: rejected } = row.values;
    const first = repeats.earlier(row, [prompt, chosen, rejected]);
    if (first !== null)
      findings.add("warning", row, `the pair is that of row ${first} again. Remove it, unless it is to count twice.`);
  });
  saySpread(findings, "sides", { lengths, limit: maxLength, reading });
  return used.length;
};

function firstRows(rows: readonly Row[], most: number): readonly Row[] {
  return most < 0 ? rows : rows.slice(0, most);
}

type Measured = { readonly lengths: readonly number[]; readonly limit: number; readonly reading: Reading };

function saySpread(findings: Findings, what: string, { lengths, limit, reading }: Measured): void {
  if (reading.model === null || lengths.length === 0) return;
  findings.say("note", `The ${what} have ${spread(lengths)}; \`data.max_length\` is ${limit}.`);
}
