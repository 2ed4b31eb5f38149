/**
 * The requests that a sampler is serving, and their samples as they grow. Both engines' samplers use it.
 *
 * A sampler decides what to compute and gives each sampled token to `append`. Everything that follows from a token
 * happens here: text and stop texts, callbacks, the end of a sample, the end of its request. Seeds give the same random
 * numbers on every engine. A request that is dropped is forgotten at once; tokens for its samples are ignored.
 */
import type { GrammarState } from "../text/grammar/grammar.ts";
import type { Decodable } from "../text/stream.ts";
import { UserError } from "../util/errors.ts";
import { Random } from "../util/random.ts";
import { checkRequest } from "./check-request.ts";
import type { Allowed } from "./draw.ts";
import type { Completion, PromptToken, Sample, SampleRequest, TokenLogprob } from "./request.ts";
import type { Sequence } from "./scheduler-state.ts";
import { type StreamedText, type TextStream, textStream } from "./text-stream.ts";

/** A request while some of its samples are unfinished. */
export type ActiveRequest = {
  readonly request: SampleRequest;
  /** Token ids that end its samples. */
  readonly stopIds: readonly number[];
  readonly samples: readonly ActiveSample[];
  readonly finished: (Sample | null)[];
  /** One entry per prompt token, null for the first; a sampler fills it if the request asks for it. */
  readonly promptLogprobs: (PromptToken | null)[];
  /** Prompt tokens that were found in a cache. */
  cachedTokens: number;
  readonly resolve: (completion: Completion) => void;
  readonly reject: (error: unknown) => void;
};

/** A sample as it grows. `sequence` holds its tokens, prompt included. */
export type ActiveSample = {
  readonly active: ActiveRequest;
  readonly index: number;
  readonly sequence: Sequence & { readonly ids: number[] };
  readonly random: Random;
  readonly logprobs: number[];
  /** Filled with a grammar only. */
  readonly policyLogprobs: number[];
  readonly top: (readonly TokenLogprob[])[];
  readonly stream: TextStream | null;
  text: string;
  /** Where the sample is in the request's grammar; null without one. */
  grammar: GrammarState | null;
};

/** A token with its log-prob, the one without a grammar if there is one, and the likeliest tokens at its position. */
export type NextToken = TokenLogprob & { readonly top: readonly TokenLogprob[]; readonly policyLogprob?: number };

export type ActiveRequestsOptions = {
  readonly vocabSize: number;
  /** Tokens of prompt and sample together. */
  readonly maxLength: number;
  /** Tokens with which the model itself ends a sample. */
  readonly eosIds: readonly number[];
  /** Needed for text and stop texts. */
  readonly tokenizer: Decodable | null;
  /** Called when a sample needs no more tokens: it is finished, or its request was dropped. */
  readonly onRelease: (sample: ActiveSample, isFinished: boolean) => void;
};

export class ActiveRequests {
  readonly counts: { promptTokens: number; generatedTokens: number; finishedSamples: number } = {
    promptTokens: 0,
    generatedTokens: 0,
    finishedSamples: 0,
  };
  readonly #options: ActiveRequestsOptions;
  readonly #samples = new Map<number, ActiveSample>();
  readonly #seeds = new Random(Math.floor(Math.random() * 2 ** 32), "requests without a seed");
  #nextSequence = 0;
  #nextRequest = 0;
  #closed: Error | null = null;

  constructor(options: ActiveRequestsOptions) {
    this.#options = options;
  }

  get isEmpty(): boolean {
    return this.#samples.size === 0;
  }

  /** The sample of a sequence; undefined if it has ended or was dropped. */
  get(sequenceId: number): ActiveSample | undefined {
    return this.#samples.get(sequenceId);
  }

