/**
 * A chat request as a plan: checked fields, the prompt's tokens, how to sample, and the grammar of the output.
 *
 * `/v1/chat/completions` and `/v1/responses` make the same plan and differ in how they write the answer.
 */
import * as z from "zod";
import { closeTag, openTag } from "../text/tool-calls.ts";
import { isObject, type JsonObject } from "./body.ts";
import { constraintOf, type OutputFormat, type ToolChoice } from "./constraint.ts";
import { flag, type Parsed, parseFields, sharedFields, show, topCount, whole } from "./fields.ts";
import { type Job, samplingOf } from "./job.ts";
import { conversationFields, encodeConversation } from "./messages.ts";
import { roomFor } from "./prompts.ts";
import { RequestError } from "./request-error.ts";
import type { Service } from "./service.ts";

const schema = z.object({
  ...sharedFields,
  ...conversationFields,
  max_completion_tokens: whole(0).optional(),
  logprobs: flag.default(false),
  top_logprobs: topCount.optional(),
  tool_choice: z.unknown().optional(),
  parallel_tool_calls: flag.default(true),
  response_format: z
    .looseObject(
      { type: z.string("a text"), json_schema: z.unknown().optional() },
      'an object such as {"type": "text"}',
    )
    .optional(),
  modalities: z.array(z.literal("text", '"text"'), '["text"]').optional(),
});

export type ChatFields = z.infer<typeof schema>;

/** A checked request with everything that its choices need. */
export type ChatPlan = {
  readonly service: Service;
  readonly fields: ChatFields;
  readonly job: Job;
  /** The model may call tools. */
  readonly hasTools: boolean;
};

/** Check the body of a chat request. */
export function parseChat(body: JsonObject): Parsed<ChatFields> {
  const { fields, ignored } = parseFields(schema, body);
  const isFree = fields.response_format === undefined && (fields.tool_choice ?? "auto") === "auto";
  const isStrict = isFree && (fields.tools?.some((tool) => tool.function.strict === true) ?? false);
  return { fields, ignored: isStrict ? [...ignored, "tools[].function.strict"] : ignored };
}

/** Plan a request; `body` is the original, because the model gets tools as they were written. */
export function planChat(service: Service, fields: ChatFields, body: JsonObject): ChatPlan {
  const refuse = (param: string, message: string) => new RequestError(400, message, { param });
  if (fields.top_logprobs !== undefined && !fields.logprobs)
    throw refuse("top_logprobs", "`top_logprobs` is set, and `logprobs` is not. Set `logprobs` to true as well.");
  if (fields.stream && fields.prompt_logprobs !== undefined)
    throw refuse("prompt_logprobs", "`prompt_logprobs` cannot be streamed. Ask for it without `stream`.");
  const maxTokens = fields.max_completion_tokens ?? fields.max_tokens;
  const maxTokensName = fields.max_completion_tokens === undefined ? "max_tokens" : "max_completion_tokens";
  if (maxTokens === 0)
    throw refuse(
      maxTokensName,
      `\`${maxTokensName}\` is 0, which leaves no room for an answer; it should be at least 1.`,
    );
  const choice = readToolChoice(fields);
  const format = readFormat(fields);
  const hasTools = choice !== "none";
  const prompt = encodeConversation(service, fields, { body, hasTools });
  const room = roomFor(service, prompt, maxTokens, { prompt: "messages", maxTokens: maxTokensName });
  if (fields.min_tokens > room)
    throw refuse(
      "min_tokens",
      `\`min_tokens\` is ${fields.min_tokens}, and there is room for ${room} tokens. Lower it.`,
    );
  const wanted = { format, tools: fields.tools ?? [], choice, isParallel: fields.parallel_tool_calls };
  const grammar = constraintOf(service, wanted);
  const job: Job = {
    ...samplingOf(service, fields, {
      topLogprobs: fields.logprobs ? (fields.top_logprobs ?? 0) : undefined,
      // Tags that are special tokens would otherwise be hidden.
      shown: hasTools ? [openTag, closeTag] : [],
      // End after the first call; a grammar does that itself.
      stop: hasTools && !fields.parallel_tool_calls && grammar === null ? [closeTag] : [],
      grammar,
    }),
    prompts: [prompt],
    maxNewTokens: [room],
    ...(fields.prompt_logprobs === undefined ? {} : { promptLogprobs: fields.prompt_logprobs }),
  };
  return { service, fields, job, hasTools };
}

/** The format of the answer; a schema is checked when it becomes a grammar. */
function readFormat({ response_format: format }: ChatFields): OutputFormat {
  const type = format?.type ?? "text";
  if (type === "text" || type === "json_object") return { type };
  const refuse = (message: string) => new RequestError(400, message, { param: "response_format" });
  if (type !== "json_schema")
    throw refuse(`\`response_format.type\` is ${show(type)}; it should be "text", "json_object" or "json_schema".`);
  const { json_schema: given } = format ?? {};
  if (isObject(given) && given.schema != null) return { type, schema: given.schema };
  throw refuse(
    '`response_format.json_schema.schema` is missing; it should be a JSON schema such as {"type": "object"}.',
  );
}

/** Whether the model may or must call tools. */
function readToolChoice({ tools = [], tool_choice: choice }: ChatFields): ToolChoice {
  const refuse = (message: string) => new RequestError(400, message, { param: "tool_choice" });
  if (choice === undefined) return tools.length > 0 ? "auto" : "none";
  if (choice === "none") return "none";
  const name =
    isObject(choice) && choice.type === "function" && isObject(choice.function) ? choice.function.name : null;
  if (choice !== "auto" && choice !== "required" && typeof name !== "string")
    throw refuse(
      `\`tool_choice\` is ${show(choice)}; it should be "none", "auto", "required" or {"type": "function", "function": {"name": "…"}}.`,
    );
  if (tools.length === 0)
    throw refuse(`\`tool_choice\` is ${show(choice)}, and there are no \`tools\`. Give at least one.`);
  if (typeof name !== "string") return choice === "auto" ? "auto" : "required";
  if (tools.some((tool) => tool.function.name === name)) return { name };
  const names = tools.map((tool) => show(tool.function.name)).join(", ");
  throw refuse(`\`tool_choice\` is the function ${show(name)}, which is not among \`tools\` (${names}).`);
}
