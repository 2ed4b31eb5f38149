/**
 * `POST /v1/chat/completions`: messages in, a message out, with tools, `logprobs` and streaming.
 *
 * Streamed and whole answers are made from the same events of the same reader, so that they are equal.
 */
import * as z from "zod";
import type { Completion, Sample, SampledToken } from "../rollout/request.ts";
import { closeTag, openTag, type ReplyEvent, ReplyReader } from "../text/tool-calls.ts";
import { isObject, type JsonObject } from "./body.ts";
import type { Send } from "./event-stream.ts";
import { flag, parseFields, sharedFields, show, topCount, whole } from "./fields.ts";
import { type Job, runJob, samplingOf, usageOf } from "./job.ts";
import { chatLogprobs, promptLogprobs, type TokenNames, tokenNames } from "./logprobs.ts";
import { conversationFields, encodeConversation } from "./messages.ts";
import { roomFor } from "./prompts.ts";
import { newId, type Reply, secondsNow } from "./reply.ts";
import { RequestError } from "./request-error.ts";
import { sampleText, wholeText } from "./sample-text.ts";
import type { Service } from "./service.ts";

const schema = z.object({
  ...sharedFields,
  ...conversationFields,
  max_completion_tokens: whole(0).optional(),
  logprobs: flag.default(false),
  top_logprobs: topCount.optional(),
  tool_choice: z.unknown().optional(),
  parallel_tool_calls: flag.default(true),
  response_format: z.looseObject({ type: z.string("a text") }, 'an object such as {"type": "text"}').optional(),
  modalities: z.array(z.literal("text", '"text"'), '["text"]').optional(),
});
type Fields = z.infer<typeof schema>;

/** A checked request with everything that its choices need. */
type Plan = {
  readonly service: Service;
  readonly fields: Fields;
  readonly job: Job;
  readonly names: TokenNames;
  readonly hasTools: boolean;
  readonly head: { readonly id: string; readonly created: number; readonly model: string };
};

/** Answer a request. */
export function chatCompletions(service: Service, body: JsonObject): Reply {
  const { fields, ignored } = parseFields(schema, body);
  const plan = planOf(service, fields, body);
  const isStrict = fields.tools?.some((tool) => tool.function.strict === true) ?? false;
  return {
    ignored: isStrict ? [...ignored, "tools[].function.strict"] : ignored,
    whole: (client) => answer(plan, client),
    ...(fields.stream ? { stream: (client: AbortSignal, send: Send) => stream(plan, client, send) } : {}),
  };
}

function planOf(service: Service, fields: Fields, body: JsonObject): Plan {
  const refuse = (param: string, message: string) => new RequestError(400, message, { param });
  const format = fields.response_format?.type ?? "text";
  if (format !== "text")
    throw refuse(
      "response_format",
      `\`response_format.type\` is ${show(format)}: this server cannot force a format, only "text" is possible. Describe the format in the messages and check the answer.`,
    );
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
  const hasTools = readToolChoice(fields) === "auto";
  const prompt = encodeConversation(service, fields, { body, hasTools });
  const room = roomFor(service, prompt, maxTokens, { prompt: "messages", maxTokens: maxTokensName });
  if (fields.min_tokens > room)
    throw refuse(
      "min_tokens",
      `\`min_tokens\` is ${fields.min_tokens}, and there is room for ${room} tokens. Lower it.`,
    );
  const job: Job = {
    ...samplingOf(service, fields, {
      topLogprobs: fields.logprobs ? (fields.top_logprobs ?? 0) : undefined,
      // Tags that are special tokens would otherwise be hidden.
      shown: hasTools ? [openTag, closeTag] : [],
      stop: hasTools && !fields.parallel_tool_calls ? [closeTag] : [], // end after the first call
    }),
    prompts: [prompt],
    maxNewTokens: [room],
    ...(fields.prompt_logprobs === undefined ? {} : { promptLogprobs: fields.prompt_logprobs }),
  };
  const names = tokenNames(service.tokenizer, fields.return_tokens_as_token_ids);
  const head = { id: newId("chatcmpl"), created: secondsNow(), model: fields.model ?? service.names[0] };
  return { service, fields, job, names, hasTools, head };
}

/** Whether the model may call tools. A call cannot be forced: there is no constrained decoding. */
function readToolChoice({ tools = [], tool_choice: choice }: Fields): "none" | "auto" {
  const refuse = (message: string) => new RequestError(400, message, { param: "tool_choice" });
  if (choice === undefined) return tools.length > 0 ? "auto" : "none";
  if (choice === "none") return "none";
  if (choice !== "auto" && choice !== "required" && !(isObject(choice) && choice.type === "function"))
    throw refuse(`\`tool_choice\` is ${show(choice)}; it should be "none" or "auto".`);
  if (tools.length === 0)
    throw refuse(`\`tool_choice\` is ${show(choice)}, and there are no \`tools\`. Give at least one.`);
  if (choice === "auto") return "auto";
  throw refuse(
    `\`tool_choice\` is ${show(choice)}: this server cannot force a call. Use "auto" and ask for the call in the messages.`,
  );
}

async function answer(plan: Plan, client: AbortSignal): Promise<object> {
  const { service, fields, job, head } = plan;
  const [completion] = await runJob(service, job, client);
  const done = completion === undefined ? [] : [completion];
  const choices = done.flatMap(({ samples }) => samples.map((sample) => choiceOf(plan, sample)));
  return {
    ...head,
    object: "chat.completion",
    choices,
    usage: usageOf(job, done),
    ...ofPrompt(plan, completion),
    ...idsOf(fields, job),
  };
}