  /** Check a request and give it to `start`. The promise settles when all `n` samples have ended. */
  async serve(request: SampleRequest, start: (active: ActiveRequest) => void): Promise<Completion> {
    if (this.#closed !== null) throw this.#closed;
    const { vocabSize, maxLength, tokenizer } = this.#options;
    checkRequest(request, { vocabSize, maxLength, hasTokenizer: tokenizer !== null });
    request.signal?.throwIfAborted();
    const { promise, resolve, reject } = Promise.withResolvers<Completion>();
    const active = this.#open(request, { resolve, reject });
    const abort = () => this.drop(active, request.signal?.reason);
    request.signal?.addEventListener("abort", abort, { once: true });
    start(active);
    try {
      return await promise;
    } finally {
      request.signal?.removeEventListener("abort", abort);
    }
  }

  /** One token more for a sample; ends the sample if it was the last one. */
  append(sample: ActiveSample, token: NextToken): void {
    const { active, sequence } = sample;
    const { request } = active;
    if (Number.isNaN(token.logprob)) {
      this.drop(active, new UserError(NOT_NUMBERS));
      return;
    }
    sequence.ids.push(token.id);
    sample.logprobs.push(token.logprob);
    sample.top.push(token.top);
    if (token.policyLogprob !== undefined) sample.policyLogprobs.push(token.policyLogprob);
    this.counts.generatedTokens++;

    const isStopId = active.stopIds.includes(token.id);
    if (!isStopId) sample.grammar = sample.grammar?.after(token.id) ?? null;
    const isFull = sequence.ids.length >= sequence.limit;
    const { text, stop } = decode(sample, token.id, { isStopId, isFull });
    sample.text += text;
    if (!this.#callBack(sample, () => request.onToken?.({ ...token, index: sample.index, text }))) return;
    if (isStopId) {
      const isEos = !request.ignoreEos && this.#options.eosIds.includes(token.id);
      const isOwnEnd = isEos && !request.stopIds?.includes(token.id);
      this.#end(sample, { finishReason: "stop", stopReason: isOwnEnd ? null : token.id });
    } else if (stop !== null) this.#end(sample, { finishReason: "stop", stopReason: stop });
    else if (active.stopIds.length === 0 && isAtEnd(sample))
      this.#end(sample, { finishReason: "stop", stopReason: null });
    else if (isFull) this.#end(sample, { finishReason: "length", stopReason: null });
  }

  /** Reject a request and forget it at once. */
  drop(active: ActiveRequest, reason: unknown): void {
    for (const sample of active.samples) {
      if (this.#samples.delete(sample.sequence.id)) this.#options.onRelease(sample, false);
    }
    active.reject(reason);
  }

  /** Reject all requests. */
  dropAll(reason: Error): void {
    for (const active of new Set([...this.#samples.values()].map((sample) => sample.active))) this.drop(active, reason);
  }

  /** Reject all requests, and every later one. */
  close(reason: Error): void {
    this.#closed = reason;
    this.dropAll(reason);
  }

  #open(request: SampleRequest, settle: Pick<ActiveRequest, "resolve" | "reject">): ActiveRequest {
    const { eosIds, tokenizer, maxLength } = this.#options;
    const prompt = Array.from(request.prompt);
    const n = request.n ?? 1;
    const seed = request.seed ?? this.#seeds.bits();
    const requestId = this.#nextRequest++;
    const isText = request.wantsText || (request.stop?.length ?? 0) > 0;
    const samples: ActiveSample[] = [];
    const active: ActiveRequest = {
      request,
      stopIds: [...(request.ignoreEos ? [] : eosIds), ...(request.stopIds ?? [])],
      samples,
      finished: new Array<Sample | null>(n).fill(null),
      promptLogprobs: [null],
      cachedTokens: 0,
      resolve: settle.resolve,
      reject: settle.reject,
    };
    for (let index = 0; index < n; index++) {
      const sequence = {
        id: this.#nextSequence++,
        request: requestId,
        ids: [...prompt],
        promptLength: prompt.length,
        limit: Math.min(prompt.length + request.maxNewTokens, maxLength),
        wantsPromptLogprobs: request.promptLogprobs !== undefined && index === 0,
      };
      const stream = isText && tokenizer !== null ? textStream(tokenizer, request.stop) : null;
      const random = new Random(seed, "sample", index);
      const sample: ActiveSample = {
        active,
        index,
        sequence,
        random,
        logprobs: [],
        policyLogprobs: [],
        top: [],
        stream,
        text: "",
        grammar: request.grammar ?? null,
      };
      samples.push(sample);
      this.#samples.set(sequence.id, sample);
    }
    this.counts.promptTokens += prompt.length;
    return active;
  }

  #end(ending: ActiveSample, { finishReason, stopReason }: Pick<Sample, "finishReason" | "stopReason">): void {
    const { active, index, sequence, logprobs, policyLogprobs, top, text } = ending;
    const { request, finished } = active;
    const ids = sequence.ids.slice(sequence.promptLength);
    const ofPolicy = request.grammar === undefined ? {} : { policyLogprobs };
    const sample: Sample = { index, ids, logprobs, ...ofPolicy, top, text, finishReason, stopReason };
    if (!this.#callBack(ending, () => request.onSample?.(sample))) return;
    finished[index] = sample;
    this.counts.finishedSamples++;
    this.#samples.delete(sequence.id);
    this.#options.onRelease(ending, true);
    const samples = finished.filter((one) => one !== null);
    if (samples.length < finished.length) return;
    const prompt = request.promptLogprobs === undefined ? {} : { promptLogprobs: active.promptLogprobs };
    active.resolve({ samples, cachedTokens: active.cachedTokens, ...prompt });
  }

  /** Run a callback; false if that ended the request. A callback that throws ends its own request and no other. */
  #callBack({ active, sequence }: ActiveSample, call: () => void): boolean {
    try {
      call();
    } catch (error) {
      this.drop(active, error);
    }
    return this.#samples.has(sequence.id);
  }
}

const NOT_NUMBERS =
  "The model's probabilities are not numbers (NaN): its weights are NaN or infinite, or a bias is too large. " +
  "Load an earlier checkpoint, and train with a lower learning rate.";

/**
 * Tokens that must not be sampled next, because they would end the sample before `minNewTokens`. A text that is complete
 * by its grammar ends nevertheless (as in vLLM): nothing else may follow.
 */
export function bannedIds(sample: ActiveSample): readonly number[] {
  const { stopIds, request } = sample.active;
  return newTokens(sample) < (request.minNewTokens ?? 0) && !isAtEnd(sample) ? stopIds : [];
}

/** The tokens that the sample's grammar allows next; undefined without one. */
export function allowedTokens({ grammar, active }: ActiveSample): Allowed | undefined {
  if (grammar === null) return undefined;
  return { tokens: grammar.allowed(), ends: grammar.isComplete ? active.stopIds : [] };
}

/** The grammar allows no further token. */
function isAtEnd({ grammar }: ActiveSample): boolean {
  return grammar?.isComplete === true && grammar.allowed().count === 0;
}

const newTokens = ({ sequence }: ActiveSample): number => sequence.ids.length - sequence.promptLength;

/** The text that became certain with the last token, and the stop text that it completes. */
function decode(sample: ActiveSample, id: number, { isStopId, isFull }: { isStopId: boolean; isFull: boolean }) {
  const { stream, active } = sample;
  const none: StreamedText = { text: "", stop: null };
  if (stream === null) return none;
  const canStop = newTokens(sample) >= (active.request.minNewTokens ?? 0);
  const pushed = isStopId ? none : stream.push(id, canStop);
  if (pushed.stop !== null || !(isStopId || isFull)) return pushed;
  const rest = stream.end(canStop);
  return { text: pushed.text + rest.text, stop: rest.stop };
}
