/**
 * Preference pairs: two conversations, of which one was preferred, as the tokens a reward model reads.
 *
 * A side is a list of messages, a text that answers the prompt column, or a text that is the whole conversation; a whole
 * text in hh-rlhf's form ("\n\nHuman: …\n\nAssistant: …") is read as messages where there is a chat template. Invariant:
 * no row ends in the padding token, so that its last token is where every program that loads the model reads the score
 * (transformers: the last token that is not padding; vLLM: the last token).
 */
import { z } from "zod";
import { encodeChat, type Message } from "../text/chat-template.ts";
import type { Tokenizer } from "../text/tokenizer.ts";
import { messageOf, UserError } from "../util/errors.ts";
import { chatOf, type Template } from "./messages.ts";
import { columnOf, parseColumn, placeOf, type Row, rowError } from "./row.ts";
import { type Truncation, truncate } from "./truncate.ts";

/** One pair; `margin` is how much higher the chosen score should be, `isCut` whether a side was cut to the limit. */
export type PreferencePair = {
  readonly chosen: Int32Array;
  readonly rejected: Int32Array;
  readonly margin: number;
  readonly isCut: boolean;
};

/** What is scored: messages if there is a template for them, else text. */
type Conversation = { readonly messages: readonly Message[] } | { readonly text: string };

/** How a conversation becomes the tokens that are scored. */
export type ScoringTemplate = Template & {
  /** The padding token of the reward model's config.json; null where it names none. */
  readonly padId: number | null;
  readonly maxLength: number;
  readonly truncation: Exclude<Truncation, "middle">;
};

/** Where a row has its two sides. */
export type PreferenceOptions = ScoringTemplate & {
  readonly chosenKey: string;
  readonly rejectedKey: string;
  /** Read if a row has it. */
  readonly promptKey: string;
  readonly marginKey: string | null;
};

const Margin = z.number({ error: "a number" }).finite({ error: "a finite number" });

/** Encoder of rows with a chosen and a rejected side. */
export function preferenceEncoder(tokenizer: Tokenizer, options: PreferenceOptions): (row: Row) => PreferencePair {
  const { chosenKey, rejectedKey, marginKey, maxLength, truncation } = options;
  const isChat = (options.template ?? tokenizer.chatTemplate) !== null;
  return (row) => {
    const side = (column: string, key: string) => {
      const value = columnOf(row, column, key);
      const conversation = sideOf(row, column, { value, promptKey: options.promptKey, isChat });
      return named(row, column, () => encodeConversation(tokenizer, conversation, options));
    };
    const chosen = side(chosenKey, "data.chosen_key");
    const rejected = side(rejectedKey, "data.rejected_key");
    if (sameIds(chosen, rejected))
      throw new UserError(
        `${placeOf(row)}: \`${chosenKey}\` and \`${rejectedKey}\` are the same ${chosen.length} tokens, so neither is ` +
          "preferred. Remove the row, or correct one side.",
      );
    const longest = Math.max(chosen.length, rejected.length);
    if (longest > maxLength && truncation === "error")
      throw new UserError(
        `${placeOf(row)}: a side has ${longest} tokens, and \`data.max_length\` is ${maxLength}. Raise it, or set ` +
          "`data.truncation` to `left` or `right` to cut such conversations.",
      );
    const margin =
      marginKey === null ? 0 : parseColumn(row, marginKey, Margin, columnOf(row, marginKey, "data.margin_key"));
    return {
      chosen: limited(chosen, options),
      rejected: limited(rejected, options),
      margin,
      isCut: longest > maxLength,
    };
  };
}

/** Whether both sides of a pair became equal when they were cut. */
export const isUndecidable = ({ chosen, rejected }: PreferencePair): boolean => sameIds(chosen, rejected);