function ofPrompt({ service, fields }: Plan, completion: Completion | undefined): object {
  if (fields.prompt_logprobs === undefined) return {};
  return { prompt_logprobs: promptLogprobs(completion?.promptLogprobs ?? [], service.tokenizer) };
}

function idsOf(fields: Fields, job: Job): object {
  return fields.return_token_ids ? { prompt_token_ids: [...(job.prompts[0] ?? [])] } : {};
}

type Call = { readonly id: string; readonly type: "function"; readonly function: { name: string; arguments: string } };

function choiceOf({ service, fields, job, names, hasTools }: Plan, sample: Sample): object {
  const text = wholeText(service.tokenizer, sample, job.text);
  const { content, calls } = readReply(text, hasTools);
  const tokens = sample.ids.map((id, i) => ({ id, logprob: sample.logprobs[i]!, top: sample.top[i] ?? [] }));
  return {
    index: sample.index,
    message: {
      role: "assistant",
      content: content === "" && calls.length > 0 ? null : content,
      refusal: null,
      ...(calls.length === 0 ? {} : { tool_calls: calls }),
    },
    logprobs: fields.logprobs ? { content: chatLogprobs(tokens, names), refusal: null } : null,
    ...endOf(sample, calls.length > 0),
    ...(fields.return_token_ids ? { token_ids: sample.ids } : {}),
  };
}

/** The text and the calls of a whole reply. */
function readReply(text: string, hasTools: boolean): { content: string; calls: readonly Call[] } {
  if (!hasTools) return { content: text, calls: [] };
  const reader = new ReplyReader();
  const calls: Call[] = [];
  let content = "";
  for (const event of [...reader.push(text), ...reader.end()]) {
    if (event.kind === "text") content += event.text;
    else if (event.kind === "call")
      calls.push({ id: newId("call"), type: "function", function: { name: event.name, arguments: "" } });
    else calls[event.index]!.function.arguments += event.text;
  }
  return { content, calls };
}

function endOf({ finishReason, stopReason }: Sample, hasCalls: boolean): object {
  return { finish_reason: hasCalls && finishReason === "stop" ? "tool_calls" : finishReason, stop_reason: stopReason };
}

/** Send a chunk for every piece of text or of a call; log-probs and ids go with the next chunk. */
async function stream(plan: Plan, client: AbortSignal, send: Send): Promise<void> {
  const { service, fields, job, head } = plan;
  const hasUsage = fields.stream_options?.include_usage === true;
  const sendChunk = (choices: readonly object[], rest: object = hasUsage ? { usage: null } : {}) =>
    send({ ...head, object: "chat.completion.chunk", choices, ...rest });
  let isFirst = true;
  const sendChoice = (choice: object) => {
    sendChunk([choice], { ...(hasUsage ? { usage: null } : {}), ...(isFirst ? idsOf(fields, job) : {}) });
    isFirst = false;
  };
  const open = new Map<number, StreamedChoice>();
  const choiceAt = (index: number) => {
    const known = open.get(index) ?? new StreamedChoice(plan, index, sendChoice);
    open.set(index, known);
    return known;
  };
  const done = await runJob(service, job, client, {
    onToken: (index, token) => choiceAt(index).push(token),
    onSample: (index, sample) => choiceAt(index).end(sample),
  });
  if (hasUsage) sendChunk([], { usage: usageOf(job, done) });
}

/** One choice of a streamed answer. */
class StreamedChoice {
  readonly #plan: Plan;
  readonly #index: number;
  readonly #send: (choice: object) => void;
  readonly #text: ReturnType<typeof sampleText>;
  readonly #reader: ReplyReader | null;
  #tokens: SampledToken[] = [];
  #hasCalls = false;

  constructor(plan: Plan, index: number, send: (choice: object) => void) {
    this.#plan = plan;
    this.#index = index;
    this.#send = send;
    this.#text = sampleText(plan.service.tokenizer, plan.job.text);
    this.#reader = plan.hasTools ? new ReplyReader() : null;
    this.#sendDelta({ role: "assistant", content: "" });
  }

  push(token: SampledToken): void {
    this.#tokens.push(token);
    const text = this.#text.push(token.id);
    this.#sendEvents(this.#reader === null ? asEvents(text) : this.#reader.push(text));
  }

  end(sample: Sample): void {
    const rest = this.#text.end(sample);
    this.#sendEvents(this.#reader === null ? asEvents(rest) : [...this.#reader.push(rest), ...this.#reader.end()]);
    this.#sendDelta({}, endOf(sample, this.#hasCalls));
  }

  #sendEvents(events: readonly ReplyEvent[]): void {
    for (const event of events) {
      if (event.kind === "text") this.#sendDelta({ content: event.text });
      else if (event.kind === "arguments") this.#sendCall(event.index, { function: { arguments: event.text } });
      else {
        this.#hasCalls = true;
        const call = { id: newId("call"), type: "function", function: { name: event.name, arguments: "" } };
        this.#sendCall(event.index, call);
      }
    }
  }

  #sendCall(index: number, call: object): void {
    this.#sendDelta({ tool_calls: [{ index, ...call }] });
  }

  #sendDelta(delta: object, end: object = { finish_reason: null }): void {
    const { fields, names } = this.#plan;
    const tokens = this.#tokens.splice(0);
    this.#send({
      index: this.#index,
      delta,
      logprobs: fields.logprobs && tokens.length > 0 ? { content: chatLogprobs(tokens, names), refusal: null } : null,
      ...end,
      ...(fields.return_token_ids ? { token_ids: tokens.map(({ id }) => id) } : {}),
    });
  }
}

function asEvents(text: string): ReplyEvent[] {
  return text === "" ? [] : [{ kind: "text", text }];
}
