/**
 * The body of `/v1/responses` as the body of a chat request, so that both endpoints have one meaning.
 *
 * Every field is checked here under its own name. What the chat request refuses afterwards is told in the words of this
 * endpoint.
 */
import * as z from "zod";
import { isObject, type JsonObject } from "./body.ts";
import { flag, parseFields, show, topCount, whole } from "./fields.ts";
import { RequestError } from "./request-error.ts";

const part = z.looseObject(
  { type: z.string("a text"), text: z.string("a text").optional() },
  "an object with `type` and `text`",
);
const contentForm = 'a text or a list of parts such as {"type": "input_text", "text": "…"}';
const item = z.looseObject(
  {
    type: z.string("a text").optional(),
    role: z.string("a text").optional(),
    content: z.union([z.string(), z.array(part)], contentForm).nullish(),
    call_id: z.string("a text").optional(),
    name: z.string("a text").optional(),
    arguments: z.string("JSON in a text").optional(),
    output: z.union([z.string(), z.array(part)], contentForm).optional(),
  },
  "an object such as a message",
);
const tool = z.looseObject(
  {
    type: z.literal("function", '"function", the only supported kind of tool'),
    name: z.string("a text"),
    description: z.string("a text").nullish(),
    parameters: z.record(z.string(), z.unknown(), "a JSON schema").nullish(),
    strict: flag.nullish(),
  },
  "an object with `type`, `name` and `parameters`",
);

/** Fields with the same name and meaning in a chat request. */
const sameFields = (
  "model temperature top_p parallel_tool_calls stream user metadata service_tier safety_identifier prompt_cache_key " +
  "top_k min_p min_tokens seed stop stop_token_ids repetition_penalty presence_penalty frequency_penalty logit_bias " +
  "ignore_eos skip_special_tokens chat_template_kwargs"
).split(" ");

const schema = z.object({
  ...Object.fromEntries(sameFields.map((name) => [name, z.unknown().optional()])),
  input: z.union([z.string(), z.array(item).min(1)], "a text or a list of items, with at least one"),
  instructions: z.string("a text").optional(),
  max_output_tokens: whole(1).optional(),
  tools: z.array(tool, "a list of tools").optional(),
  tool_choice: z.unknown().optional(),
  text: z
    .looseObject(
      { format: z.looseObject({ type: z.string("a text") }, 'an object such as {"type": "text"}').optional() },
      "an object with `format`",
    )
    .optional(),
  top_logprobs: topCount.optional(),
  include: z.array(z.string("a text"), "a list of texts").default([]),
  store: flag.optional(),
  background: flag.optional(),
  previous_response_id: z.unknown().optional(),
  conversation: z.unknown().optional(),
  prompt: z.unknown().optional(),
  truncation: z.enum(["auto", "disabled"], '"disabled"').optional(),
  // Accepted without effect.
  reasoning: z.unknown().optional(),
  stream_options: z.unknown().optional(),
  max_tool_calls: z.unknown().optional(),
});
export type ResponseFields = z.infer<typeof schema>;

export type ResponseInput = {
  readonly fields: ResponseFields;
  readonly ignored: readonly string[];
  /** The same request for `/v1/chat/completions`. */
  readonly chat: JsonObject;
  readonly wantsLogprobs: boolean;
};

/** Check a body and translate it. */
export function readResponseInput(body: JsonObject): ResponseInput {
  const { fields, ignored } = parseFields(schema, body);
  refuseState(fields);
  const wantsLogprobs = fields.include.includes("message.output_text.logprobs");
  const optional: Record<string, unknown> = {
    max_completion_tokens: fields.max_output_tokens,
    tools: fields.tools?.map(({ type, ...rest }) => ({ type, function: rest })),
    tool_choice: chatChoice(fields.tool_choice),
    response_format: chatFormat(fields.text?.format),
    ...(wantsLogprobs ? { logprobs: true, top_logprobs: fields.top_logprobs ?? 0 } : {}),
  };
  const same = Object.entries(body).filter(([name]) => sameFields.includes(name));
  const given = Object.entries(optional).filter(([, value]) => value !== undefined);
  const chat = { ...Object.fromEntries(same), ...Object.fromEntries(given), messages: messagesOf(fields) };
  return { fields, ignored, chat, wantsLogprobs };
}

