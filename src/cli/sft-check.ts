/** What `trainyard sft` would say about a file of rows to learn from. */
import type { Entry } from "../config/overrides.ts";
import { type SftConfig, sftSchema } from "../config/sft/schema.ts";
import { isObject } from "../data/json-files.ts";
import type { Row } from "../data/row.ts";
import type { SftRow } from "../data/sft-rows.ts";
import { sftEncoder } from "../train/row-encoders.ts";
import type { Findings } from "./findings.ts";
import { type Check, type CheckTask, checkVocabulary, eachRow, Repeats } from "./row-check.ts";
import { columnPairs } from "./sft-columns.ts";
import { firstRows, openSupervised, sayLengths, unlimited } from "./supervised-check.ts";

/** Check rows to learn from. */
export const checkExamples: Check = async (given, findings) => {
  const task = { ...given, overrides: [...guessedKeys(given, findings), ...given.overrides] };
  const { config, reading, rows } = await openSupervised(task, sftSchema, findings);
  const { data } = config;
  const used = firstRows(rows, data.train_max_samples);
  const encodeWhole = sftEncoder(config, reading.tokenizer, unlimited);
  const encode = sftEncoder(config, reading.tokenizer);
  const repeats = new Repeats();
  const lengths: number[] = [];
  await eachRow(used, task.signal, async (row) => {
    const whole = await findings.attempt(row, () => encodeWhole(row));
    if (whole === null) return;
    lengths.push(whole.ids.length);
    const isLong = reading.model !== null && whole.ids.length > data.max_length;
    const read = isLong ? await findings.attempt(row, () => encode(row)) : whole;
    if (read === null) return;
    await findings.attempt(row, () => checkVocabulary(row, read.ids, reading));
    warnOf(row, read, { data, findings });
    const first = repeats.earlier(row, contentOf(row, data));
    if (first !== null)
      findings.add("warning", row, `the row is row ${first} again. Remove it, unless it is to count twice.`);
  });
  sayLengths(findings, "rows", { lengths, limit: data.max_length, reading });
  return used.length;
};

/** The columns of prompt and response by their usual names, where no key names them. */
function guessedKeys({ columns, overrides }: CheckTask, findings: Findings): readonly Entry[] {
  const isGiven = overrides.some(({ path }) => /^data\.(multiturn|messages_key|prompt_key|response_key)/.test(path));
  if (isGiven || columns.includes("messages")) return [];
  const pair = columnPairs.find((names) => names.every((name) => columns.includes(name)));
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

type Warned = { readonly data: SftConfig["data"]; readonly findings: Findings };

function warnOf(row: Row, { lossMask, cut }: SftRow, { data, findings }: Warned): void {
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
