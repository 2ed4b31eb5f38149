/**
 * `POST /v1/responses`: OpenAI's newer form of a chat request. It has the plan of a chat completion and another form of
 * the answer: a list of items (a message, function calls), and events for each step of their making.
 *
 * The whole answer is what the last event of a stream contains. Nothing is stored.
 */
import type { Sample, SampledToken } from "../rollout/request.ts";
import type { ReplyEvent } from "../text/tool-calls.ts";
import type { JsonObject } from "./body.ts";
import { type ChatPlan, parseChat, planChat } from "./chat-plan.ts";
import type { Send } from "./event-stream.ts";
import { runJob, usageOf } from "./job.ts";
import { chatLogprobs, type TokenNames, tokenNames } from "./logprobs.ts";
import { newId, type Reply, secondsNow } from "./reply.ts";
import { replyEvents } from "./reply-events.ts";
import { inOwnWords, type ResponseInput, readResponseInput } from "./responses-input.ts";
import type { Service } from "./service.ts";

type Item = MessageItem | CallItem;
type Status = { status: "in_progress" | "completed" | "incomplete" };
type TextPart = { type: "output_text"; text: string; annotations: never[]; logprobs: object[] };
type MessageItem = Status & { id: string; type: "message"; role: "assistant"; content: TextPart[] };
type CallItem = Status & { id: string; type: "function_call"; call_id: string; name: string; arguments: string };

/** Answer a request. */
export function responses(service: Service, body: JsonObject): Reply {
  const input = readResponseInput(body);
  const plan = inOwnWords(() => planChat(service, parseChat(input.chat).fields, input.chat));
  const head = headOf(plan, input);
  const run = (client: AbortSignal, send: Send) =>
    new Response(plan, head, { send, hasLogprobs: input.wantsLogprobs }).run(client);
  return {
    ignored: input.ignored,
    whole: (client) => run(client, () => {}),
    ...(plan.fields.stream
      ? {
          stream: async (client: AbortSignal, send: Send) => {
            await run(client, send);
          },
        }
      : {}),
  };
}

function headOf({ service, fields }: ChatPlan, { fields: own }: ResponseInput): object {
  return {
    id: newId("resp"),
    object: "response",
    created_at: secondsNow(),
    background: false,
    error: null,
    instructions: own.instructions ?? null,
    max_output_tokens: own.max_output_tokens ?? null,
    metadata: fields.metadata ?? {},
    model: fields.model ?? service.names[0],
    parallel_tool_calls: fields.parallel_tool_calls,
    previous_response_id: null,
    reasoning: { effort: null, summary: null },
    store: false,
    temperature: fields.temperature,
    text: { format: own.text?.format ?? { type: "text" } },
    tool_choice: own.tool_choice ?? "auto",
    tools: own.tools ?? [],
    top_logprobs: own.top_logprobs ?? 0,
    top_p: fields.top_p,
    truncation: "disabled",
    user: fields.user ?? null,
  };
}

/** One response while it is made. */
class Response {
  readonly #plan: ChatPlan;
  readonly #head: object;
  readonly #send: Send;
  readonly #names: TokenNames | null;
  readonly #output: Item[] = [];
  #tokens: SampledToken[] = [];
  #sequence = 0;

  constructor(plan: ChatPlan, head: object, { send, hasLogprobs }: { send: Send; hasLogprobs: boolean }) {
    this.#plan = plan;
    this.#head = head;
    this.#send = send;
    this.#names = hasLogprobs ? tokenNames(plan.service.tokenizer, false) : null;
  }

  async run(client: AbortSignal): Promise<object> {
    const { service, job, hasTools } = this.#plan;
    const reply = replyEvents(service.tokenizer, job.text, hasTools);
    const done = await runJob(service, job, client, {
      onToken: (_, token) => {
        this.#start();
        this.#tokens.push(token);
        for (const event of reply.push(token)) this.#take(event);
      },
      onSample: (_, sample) => {
        for (const event of reply.end(sample)) this.#take(event);
        this.#close(sample);
      },
    });
    const [sample] = done.flatMap(({ samples }) => samples);
    const response = this.#state(sample, responseUsage(usageOf(job, done)));
    this.#emit(`response.${response.status}`, { response });
    return response;
  }

