/**
 * Rows to learn from: token ids, and a mask of the tokens to learn.
 *
 * The mask marks the *target* tokens themselves: the response with its end token, nothing of the prompt. (verl's
 * single-turn dataset marks the positions before them, and its legacy trainer reads that mask as if it marked targets,
 * so it learns the last prompt token and never the end token. That is not copied.)
 */
import { z } from "zod";
import { encodeChat, type Message, systemAndGenerationPrompt } from "../text/chat-template.ts";
import type { Tokenizer } from "../text/tokenizer.ts";
import { messageOf, UserError } from "../util/errors.ts";
import { isObject } from "./json-files.ts";
import { chatOf, encodePromptTurn, promptOf, type Template, toolsOf } from "./messages.ts";
import { columnOf, describe, parseColumn, placeOf, type Row, rowError } from "./row.ts";
import { type Truncation, truncate } from "./truncate.ts";

/** One example: `lossMask` is 1 at the tokens to learn; `cut` is how many tokens `truncation` removed. */
export type SftRow = { readonly ids: Int32Array; readonly lossMask: Uint8Array; readonly cut: number };

/** What single-turn and multi-turn rows have in common. */
export type SftLimits = Template & { readonly maxLength: number; readonly truncation: Exclude<Truncation, "middle"> };

/** Where a single-turn row has its prompt and response; the dict keys name the fields of nested columns. */
export type SingleTurnOptions = SftLimits & {
  readonly promptKey: string;
  readonly responseKey: string;
  readonly promptDictKeys?: readonly string[];
  readonly responseDictKeys?: readonly string[];
};

/** Where a multi-turn row has its chat. */
type MultiTurnOptions = SftLimits & {
  readonly messagesKey?: string;
  readonly toolsKey?: string;
  readonly enableThinkingKey?: string;
  /** Learn from the messages one by one even if the template renders the whole chat differently. */
  readonly ignoreInputIdsMismatch?: boolean;
};

type Tokens = { readonly ids: Int32Array; readonly lossMask: Uint8Array };

const Text = z.string({ error: "text" });
const OptionalFlag = z.boolean({ error: "true, false or null" }).nullish();

/** Encoder of rows with a prompt and a response: template(prompt) + response + end token. */
export function singleTurnEncoder(tokenizer: Tokenizer, options: SingleTurnOptions): (row: Row) => SftRow {
  const { eosId } = tokenizer;
  if (eosId === null)
    throw new UserError(
      `The tokenizer in ${tokenizer.dir} has no end token, so a model could not learn to stop. ` +
        "Add `eos_token` to its tokenizer_config.json.",
    );
  const { promptKey, responseKey, promptDictKeys = [], responseDictKeys = [] } = options;
  return (row) => {
    const prompt = nested(row, { column: promptKey, keys: promptDictKeys, key: "data.prompt_key" });
    const response = nested(row, { column: responseKey, keys: responseDictKeys, key: "data.response_key" });
    const { extra = {}, template = null } = options;
    const turn = promptOf(row, prompt.path, prompt.value);
    const promptIds = templated(row, prompt.path, () => encodePromptTurn(tokenizer, turn, { extra, template }));
    const text = parseColumn(row, response.path, Text, response.value);
    const responseIds = tokenizer.encode(text, { addSpecialTokens: false });
    const ids = new Int32Array(promptIds.length + responseIds.length + 1);
    ids.set(promptIds);
    ids.set(responseIds, promptIds.length);
    ids[ids.length - 1] = eosId;
    const lossMask = new Uint8Array(ids.length).fill(1, promptIds.length);
    return limited(row, { ids, lossMask }, options);
  };
}

/** Encoder of rows with a chat: every assistant message is learnt, with its end-of-turn token. */
export function multiTurnEncoder(tokenizer: Tokenizer, options: MultiTurnOptions): (row: Row) => SftRow {
  const { messagesKey = "messages", toolsKey = "tools", enableThinkingKey = "enable_thinking" } = options;
  const { template = null } = options;
  const fixed = attempt(() => systemAndGenerationPrompt(tokenizer, { template }));
  return (row) => {
    const messages = chatOf(row, messagesKey, columnOf(row, messagesKey, "data.messages_key"));
    const tools = toolsOf(row, toolsKey, row.values[toolsKey]);
    const thinking = parseColumn(row, enableThinkingKey, OptionalFlag, row.values[enableThinkingKey]);
    const extra = { ...options.extra, ...(typeof thinking === "boolean" ? { enable_thinking: thinking } : {}) };
    const chat: Chat = { row, column: messagesKey, tokenizer, messages, tools, extra, template, fixed };
    return limited(row, encodeConversation(chat, options.ignoreInputIdsMismatch ?? false), options);
  };
}

/** A conversation and all that its template needs. */
type Chat = {
  readonly row: Row;
  readonly column: string;
  readonly tokenizer: Tokenizer;
  readonly messages: readonly Message[];
  readonly tools: readonly Record<string, unknown>[] | null;
  readonly extra: Readonly<Record<string, unknown>>;
  readonly template: string | null;
  /** What the template adds by itself; null if it cannot be found out. */
  readonly fixed: ReturnType<typeof systemAndGenerationPrompt> | null;
};

/**
 * Tokens and mask of a conversation. Each message is templated alone, as in verl, and the sum must equal the whole
 * conversation. For templates that cannot render a message alone (Gemma and Mistral require that a user comes first)
 * the prefixes of the conversation are used instead: the tokens from the prompt's end to the answer's end are learnt.
 */
