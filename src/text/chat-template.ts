/**
 * Conversations as the text a model was trained on: Hugging Face's `apply_chat_template`, with `@huggingface/jinja`.
 *
 * The law: the same text as transformers (trim_blocks, lstrip_blocks, Python's JSON, the special tokens as variables).
 * The template writes BOS itself if the model needs one, so the ids are encoded without adding special tokens.
 */
import { Environment, Interpreter, parse, tokenize } from "@huggingface/jinja";
import { messageOf, UserError } from "../util/errors.ts";
import { callPython, declareGlobals, TemplateRaised } from "./template-globals.ts";
import type { Tokenizer } from "./tokenizer.ts";

/** A part of a message's content: `{ type: "text", text }`, an image, … */
type ContentPart = { readonly type: string; readonly text?: string; readonly [key: string]: unknown };

/** A call in OpenAI's form; templates also accept one without the `function` around it. */
export type ToolCall = { readonly [key: string]: unknown };

/** One message; fields beyond these are passed to the template as they are. */
export type Message = {
  readonly role: string;
  readonly content?: string | readonly ContentPart[] | null;
  readonly tool_calls?: readonly ToolCall[] | null;
  readonly tool_call_id?: string;
  readonly name?: string;
  readonly reasoning_content?: string | null;
  readonly [key: string]: unknown;
};

export type ChatOptions = {
  /** JSON schemas of functions, in OpenAI's form. */
  readonly tools?: readonly object[] | null;
  /** End with the beginning of an assistant's reply. */
  readonly addGenerationPrompt?: boolean;
  /** Leave the last message open, so that the model continues it. */
  readonly continueFinalMessage?: boolean;
  /** Variables for the template, such as `enable_thinking` (`apply_chat_template_kwargs`). */
  readonly extra?: Readonly<Record<string, unknown>>;
  /** A template to use instead of the tokenizer's own (`custom_chat_template`). */
  readonly template?: string | null;
  /** The time that `strftime_now` formats. */
  readonly now?: Date;
};

/** The text of a conversation. */
export function renderChat(tokenizer: Tokenizer, messages: readonly Message[], options: ChatOptions = {}): string {
  const { continueFinalMessage = false, addGenerationPrompt = false } = options;
  if (!continueFinalMessage) return render(tokenizer, messages, options);
  const last = messages.at(-1);
  if (addGenerationPrompt || last === undefined) {
    throw new UserError(
      last === undefined
        ? "There is no message to continue: the conversation is empty. Give it at least one message."
        : "A conversation cannot both continue its last message and start a new reply. Choose one of the two.",
    );
  }
  const [opened, text] = leaveOpen(last);
  return cutAtMark(render(tokenizer, [...messages.slice(0, -1), opened], options), text, tokenizer);
}

/** The token ids of a conversation. */
export function encodeChat(tokenizer: Tokenizer, messages: readonly Message[], options: ChatOptions = {}): Int32Array {
  return tokenizer.encode(renderChat(tokenizer, messages, options), { addSpecialTokens: false });
}

/**
 * The system prompt that the template adds by itself, and the text that it adds before a reply, as token ids.
 *
 * One empty user message is `system + turn` and two are `system + 2 turns`. Their difference is a turn, and the first
 * without a turn is the system prompt.
 */
export function systemAndGenerationPrompt(
  tokenizer: Tokenizer,
  options: Pick<ChatOptions, "template" | "extra"> = {},
): { systemPrompt: Int32Array; generationPrompt: Int32Array } {
  const user: Message = { role: "user", content: "" };
  const one = encodeChat(tokenizer, [user], options);
  const turn = turnLength(tokenizer, one.length, options);
  const open = encodeChat(tokenizer, [user], { ...options, addGenerationPrompt: true });
  return { systemPrompt: one.slice(0, Math.max(0, one.length - turn)), generationPrompt: open.slice(one.length) };
}

function turnLength(tokenizer: Tokenizer, one: number, options: ChatOptions): number {
  const user: Message = { role: "user", content: "" };
  const lengthOf = (messages: readonly Message[]) => encodeChat(tokenizer, messages, options).length;
  try {
    return lengthOf([user, user]) - one;
  } catch (error) {
    if (!(error instanceof UserError && error.cause instanceof TemplateRaised)) throw error;
    // The template needs user and assistant in turn: measure the second user turn after a reply.
    const reply: Message = { role: "assistant", content: "" };
    return lengthOf([user, reply, user]) - lengthOf([user, reply]);
  }
}

