/**
 * The answer of an OpenAI-compatible server, assembled from its pieces: server-sent events or one JSON text, of
 * `/completions` or of `/chat/completions`.
 *
 * It has token ids and log-probs if the server returns them. A stream that ends before all samples are finished is an
 * error in `finish`.
 */
import { z } from "zod";
import type { Sample, SampledToken } from "./request.ts";

/** An error message of the server inside an answer with status 200. */
export class StreamedError extends Error {
  override readonly name = "StreamedError";
  readonly status: number;
  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}

/** A text that is not the answer of an OpenAI-compatible server. */
export class UnexpectedReply extends Error {
  override readonly name = "UnexpectedReply";
}

/** The connection ended too early. */
export class IncompleteReply extends Error {
  override readonly name = "IncompleteReply";
}

const Text = z.object({ content: z.string().nullish() });
const Logprobs = z.object({
  token_logprobs: z.array(z.number().nullable()).nullish(), // of /completions
  content: z.array(z.object({ logprob: z.number() })).nullish(), // of /chat/completions
});
const Choice = z.object({
  index: z.int().min(0).nullish(),
  text: z.string().nullish(),
  delta: Text.nullish(),
  message: Text.nullish(),
  token_ids: z.array(z.int()).nullish(),
  logprobs: Logprobs.nullish(),
  finish_reason: z.string().nullish(),
  stop_reason: z.union([z.string(), z.number()]).nullish(),
});
type Choice = z.infer<typeof Choice>;
const Piece = z.object({
  choices: z.array(Choice),
  usage: z
    .object({
      completion_tokens: z.int().nullish(),
      prompt_tokens_details: z.object({ cached_tokens: z.int().nullish() }).nullish(),
    })
    .nullish(),
});
const ErrorBody = z.object({ error: z.union([z.string(), z.looseObject({ message: z.string() })]) });

/**
 * The message of an error body: `{"error": {"message", …}}`, `{"error": "…"}`, or the form without `error` of vLLM and
 * SGLang; null for any other text.
 */
export function errorOf(text: string): { readonly message: string; readonly code: unknown } | null {
  let body: unknown;
  try {
    body = JSON.parse(text);
  } catch {
    return null;
  }
  const parsed = ErrorBody.safeParse(body);
  if (parsed.success) {
    const { error } = parsed.data;
    return typeof error === "string" ? { message: error, code: null } : { message: error.message, code: error.code };
  }
  const bare = z.object({ message: z.string(), code: z.unknown().optional() }).safeParse(body);
  return bare.success ? { message: bare.data.message, code: bare.data.code } : null;
}

type Draft = {
  ids: number[];
  logprobs: number[];
  text: string;
  finish: string | null;
  stopReason: number | string | null;
};

/** A complete answer. */
export type Reply = {
  readonly samples: readonly Sample[];
  /** The number of sampled tokens, by the server's count or by ours. */
  readonly tokens: number;
  readonly cachedTokens: number;
};

/** Reads an answer piece by piece. */
export class ReplyReader {
  readonly #onToken: ((token: SampledToken) => void) | undefined;
  readonly #drafts: Draft[] = [];
  #seen = 0;
  #counted: number | null = null;
  #cachedTokens = 0;

  constructor(onToken?: (token: SampledToken) => void) {
    this.#onToken = onToken;
  }

  /** One JSON text: an event of the stream, or the whole answer. */
  push(json: string): void {
    let value: unknown;
    try {
      value = JSON.parse(json);
    } catch {
      throw new UnexpectedReply(excerpt(json));
    }
    const parsed = Piece.safeParse(value);
    if (!parsed.success) {
      const error = errorOf(json);
      if (error === null) throw new UnexpectedReply(excerpt(json));
      throw new StreamedError(typeof error.code === "number" ? error.code : 500, error.message);
    }
    for (const choice of parsed.data.choices) this.#append(choice);
    this.#counted = parsed.data.usage?.completion_tokens ?? this.#counted;
    this.#cachedTokens = parsed.data.usage?.prompt_tokens_details?.cached_tokens ?? this.#cachedTokens;
  }

  /** The samples, once the answer has ended. */
  finish(): Reply {
    const { length } = this.#drafts;
    if (length === 0) throw new UnexpectedReply("an answer without choices");
    const samples = this.#drafts.map((draft, index): Sample => {
      if (draft.finish === null) throw new IncompleteReply(`sample ${index + 1} of ${length} is not finished`);
      const { ids, logprobs, text, stopReason } = draft;
      return {
        index,
        ids,
        logprobs,
        top: [],
        text,
        finishReason: draft.finish === "length" ? "length" : "stop",
        stopReason,
      };
    });
    return { samples, tokens: this.#counted ?? this.#seen, cachedTokens: this.#cachedTokens };
  }

  #append(choice: Choice): void {
    const index = choice.index ?? 0;
    while (this.#drafts.length <= index)
      this.#drafts.push({ ids: [], logprobs: [], text: "", finish: null, stopReason: null });
    const draft = this.#drafts[index]!;
    const text = choice.text ?? choice.delta?.content ?? choice.message?.content ?? "";
    const ids = choice.token_ids ?? [];
    const logprobs = logprobsOf(choice);
    draft.text += text;
    draft.ids.push(...ids);
    draft.logprobs.push(...logprobs);
    draft.finish = choice.finish_reason ?? draft.finish;
    draft.stopReason = choice.stop_reason ?? draft.stopReason;
    // A server that returns no ids still sends about one piece per token.
    const count = Math.max(ids.length, logprobs.length, text === "" ? 0 : 1);
    this.#seen += count;
    for (let i = 0; i < count; i++) {
      const shown = i === count - 1 ? text : "";
      this.#onToken?.({ index, id: ids[i] ?? -1, logprob: logprobs[i] ?? Number.NaN, top: [], text: shown });
    }
  }
}

function logprobsOf({ logprobs }: Choice): number[] {
  const list = logprobs?.token_logprobs ?? logprobs?.content?.map(({ logprob }) => logprob) ?? [];
  return list.map((value) => value ?? Number.NaN);
}

/** The beginning of an unexpected text, for a message. */
export function excerpt(text: string): string {
  const line = text.replace(/\s+/g, " ").trim();
  return line === "" ? "an empty answer" : JSON.stringify(line.length <= 80 ? line : `${line.slice(0, 77)}…`);
}

/** The data of the server-sent events in a stream of bytes. */
export async function* eventsOf(bytes: AsyncIterable<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  let pending = "";
  let data: string[] = [];
  const isData = (line: string) => line.startsWith("data:");
  for await (const chunk of bytes) {
    pending += decoder.decode(chunk, { stream: true });
    const lines = pending.split(/\r\n|\n|\r(?!$)/); // a \r at the very end may be half of \r\n
    pending = lines.pop() ?? "";
    for (const line of lines) {
      if (isData(line)) data.push(line.slice(5).replace(/^ /, ""));
      else if (line === "" && data.length > 0) {
        yield data.join("\n");
        data = [];
      }
    }
  }
  const last = pending.replace(/\r$/, "");
  if (isData(last)) data.push(last.slice(5).replace(/^ /, ""));
  if (data.length > 0) yield data.join("\n");
}
