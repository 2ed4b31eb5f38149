/**
 * Chats in data columns: a list of messages, or a plain text that is one user message.
 *
 * A parquet struct holds every key that any row has, with null where a row has none. Templates ask whether a key
 * exists (`message.tool_calls is defined`), so such nulls are removed; only `content` may be null.
 */
import { z } from "zod";
import { type ChatOptions, encodeChat, type Message } from "../text/chat-template.ts";
import type { Tokenizer } from "../text/tokenizer.ts";
import { isObject } from "./json-files.ts";
import { parseColumn, type Row } from "./row.ts";

/** A prompt: its messages, and its text where the column held a text instead of a chat. */
export type Prompt = { readonly messages: readonly Message[]; readonly text: string | null };

/** How conversations become tokens: everything except the messages. */
export type Template = {
  /** `data.apply_chat_template_kwargs`. */
  readonly extra?: Readonly<Record<string, unknown>>;
  /** A Jinja template that replaces the tokenizer's own. */
  readonly template?: string | null;
};

const Part = z.looseObject(
  {
    type: z.string({ error: "the kind of part, such as `text`" }),
    text: z.string({ error: "text" }).exactOptional(),
  },
  { error: "an object such as {type, text}" },
);

const Call = z.record(z.string(), z.unknown(), { error: "a tool call (an object)" });

const ChatMessage = z.looseObject(
  {
    role: z.string({ error: "a role such as `user`" }).min(1, { error: "a role such as `user`" }),
    content: z.union([z.string(), z.null(), z.array(Part)], { error: "text, null or a list of parts" }).exactOptional(),
    tool_calls: z.array(Call, { error: "a list of tool calls" }).exactOptional(),
    tool_call_id: z.string({ error: "text" }).exactOptional(),
    name: z.string({ error: "text" }).exactOptional(),
    reasoning_content: z.string({ error: "text" }).exactOptional(),
  },
  { error: "a message such as {role, content}" },
);

const Chat = z
  .array(ChatMessage, { error: "a chat (a list of {role, content})" })
  .min(1, { error: "a chat of at least one message" });

const Tools = z.array(z.record(z.string(), z.unknown(), { error: "a tool (an object)" }), {
  error: "a list of tools (objects such as {type, function})",
});

/** The messages of a column that holds a chat. */
export function chatOf(row: Row, column: string, value: unknown): readonly Message[] {
  const messages = Array.isArray(value) ? value.map((message: unknown) => withoutFillers(row, message)) : value;
  return parseColumn(row, column, Chat, messages);
}

/** The prompt of a column that holds a chat or the text of a single user message. */
export function promptOf(row: Row, column: string, value: unknown): Prompt {
  if (typeof value === "string") return { messages: [{ role: "user", content: value }], text: value };
  return { messages: chatOf(row, column, value), text: null };
}

/** The tools of a column: a list of function schemas, as objects or as JSON text; null if there are none. */
export function toolsOf(row: Row, column: string, value: unknown): Record<string, unknown>[] | null {
  if (value === null || value === undefined) return null;
  const list = withoutNulls(row, typeof value === "string" ? parsedJson(value) : value);
  const tools = parseColumn(row, column, Tools, list);
  return tools.length === 0 ? null : tools;
}

/** The tokens of a prompt up to the start of the answer; without a chat template a text is used as it is. */
export function encodePromptTurn(tokenizer: Tokenizer, prompt: Prompt, options: ChatOptions): Int32Array {
  const hasTemplate = (options.template ?? tokenizer.chatTemplate) !== null;
  if (prompt.text !== null && !hasTemplate) return tokenizer.encode(prompt.text);
  return encodeChat(tokenizer, prompt.messages, { ...options, addGenerationPrompt: true });
}

/** The value without keys that are null, if it comes from a format that cannot leave a key out. */
export function withoutNulls(row: Row, value: unknown): unknown {
  return row.file.toLowerCase().endsWith(".parquet") ? strip(value) : value;
}

function withoutFillers(row: Row, message: unknown): unknown {
  if (!isObject(message)) return message;
  const { content, ...others } = message;
  const present = Object.fromEntries(Object.entries(others).filter(([, member]) => member !== null));
  return {
    ...mapMembers(present, (member) => withoutNulls(row, member)),
    ...(content === undefined ? {} : { content }),
  };
}

function strip(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(strip);
  if (!isObject(value) || value instanceof Uint8Array || value instanceof Date) return value;
  return mapMembers(Object.fromEntries(Object.entries(value).filter(([, member]) => member !== null)), strip);
}

function mapMembers(record: Record<string, unknown>, change: (member: unknown) => unknown): Record<string, unknown> {
  return Object.fromEntries(Object.entries(record).map(([key, member]) => [key, change(member)]));
}

function parsedJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text; // not JSON: the schema says what was expected
  }
}
