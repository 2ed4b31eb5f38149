/**
 * `POST /v1/chat/completions`: messages in, a message out, with tools, `logprobs` and streaming.
 *
 * Streamed and whole answers are made from the same events of the same reader, so that they are equal.
 */
import type { Completion, Sample, SampledToken } from "../rollout/request.ts";
import type { ReplyEvent } from "../text/tool-calls.ts";
import type { JsonObject } from "./body.ts";
import { type ChatFields, type ChatPlan, parseChat, planChat } from "./chat-plan.ts";
import type { Send } from "./event-stream.ts";
import { type Job, runJob, usageOf } from "./job.ts";
import { chatLogprobs, promptLogprobs, sampledTokens, type TokenNames, tokenNames } from "./logprobs.ts";
import { newId, type Reply, secondsNow } from "./reply.ts";
import { type ReplyEvents, replyEvents } from "./reply-events.ts";
import type { Service } from "./service.ts";

type Plan = ChatPlan & {
  readonly names: TokenNames;
  readonly head: { readonly id: string; readonly created: number; readonly model: string };
};

/** Answer a request. */
export function chatCompletions(service: Service, body: JsonObject): Reply {
  const { fields, ignored } = parseChat(body);
  const plan: Plan = {
    ...planChat(service, fields, body),
    names: tokenNames(service.tokenizer, fields.return_tokens_as_token_ids),
    head: { id: newId("chatcmpl"), created: secondsNow(), model: fields.model ?? service.names[0] },
  };
  return {
    ignored,
    whole: (client) => answer(plan, client),
    ...(fields.stream ? { stream: (client: AbortSignal, send: Send) => stream(plan, client, send) } : {}),
  };
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

function idsOf(fields: ChatFields, job: Job): object {
  return fields.return_token_ids ? { prompt_token_ids: [...(job.prompts[0] ?? [])] } : {};
}

type Call = { readonly id: string; readonly type: "function"; readonly function: { name: string; arguments: string } };

function choiceOf({ service, fields, job, names, hasTools }: Plan, sample: Sample): object {
  const reply = replyEvents(service.tokenizer, job.text, hasTools);
  const { content, calls } = joined([...sample.ids.flatMap((id) => reply.push({ id })), ...reply.end(sample)]);
  return {
    index: sample.index,
    message: {
      role: "assistant",
      content: content === "" && calls.length > 0 ? null : content,
      refusal: null,
      ...(calls.length === 0 ? {} : { tool_calls: calls }),
    },
    logprobs: fields.logprobs ? { content: chatLogprobs(sampledTokens(sample), names), refusal: null } : null,
    ...endOf(sample, calls.length > 0),
    ...(fields.return_token_ids ? { token_ids: sample.ids } : {}),
  };
}

/** The text and the calls of a whole reply. */
function joined(events: readonly ReplyEvent[]): { content: string; calls: readonly Call[] } {
  const calls: Call[] = [];
  let content = "";
  for (const event of events) {
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
  readonly #reply: ReplyEvents;
  #tokens: SampledToken[] = [];
  #hasCalls = false;

  constructor(plan: Plan, index: number, send: (choice: object) => void) {
    this.#plan = plan;
    this.#index = index;
    this.#send = send;
    this.#reply = replyEvents(plan.service.tokenizer, plan.job.text, plan.hasTools);
    this.#sendDelta({ role: "assistant", content: "" });
  }

  push(token: SampledToken): void {
    this.#tokens.push(token);
    this.#sendEvents(this.#reply.push(token));
  }

  end(sample: Sample): void {
    this.#sendEvents(this.#reply.end(sample));
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