function encodeConversation(chat: Chat, isMismatchIgnored: boolean): Tokens {
  const whole = templated(chat.row, chat.column, () => encode(chat, chat.messages));
  const alone = attempt(() => encodeByMessage(chat));
  if (alone !== null && sameIds(alone.ids, whole)) return alone;
  const byPrefix = attempt(() => maskByPrefix(chat, whole));
  if (byPrefix) return { ids: whole, lossMask: byPrefix };
  if (alone !== null && isMismatchIgnored) return alone;
  throw new UserError(
    `${placeOf(chat.row)}, column \`${chat.column}\`: the chat template renders the ${chat.messages.length} messages ` +
      `together to ${whole.length} tokens that differ from the messages one by one` +
      `${alone === null ? "" : ` (from token ${firstDifference(alone.ids, whole)} on)`}, so it is unknown which ` +
      "tokens are the assistant's. Some templates change earlier turns, such as removing their reasoning. " +
      "Remove what the template changes, or set `data.ignore_input_ids_mismatch=true` to learn the messages one by one.",
  );
}

function encode(chat: Chat, messages: readonly Message[], addGenerationPrompt = false): Int32Array {
  const { tokenizer, tools, extra, template } = chat;
  return encodeChat(tokenizer, messages, { addGenerationPrompt, tools, extra, template });
}

/** Every message templated alone; the default system prompt that the template adds each time is kept only once. */
function encodeByMessage(chat: Chat): Tokens | null {
  if (chat.fixed === null) return null;
  const { systemPrompt, generationPrompt } = chat.fixed;
  const parts = chat.messages.map((message, index) => {
    // Tools are at the start of a conversation, so only the first message gets them.
    const ids = encode(index === 0 ? chat : { ...chat, tools: null }, [message]);
    const added = message.role === "system" ? 0 : sharedPrefix(ids, systemPrompt);
    const isAdded = added === systemPrompt.length;
    const kept = index > 0 && isAdded ? ids.subarray(added) : ids;
    const lossMask = new Uint8Array(kept.length);
    if (message.role === "assistant") {
      const before = index === 0 && isAdded ? added : 0;
      lossMask.fill(1, before + sharedPrefix(kept.subarray(before), generationPrompt));
    }
    return { ids: kept, lossMask };
  });
  const length = parts.reduce((sum, part) => sum + part.ids.length, 0);
  const ids = new Int32Array(length);
  const lossMask = new Uint8Array(length);
  let offset = 0;
  for (const part of parts) {
    ids.set(part.ids, offset);
    lossMask.set(part.lossMask, offset);
    offset += part.ids.length;
  }
  return { ids, lossMask };
}

/** The mask of the whole conversation, found from its prefixes; null if the whole does not start with them. */
function maskByPrefix(chat: Chat, whole: Int32Array): Uint8Array | null {
  const lossMask = new Uint8Array(whole.length);
  for (const [index, message] of chat.messages.entries()) {
    if (message.role !== "assistant") continue;
    if (index === 0) return null; // there is no message before it to render
    const asked = encode(chat, chat.messages.slice(0, index), true);
    const answered = encode(chat, chat.messages.slice(0, index + 1));
    if (sharedPrefix(whole, asked) < asked.length || sharedPrefix(whole, answered) < answered.length) return null;
    lossMask.fill(1, asked.length, answered.length);
  }
  return lossMask;
}

function limited(row: Row, { ids, lossMask }: Tokens, { maxLength, truncation }: SftLimits): SftRow {
  const cut = Math.max(0, ids.length - maxLength);
  if (cut > 0 && truncation === "error")
    throw new UserError(
      `${placeOf(row)}: the example has ${ids.length} tokens, and \`data.max_length\` is ${maxLength}. ` +
        "Raise it, or set `data.truncation` to `right` or `left` to cut such examples.",
    );
  return {
    ids: truncate(ids, maxLength, truncation),
    lossMask: truncate(lossMask, maxLength, truncation),
    cut,
  };
}

/** The value of a column, or of the nested keys in it; a list of one element counts as that element, as in verl. */
function nested(
  row: Row,
  { column, keys, key }: { column: string; keys: readonly string[]; key: string },
): { path: string; value: unknown } {
  let value = columnOf(row, column, key);
  let path = column;
  for (const step of keys) {
    while (Array.isArray(value) && value.length === 1) value = value[0];
    if (!isObject(value)) throw rowError(row, path, `an object with \`${step}\``, value);
    if (!Object.hasOwn(value, step))
      throw new UserError(
        `${placeOf(row)}, column \`${path}\`: expected the key \`${step}\`, found ${describe(value)}.`,
      );
    value = value[step];
    path = `${path}.${step}`;
  }
  return { path, value };
}

function templated<T>(row: Row, column: string, render: () => T): T {
  try {
    return render();
  } catch (error) {
    throw new UserError(`${placeOf(row)}, column \`${column}\`: ${messageOf(error)}`, { cause: error });
  }
}

/** The result, or null if the template refuses. */
function attempt<T>(render: () => T): T | null {
  try {
    return render();
  } catch {
    return null;
  }
}

function sharedPrefix(ids: ArrayLike<number>, prefix: ArrayLike<number>): number {
  let length = 0;
  while (length < ids.length && length < prefix.length && ids[length] === prefix[length]) length++;
  return length;
}

const sameIds = (a: Int32Array, b: Int32Array) => a.length === b.length && sharedPrefix(a, b) === a.length;
const firstDifference = (a: Int32Array, b: Int32Array) => sharedPrefix(a, b) + 1;
