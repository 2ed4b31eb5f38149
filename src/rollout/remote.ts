/**
 * Sampling at OpenAI-compatible servers (vLLM, SGLang, llama.cpp, `trainyard serve`, …) by their address.
 *
 * `sample` sends token ids to `/completions`, `chat` sends messages to `/chat/completions`. Answers are streamed, so a
 * server that stops sending is noticed however long an answer is, and `onToken` works. The tokens of an incomplete answer
 * are dropped and sampled again, so `onToken` may get some tokens twice; `retryMs` 0 prevents that.
 */
import { z } from "zod";
import type { Message } from "../text/chat-template.ts";
import { invariant, nearest, UserError } from "../util/errors.ts";
import { eventsOf, excerpt, type Reply, ReplyReader } from "./remote-reply.ts";
import type { Completion, Sample, SampleRequest, Sampling } from "./request.ts";
import { type Call, type Server, type ServerOptions, Servers } from "./servers.ts";

/** A model or a server that can be sampled from. */
export type CanSample = { sample(request: SampleRequest): Promise<Completion> };

/** A conversation instead of token ids: the server applies the chat template. */
export type ChatRequest = Omit<SampleRequest, "prompt"> & { readonly messages: readonly Message[] };

/** `tokens` is the number of sampled tokens, also if the server returns no ids. */
export type RemoteCompletion = Completion & { readonly tokens: number };

export type RemoteOptions = ServerOptions & {
  /** The name of the model on the server; null for the server's only model. */
  readonly model: string | null;
  /** The config key or option of the model's name, for messages. */
  readonly modelSetting: string;
  /** Send default values too: a server may have other defaults, from the model's folder. */
  readonly isExplicit?: boolean;
};

/** A model on one or more servers. */
export class Remote implements CanSample {
  readonly #options: RemoteOptions;
  readonly #servers: Servers;
  readonly #owners = new Set<string>();
  #model: string;

  private constructor(options: RemoteOptions) {
    this.#options = options;
    this.#servers = new Servers(options);
    this.#model = options.model ?? "";
  }

  /** The name of the model that answers. */
  get model(): string {
    return this.#model;
  }

  /** The values of `owned_by` in the servers' lists of models: which program each server is. */
  get owners(): ReadonlySet<string> {
    return this.#owners;
  }