  /** Not before the first token, so that an earlier error has its own status. */
  #start(): void {
    if (this.#sequence > 0) return;
    for (const type of ["response.created", "response.in_progress"]) this.#emit(type, { response: this.#state() });
  }

  #state(sample?: Sample, usage: object | null = null) {
    const isCut = sample?.finishReason === "length";
    const status = sample === undefined ? "in_progress" : isCut ? "incomplete" : "completed";
    const incomplete_details = isCut ? { reason: "max_output_tokens" } : null;
    return { ...this.#head, status, incomplete_details, output: structuredClone(this.#output), usage };
  }

  #take(event: ReplyEvent): void {
    if (event.kind === "call") this.#openCall(event.name);
    else if (event.kind === "text") this.#addText(event.text);
    else this.#addArguments(event.text);
  }

  #addText(text: string): void {
    const last = this.#output.at(-1);
    const item = last?.type === "message" ? last : this.#openMessage();
    const [part] = item.content;
    const logprobs = this.#takeLogprobs();
    part!.text += text;
    part!.logprobs.push(...logprobs);
    this.#emit("response.output_text.delta", { ...this.#place(item), content_index: 0, delta: text, logprobs });
  }

  /** The tokens since the last text. */
  #takeLogprobs(): object[] {
    const tokens = this.#tokens.splice(0);
    return this.#names === null ? [] : chatLogprobs(tokens, this.#names);
  }

  #openMessage(): MessageItem {
    this.#closeItem("completed");
    const item: MessageItem = {
      id: newId("msg"),
      type: "message",
      status: "in_progress",
      role: "assistant",
      content: [],
    };
    this.#addItem(item);
    item.content.push({ type: "output_text", text: "", annotations: [], logprobs: [] });
    this.#emit("response.content_part.added", {
      ...this.#place(item),
      content_index: 0,
      part: structuredClone(item.content[0]),
    });
    return item;
  }

  #openCall(name: string): void {
    this.#closeItem("completed");
    this.#addItem({
      id: newId("fc"),
      type: "function_call",
      status: "in_progress",
      call_id: newId("call"),
      name,
      arguments: "",
    });
  }

  #addArguments(text: string): void {
    const item = this.#output.at(-1);
    if (item?.type !== "function_call") return;
    item.arguments += text;
    this.#emit("response.function_call_arguments.delta", { ...this.#place(item), delta: text });
  }

  #addItem(item: Item): void {
    this.#output.push(item);
    this.#emit("response.output_item.added", { output_index: this.#output.length - 1, item: structuredClone(item) });
  }

  /** The sample has ended; an empty one is a message without text. */
  #close({ finishReason }: Sample): void {
    this.#start();
    if (this.#output.length === 0) this.#openMessage();
    const last = this.#output.at(-1);
    if (last?.type === "message") last.content[0]!.logprobs.push(...this.#takeLogprobs());
    this.#closeItem(finishReason === "length" ? "incomplete" : "completed");
  }

  #closeItem(status: "completed" | "incomplete"): void {
    const item = this.#output.at(-1);
    if (item === undefined) return;
    item.status = status;
    if (item.type === "function_call") {
      const { name, arguments: written } = item;
      this.#emit("response.function_call_arguments.done", { ...this.#place(item), name, arguments: written });
    } else {
      const [part] = structuredClone(item.content);
      const place = { ...this.#place(item), content_index: 0 };
      this.#emit("response.output_text.done", { ...place, text: part!.text, logprobs: part!.logprobs });
      this.#emit("response.content_part.done", { ...place, part });
    }
    this.#emit("response.output_item.done", { output_index: this.#output.length - 1, item: structuredClone(item) });
  }

  #place({ id }: Item): { item_id: string; output_index: number } {
    return { item_id: id, output_index: this.#output.length - 1 };
  }

  #emit(type: string, event: object): void {
    this.#send({ type, sequence_number: this.#sequence++, ...event });
  }
}

function responseUsage(usage: ReturnType<typeof usageOf>): object {
  return {
    input_tokens: usage.prompt_tokens,
    input_tokens_details: usage.prompt_tokens_details,
    output_tokens: usage.completion_tokens,
    output_tokens_details: { reasoning_tokens: 0 },
    total_tokens: usage.total_tokens,
  };
}