/** This server keeps nothing between two requests. */
function refuseState(fields: ResponseFields): void {
  const refuse = (param: string, message: string) => new RequestError(400, message, { param });
  if (fields.store === true)
    throw refuse("store", "`store` is true, and this server stores no responses. Set it to false, or leave it out.");
  for (const param of ["previous_response_id", "conversation", "prompt"] as const) {
    if (fields[param] !== undefined)
      throw refuse(param, `\`${param}\` is set, and this server stores nothing. Send all earlier items as \`input\`.`);
  }
  if (fields.background === true)
    throw refuse(
      "background",
      "`background` is true, and this server answers only while the client waits. Set it to false.",
    );
  if (fields.truncation === "auto")
    throw refuse("truncation", '`truncation` is "auto", and prompts are never shortened here. Send a shorter `input`.');
}

function messagesOf({ input, instructions }: ResponseFields): object[] {
  const messages: { role: string; tool_calls?: object[] }[] = [];
  if (instructions !== undefined) messages.push({ role: "system", content: instructions } as { role: string });
  if (typeof input === "string") return [...messages, { role: "user", content: input }];
  input.forEach((it, i) => {
    const place = `input[${i}]`;
    const type = it.type ?? "message";
    if (type === "reasoning") return; // a chat template writes only what was said
    if (type === "function_call") {
      const call = {
        id: it.call_id,
        type: "function",
        function: { name: it.name ?? "", arguments: it.arguments ?? "{}" },
      };
      const last = messages.at(-1);
      if (last?.role === "assistant") last.tool_calls = [...(last.tool_calls ?? []), call];
      else messages.push({ role: "assistant", tool_calls: [call] });
    } else if (type === "function_call_output")
      messages.push(messageOf("tool", it.output, `${place}.output`, it.call_id));
    else if (type === "message") messages.push(messageOf(it.role ?? "user", it.content, `${place}.content`));
    else
      throw new RequestError(
        400,
        `\`${place}.type\` is ${show(type)}; possible are "message", "function_call" and "function_call_output".`,
        { param: "input" },
      );
  });
  return messages;
}

type Content = string | readonly z.infer<typeof part>[] | null | undefined;

function messageOf(role: string, content: Content, place: string, callId?: string): { role: string; content: unknown } {
  const parts =
    typeof content === "string" || content == null ? content : content.map((it, i) => textPart(it, `${place}[${i}]`));
  return { role, content: parts, ...(callId === undefined ? {} : { tool_call_id: callId }) };
}

function textPart({ type, text }: z.infer<typeof part>, place: string): object {
  if (/^(input_|output_)?text$/.test(type) && text !== undefined) return { type: "text", text };
  throw new RequestError(
    400,
    `\`${place}\` is of the type ${show(type)}; this model reads only texts ("input_text", "output_text").`,
    { param: "input" },
  );
}

function chatChoice(choice: unknown): unknown {
  const isFunction = isObject(choice) && choice.type === "function" && typeof choice.name === "string";
  return isFunction ? { type: "function", function: { name: choice.name } } : choice;
}

function chatFormat(format: JsonObject | undefined): unknown {
  if (format?.type !== "json_schema") return format;
  const { type, ...rest } = format;
  return { type, json_schema: rest };
}

/** Names of the chat request that are others here, in messages and in `param`. */
const renamed: readonly (readonly [RegExp, string])[] = [
  [/response_format\.json_schema/g, "text.format"],
  [/response_format/g, "text.format"],
  [/max_completion_tokens/g, "max_output_tokens"],
  [/\bmessages\b/g, "input"],
  [/\.function\.parameters/g, ".parameters"],
  [/"function": \{"name": "…"\}/g, '"name": "…"'],
];

/** Run a part of the chat path; its errors name the fields of this endpoint. */
export function inOwnWords<T>(run: () => T): T {
  try {
    return run();
  } catch (error) {
    if (!(error instanceof RequestError)) throw error;
    const rename = (text: string) => renamed.reduce((said, [from, to]) => said.replace(from, to), text);
    const { status, message, param, code } = error;
    const names = { ...(param === null ? {} : { param: rename(param) }), ...(code === null ? {} : { code }) };
    throw new RequestError(status, rename(message), { ...names, cause: error });
  }
}