function render(tokenizer: Tokenizer, messages: readonly Message[], options: ChatOptions): string {
  const { tools = null, addGenerationPrompt = false, extra = {}, now = new Date() } = options;
  const program = compile(chooseTemplate(tokenizer, options), tokenizer);
  const env = new Environment();
  declareGlobals(env, now);
  const variables = {
    documents: null,
    ...tokenizer.specialTokens,
    ...extra,
    messages: messages.map(withReasoning),
    tools,
    add_generation_prompt: addGenerationPrompt,
  };
  for (const [name, value] of Object.entries(variables)) env.set(name, withoutUndefined(value));
  try {
    return String(new Interpreter(env).run(program).value);
  } catch (error) {
    throw new UserError(
      error instanceof TemplateRaised
        ? `The chat template of ${tokenizer.dir} refuses this conversation: ${error.message}`
        : `The chat template of ${tokenizer.dir} cannot be applied to this conversation: ${messageOf(error)}. ` +
            "Check the messages, or set another template with `custom_chat_template`.",
      { cause: error },
    );
  }
}

function chooseTemplate(tokenizer: Tokenizer, { template, tools }: ChatOptions): string {
  const forTools = tools !== undefined && tools !== null ? tokenizer.toolTemplate : null;
  const chosen = template ?? forTools ?? tokenizer.chatTemplate;
  if (chosen !== null) return chosen;
  throw new UserError(
    `The tokenizer of ${tokenizer.dir} has no chat template, so a list of messages cannot be turned into a prompt. ` +
      "Set `custom_chat_template` to a Jinja template, or give the prompt as a plain string.",
  );
}

type Program = ReturnType<typeof parse>;

const compiled = new Map<string, Program>();

function compile(template: string, tokenizer: Tokenizer): Program {
  const known = compiled.get(template);
  if (known !== undefined) return known;
  try {
    const program = parse(tokenize(template, { lstrip_blocks: true, trim_blocks: true }));
    callPython(program);
    compiled.set(template, program);
    return program;
  } catch (error) {
    throw new UserError(
      `The chat template for ${tokenizer.dir} is not a Jinja template that can be parsed: ${messageOf(error)}. ` +
        "Set another one with `custom_chat_template`.",
      { cause: error },
    );
  }
}

/** Reasoning has several names; transformers sets the two that templates read. */
function withReasoning(message: Message): Message {
  const reasoning = message.reasoning_content ?? message.thinking ?? message.reasoning;
  if (reasoning === undefined || reasoning === null) return message;
  return { thinking: reasoning, ...message, reasoning_content: String(reasoning) };
}

/** Remove fields that are `undefined`: for a template they do not exist. */
function withoutUndefined(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withoutUndefined);
  if (typeof value !== "object" || value === null) return value;
  const entries = Object.entries(value).filter(([, item]) => item !== undefined);
  return Object.fromEntries(entries.map(([key, item]) => [key, withoutUndefined(item)]));
}

/** Is at the end of the last message while the template runs; a template that trims removes its space. */
const mark = "CONTINUE_FINAL_MESSAGE_TAG ";

function leaveOpen(message: Message): [opened: Message, text: string] {
  const { content } = message;
  if (typeof content === "string") return [{ ...message, content: content + mark }, content];
  const index = (content ?? []).findLastIndex((part) => typeof part.text === "string");
  const part = content?.[index];
  if (content === undefined || content === null || part?.text === undefined) {
    throw new UserError(`The last message (role "${message.role}") has no text to continue. Give it a content.`);
  }
  return [{ ...message, content: content.with(index, { ...part, text: part.text + mark }) }, part.text];
}

function cutAtMark(rendered: string, text: string, tokenizer: Tokenizer): string {
  const at = rendered.lastIndexOf(mark.trim());
  if (at < 0 || !rendered.includes(text.trim())) {
    throw new UserError(
      `The chat template of ${tokenizer.dir} does not write the last message as it is, so the model cannot continue it. ` +
        "Start a new reply instead, or set another template with `custom_chat_template`.",
    );
  }
  // If the mark has lost its space, the template trims, so it would have trimmed the message too.
  return rendered.startsWith(mark, at) ? rendered.slice(0, at) : rendered.slice(0, at).trimEnd();
}