  /** Call every server once, so that a wrong address or name is an error before any work. */
  static async open(options: RemoteOptions, signal?: AbortSignal): Promise<Remote> {
    const remote = new Remote(options);
    for (const server of remote.#servers.all) remote.#model = await remote.#chooseModel(server, signal);
    return remote;
  }

  /** Samples of a prompt of token ids. */
  async sample(request: SampleRequest): Promise<RemoteCompletion> {
    invariant(request.promptLogprobs === undefined, "servers are not asked for the log-probs of a prompt");
    invariant(request.grammar === undefined, "servers are not asked to obey a grammar");
    const prompt = Array.from(request.prompt);
    const wanted = { logprobs: request.topLogprobs ?? 0, return_token_ids: true };
    return this.#ask("/completions", request, { prompt, ...wanted });
  }

  /** Samples of the next turn of a conversation. */
  async chat(request: ChatRequest): Promise<RemoteCompletion> {
    return this.#ask("/chat/completions", request, { messages: request.messages });
  }

  /** A server that returns fewer samples than requested (some do not support `n`) is called again for the rest. */
  async #ask(
    path: string,
    request: Omit<SampleRequest, "prompt">,
    prompt: Readonly<Record<string, unknown>>,
  ): Promise<RemoteCompletion> {
    const { n = 1, seed, signal, onToken } = request;
    const samples: Sample[] = [];
    let tokens = 0;
    let cachedTokens = 0;
    while (samples.length < n) {
      const base = samples.length;
      const shifted =
        onToken && base > 0
          ? (token: Parameters<typeof onToken>[0]) => onToken({ ...token, index: base + token.index })
          : onToken;
      const body = {
        model: this.#model,
        ...prompt,
        ...(this.#options.isExplicit ? neutral : {}),
        ...samplingBody(request),
        ...(seed === undefined ? {} : { seed: seed + base }),
        ...(n - base === 1 ? {} : { n: n - base }),
        stream: true,
        stream_options: { include_usage: true },
      };
      const reply = await this.#post({ path, body, signal }, shifted);
      for (const sample of reply.samples.slice(0, n - base)) samples.push({ ...sample, index: samples.length });
      tokens += reply.tokens;
      cachedTokens += reply.cachedTokens;
    }
    for (const sample of samples) request.onSample?.(sample);
    return { samples, tokens, cachedTokens };
  }

  async #post(call: Call, onToken: SampleRequest["onToken"]): Promise<Reply> {
    return this.#servers.call(call, async (response, touch) => {
      const reader = new ReplyReader(onToken);
      if (response.headers.get("content-type")?.includes("text/event-stream") !== true) {
        reader.push(await response.text());
        return reader.finish();
      }
      for await (const event of eventsOf(touching(response.body, touch))) {
        if (event === "[DONE]") break;
        reader.push(event);
      }
      return reader.finish();
    });
  }

  /** Get the list of a server's models; returns the name to use. */
  async #chooseModel(server: Server, signal: AbortSignal | undefined): Promise<string> {
    const { setting, modelSetting } = this.#options;
    const read = async (response: Response) => (response.status === 404 ? null : await response.text());
    const listing = await this.#servers.call({ path: "/models", signal }, read, server);
    const models = listing === null ? [] : modelList(listing, server.url, setting);
    for (const { owned_by: owner } of models) this.#owners.add(owner);
    const names = models.map(({ id }) => id);
    const wanted = this.#model;
    if (wanted === "") {
      const [only] = names;
      if (only !== undefined && names.length === 1) return only;
      throw new UserError(
        `${server.url} has ${names.length === 0 ? "no list of models" : `the models ${names.join(", ")}`}. ` +
          `Name the one to use with ${modelSetting}.`,
      );
    }
    if (names.length === 0 || names.includes(wanted)) return wanted;
    const close = nearest(wanted, names, 1);
    throw new UserError(
      `${modelSetting} is ${wanted}, and ${server.url} has ${names.slice(0, 8).join(", ")}${names.length > 8 ? ", …" : ""}. ` +
        `Set it to ${close[0] ?? names[0]}${names.length > 1 ? " or another of these" : ""}.`,
    );
  }
}

/** Default values are not sent: some servers refuse fields that OpenAI does not have. */
function samplingBody(sampling: Sampling): Record<string, unknown> {
  const { topK = -1, repetitionPenalty = 1, minNewTokens = 0, minP = 0, stop = [], stopIds = [] } = sampling;
  return {
    max_tokens: sampling.maxNewTokens,
    temperature: sampling.temperature ?? 1,
    top_p: sampling.topP ?? 1,
    presence_penalty: sampling.presencePenalty,
    frequency_penalty: sampling.frequencyPenalty,
    logit_bias: sampling.logitBias,
    ...(topK > 0 ? { top_k: topK } : {}),
    ...(minP > 0 ? { min_p: minP } : {}),
    ...(repetitionPenalty === 1 ? {} : { repetition_penalty: repetitionPenalty }),
    ...(minNewTokens > 0 ? { min_tokens: minNewTokens } : {}),
    ...(stop.length > 0 ? { stop } : {}),
    ...(stopIds.length > 0 ? { stop_token_ids: stopIds } : {}),
    ...(sampling.ignoreEos === true ? { ignore_eos: true } : {}),
  };
}

/** Values that change nothing, for fields that a model's generation_config.json may set. */
const neutral = { top_k: -1, min_p: 0, repetition_penalty: 1 };

const Listing = z.object({ data: z.array(z.object({ id: z.string(), owned_by: z.string().catch("") })) });

function modelList(text: string, server: string, setting: string): z.infer<typeof Listing>["data"] {
  try {
    return Listing.parse(JSON.parse(text)).data;
  } catch (error) {
    throw new UserError(
      `${server}/models answers ${excerpt(text)}, which is not a list of models. Check ${setting}; the address of an ` +
        "OpenAI-compatible server usually ends in /v1.",
      { cause: error },
    );
  }
}

async function* touching(body: AsyncIterable<Uint8Array> | null, touch: () => void): AsyncGenerator<Uint8Array> {
  for await (const chunk of body ?? []) {
    touch();
    yield chunk;
  }
}