/** The tokens of a conversation, whole; a text without template ends in the end token. */
export function encodeConversation(
  tokenizer: Tokenizer,
  conversation: Conversation,
  { extra = {}, template = null, padId }: ScoringTemplate,
): Int32Array {
  const ids =
    "messages" in conversation
      ? encodeChat(tokenizer, conversation.messages, { extra, template })
      : ended(tokenizer.encode(conversation.text), tokenizer.eosId);
  if (ids.length === 0) throw new UserError("There is no token to score: the conversation is empty.");
  return withoutPadding(ids, padId);
}

/** At most `maxLength` tokens, none of them padding at the end. */
export function limited(ids: Int32Array, { maxLength, truncation, padId }: ScoringTemplate): Int32Array {
  return withoutPadding(truncate(ids, maxLength, truncation), padId);
}

function ended(ids: Int32Array, eosId: number | null): Int32Array {
  if (eosId === null || ids.at(-1) === eosId) return ids;
  const longer = new Int32Array(ids.length + 1).fill(eosId);
  longer.set(ids);
  return longer;
}

function withoutPadding(ids: Int32Array, padId: number | null): Int32Array {
  let end = ids.length;
  while (end > 1 && ids[end - 1] === padId) end--;
  return ids.subarray(0, end);
}

type Side = { readonly value: unknown; readonly promptKey: string; readonly isChat: boolean };

/** One side as a conversation; its prompt may be in a column of its own. */
function sideOf(row: Row, column: string, { value, promptKey, isChat }: Side): Conversation {
  const prompt = Object.hasOwn(row.values, promptKey) ? (row.values[promptKey] ?? null) : null;
  if (typeof value === "string") {
    if (value === "") throw rowError(row, column, "a text or a list of messages", value);
    if (prompt === null) return textOf(value, isChat);
    if (typeof prompt === "string" && !isChat) return { text: prompt + value };
    return { messages: [...promptOf(row, promptKey, prompt), { role: "assistant", content: value }] };
  }
  if (!Array.isArray(value)) throw rowError(row, column, "a text or a list of messages", value);
  const messages = chatOf(row, column, value);
  const last = messages.at(-1);
  if (last?.role !== "assistant")
    throw rowError(row, `${column}[${messages.length - 1}].role`, "the assistant, whose answer is scored", last?.role);
  // A list that starts with the assistant answers the prompt; any other is the whole conversation.
  const isAnswer = prompt !== null && messages[0]?.role === "assistant";
  return { messages: isAnswer ? [...promptOf(row, promptKey, prompt), ...messages] : messages };
}

function promptOf(row: Row, column: string, value: unknown): readonly Message[] {
  if (typeof value !== "string") return chatOf(row, column, value);
  const dialogue = dialogueOf(value);
  if (dialogue === null) return [{ role: "user", content: value }];
  // The prompts of hh-rlhf end with the word that starts the answer.
  return dialogue.at(-1)?.content === "" ? dialogue.slice(0, -1) : dialogue;
}

function textOf(text: string, isChat: boolean): Conversation {
  const dialogue = isChat ? dialogueOf(text) : null;
  return dialogue === null ? { text } : { messages: dialogue };
}

const roles: Readonly<Record<string, string>> = { Human: "user", Assistant: "assistant" };

/** The messages of a dialogue in hh-rlhf's form; null for any other text. */
function dialogueOf(text: string): Message[] | null {
  const [before, ...parts] = text.split(/\n\n(Human|Assistant):/);
  if (before !== "" || parts.length === 0) return null;
  return Array.from({ length: parts.length / 2 }, (_, i) => ({
    role: roles[parts[2 * i]!]!,
    content: parts[2 * i + 1]!.trim(),
  }));
}

function named<T>(row: Row, column: string, work: () => T): T {
  try {
    return work();
  } catch (error) {
    throw new UserError(`${placeOf(row)}, column \`${column}\`: ${messageOf(error)}`, { cause: error });
  }
}

function sameIds(a: Int32Array, b: Int32Array): boolean {
  return a.length === b.length && a.every((id, i) => id === b[i]);
}
