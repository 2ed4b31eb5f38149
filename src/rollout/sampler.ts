/**
 * Continuous batching: requests come and go at any step, and each step runs what the scheduler plans.
 *
 * The sampler owns the requests and draws tokens; what to compute is decided by `plan.ts` and computed by the decoder.
 * What a request gets depends on its own prompt, settings and seed, not on what else runs (but for rounding, since a
 * product's order of summation depends on the number of rows).
 */

import type { Decodable } from "../text/stream.ts";
import { invariant, messageOf, UserError } from "../util/errors.ts";
import { Random } from "../util/random.ts";
import { checkLimits, checkRequest } from "./check-request.ts";
import type { Decoder, Read } from "./decoder.ts";
import { draw, needsLogits, scored, temperatureOf } from "./draw.ts";
import {
  type Action,
  emptyState,
  forget,
  isReadAloud,
  type Limits,
  plan,
  type RunRow,
  release,
  type Sequence,
  type State,
} from "./plan.ts";
import type {
  Completion,
  FinishReason,
  PromptToken,
  Sample,
  SampleRequest,
  SamplerLimits,
  SamplerStats,
  TokenLogprob,
} from "./request.ts";
import { type Heard, type TextStream, textStream } from "./text-stream.ts";

export type SamplerParts = {
  readonly decoder: Decoder;
  /** Needed for text and stop texts. */
  readonly tokenizer: Decodable | null;
  /** Tokens at which the model itself ends. */
  readonly eosIds: readonly number[];
  readonly maxLength: number;
  readonly limits: SamplerLimits;
  /** Runs work when nothing else uses the model. */
  readonly exclusive: <T>(work: () => Promise<T>) => Promise<T>;
};

/** A request as it is being served. */
type Job = {
  readonly request: SampleRequest;
  /** Token ids at which its samples end. */
  readonly ends: readonly number[];
  readonly sequences: readonly number[];
  readonly samples: (Sample | null)[];
  readonly promptLogprobs: (PromptToken | null)[];
  reused: number;
  left: number;
  readonly resolve: (completion: Completion) => void;
  readonly reject: (error: unknown) => void;
};

/** A sample as it grows; `sequence` is what the scheduler sees of it. */
type Growing = {
  readonly job: Job;
  readonly index: number;
  readonly sequence: Sequence & { readonly ids: number[] };
  readonly random: Random;
  readonly logprobs: number[];
  readonly top: (readonly TokenLogprob[])[];
  readonly stream: TextStream | null;
  text: string;
};

/** Sequences decoded together unless said otherwise: past this, products gain little by more rows. */
export const DEFAULT_SEQUENCES = 128;
const DEFAULT_BATCHED_TOKENS = 2048;

export class Sampler {
  readonly #parts: SamplerParts;
  readonly #limits: Limits;
  readonly #growing = new Map<number, Growing>();
  readonly #seeds = new Random(Math.floor(Math.random() * 2 ** 32), "requests without a seed");
  readonly #counts = { promptTokens: 0, reusedTokens: 0, generatedTokens: 0, finishedSamples: 0, preemptions: 0 };
  #state: State = emptyState();
  #nextSequence = 0;
  #nextRequest = 0;
  #isLooping = false;
  #closed: Error | null = null;

  constructor(parts: SamplerParts) {
    this.#parts = parts;
    const { decoder, limits } = parts;
    checkLimits(limits);
    this.#limits = {
      cacheTokens: decoder.cacheTokens,
      maxSequences: limits.maxSequences ?? DEFAULT_SEQUENCES,
      maxBatchedTokens: limits.maxBatchedTokens ?? DEFAULT_BATCHED_TOKENS,
      maxRunTokens: decoder.promptTokens,
      maxLength: Math.min(parts.maxLength, limits.maxLength ?? Infinity, decoder.cacheTokens),
      hasPrefixCache: limits.hasPrefixCache ?? true,
      regimeOf: (length) => decoder.regimeOf(length),
    };
  }

  /** The longest sequence, prompt included. */
  get maxLength(): number {
    return this.#limits.maxLength;
  }

  /** Sample; the promise settles when all `n` samples have ended. */
  async sample(request: SampleRequest): Promise<Completion> {
    if (this.#closed !== null) throw this.#closed;
    const { tokenizer, decoder } = this.#parts;
    checkRequest(request, {
      vocabSize: decoder.vocabSize,
      maxLength: this.maxLength,
      hasTokenizer: tokenizer !== null,
    });
    request.signal?.throwIfAborted();
    const { promise, resolve, reject } = Promise.withResolvers<Completion>();
    const job = this.#open(request, { resolve, reject });
    const abort = () => this.#drop(job, request.signal?.reason);
    request.signal?.addEventListener("abort", abort, { once: true });
    this.#wake();
    try {
      return await promise;
    } finally {
      request.signal?.removeEventListener("abort", abort);
    }
  }

  stats(): SamplerStats {
    const { running, waiting, slots } = this.#state;
    const cachedTokens = slots.reduce((sum, slot) => sum + (slot?.length ?? 0), 0);
    return {
      running: running.length,
      waiting: waiting.length,
      cachedTokens,
      cacheTokens: this.#limits.cacheTokens,
      ...this.#counts,
    };
  }

  /** The weights changed: what comes next is drawn from the new ones, over keys and values computed with them. */
  forget(): void {
    this.#state = forget(this.#state);
  }

  /** Refuse whoever still waits, and whoever comes. */
  close(reason: Error): void {
    this.#closed = reason;
    this.#refuse(reason);
  }

  #refuse(reason: Error): void {
    for (const job of new Set([...this.#growing.values()].map(({ job }) => job))) this.#drop(job, reason);
  }

  #open(request: SampleRequest, settle: Pick<Job, "resolve" | "reject">): Job {
    const prompt = Array.from(request.prompt);
    const n = request.n ?? 1;
    const seed = request.seed ?? this.#seeds.bits();
    const requestId = this.#nextRequest++;
    const sequences = Array.from({ length: n }, (_, index) => ({
      id: this.#nextSequence++,
      request: requestId,
      ids: [...prompt],
      promptLength: prompt.length,
      limit: Math.min(prompt.length + request.maxNewTokens, this.maxLength),
      readsPrompt: request.promptLogprobs !== undefined && index === 0,
    }));
    const own = request.ignoreEos ? [] : this.#parts.eosIds;
    const job: Job = {
      request,
      ends: [...own, ...(request.stopIds ?? [])],
      sequences: sequences.map(({ id }) => id),
      samples: sequences.map(() => null),
      promptLogprobs: [null],
      reused: 0,
      left: n,
      ...settle,
    };
    const { tokenizer } = this.#parts;
    const isText = request.wantsText || (request.stop?.length ?? 0) > 0;
    sequences.forEach((sequence, index) => {
      const stream = isText && tokenizer !== null ? textStream(tokenizer, request.stop) : null;
      const random = new Random(seed, "sample", index);
      this.#growing.set(sequence.id, { job, index, sequence, random, logprobs: [], top: [], stream, text: "" });
    });
    this.#counts.promptTokens += prompt.length;
    this.#state = { ...this.#state, waiting: [...this.#state.waiting, ...sequences] };
    return job;
  }

  #wake(): void {
    if (this.#isLooping) return;
    this.#isLooping = true;
    void this.#loop();
  }

  async #loop(): Promise<void> {
    await null; // requests made in one go begin together
    while (this.#growing.size > 0) {
      try {
        await this.#parts.exclusive(() => this.#step());
      } catch (error) {
        // Not one request's fault: all that wait are told, and later ones find an empty sampler.
        this.#refuse(error instanceof Error ? error : new Error(messageOf(error)));
        this.#state = emptyState();
      }
    }
    this.#isLooping = false; // in the same moment, so that whoever comes next wakes it
  }

  async #step(): Promise<void> {
    if (this.#growing.size === 0) return; // all were cancelled while others used the model
    const { actions, state, preempted, reused } = plan(this.#state, this.#limits);
    invariant(
      actions.some((action) => action.do === "run"),
      "a step goes on with somebody's tokens",
    );
    this.#state = state;
    this.#counts.preemptions += preempted;
    for (const [id, length] of reused) {
      const growing = this.#growing.get(id);
      if (growing?.index !== 0 || growing.logprobs.length > 0) continue; // a prompt is counted once
      growing.job.reused = length;
      this.#counts.reusedTokens += length;
    }
    for (const action of actions) await this.#carryOut(action);
  }

  async #carryOut(action: Action): Promise<void> {
    const { decoder } = this.#parts;
    switch (action.do) {
      case "layOut":
        return decoder.layOut(action.capacity, action.lengths);
      case "copy":
        return decoder.copy(action.from, action.to, action.length);
      case "swap":
        return decoder.swap(action.a, action.b, action.length);
      case "run":
        return this.#run(action.slot, action.rows);
      default:
        return action satisfies never;
    }
  }

  async #run(slot: number, rows: readonly RunRow[]): Promise<void> {
    const reads: (Read & { readonly use: (probs: Float32Array, logits: Float32Array | null) => void })[] = [];
    let wantsLogits = false;
    rows.forEach(({ sequence, from, to, followers }, row) => {
      const growing = this.#growing.get(sequence.id);
      if (growing === undefined) return; // cancelled in the meantime
      if (isReadAloud(sequence)) {
        for (let at = from; at < Math.min(to, sequence.promptLength - 1); at++) {
          const use = (probs: Float32Array) => this.#readPrompt(growing, at + 1, probs);
          reads.push({ row, at: at - from, temperature: 1, use });
        }
      }
      if (to < sequence.ids.length) return;
      const sampling = growing.job.request;
      wantsLogits ||= needsLogits(sampling, bannedFor(growing));
      const use = (probs: Float32Array, logits: Float32Array | null) => {
        for (const { id } of [sequence, ...followers]) this.#grow(id, probs, logits);
      };
      reads.push({ row, at: to - from - 1, temperature: temperatureOf(sampling), use });
    });
    const decodeRows = rows.map(({ sequence, from, to }) => ({
      ids: sequence.ids.slice(from, to),
      past: from,
      length: sequence.ids.length,
    }));
    const { probs, logits } = await this.#parts.decoder.run({ slot, rows: decodeRows, reads, wantsLogits });
    const width = this.#parts.decoder.vocabSize;
    reads.forEach(({ use }, i) => {
      const rowOf = (values: Float32Array) => values.subarray(i * width, (i + 1) * width);
      use(rowOf(probs), logits && rowOf(logits));
    });
  }

  #readPrompt({ job, sequence }: Growing, place: number, probs: Float32Array): void {
    job.promptLogprobs[place] = scored(probs, sequence.ids[place]!, job.request.promptLogprobs ?? 0);
  }

  /** One token more for a sample, and its end if that was the last. */
  #grow(id: number, probs: Float32Array, logits: Float32Array | null): void {
    const growing = this.#growing.get(id);
    if (growing === undefined) return; // cancelled while it was computed
    const { job, sequence, random } = growing;
    const { request } = job;
    const { ids, promptLength } = sequence;
    const context = { sampling: request, ids, promptLength, banned: bannedFor(growing) };
    const drawn = draw(probs, logits, context, () => random.uniform());
    if (Number.isNaN(drawn.logprob)) {
      this.#drop(job, new UserError(NOT_NUMBERS));
      return;
    }
    ids.push(drawn.id);
    growing.logprobs.push(drawn.logprob);
    growing.top.push(drawn.top);
    this.#counts.generatedTokens++;

    const isEnd = job.ends.includes(drawn.id);
    const isFull = ids.length >= sequence.limit;
    const { text, stop } = hear(growing, drawn.id, { isEnd, isFull });
    growing.text += text;
    if (!this.#tell(growing, () => request.onToken?.({ ...drawn, index: growing.index, text }))) return;
    if (isEnd) {
      const isOwn = !request.ignoreEos && this.#parts.eosIds.includes(drawn.id) && !request.stopIds?.includes(drawn.id);
      this.#end(growing, "stop", isOwn ? null : drawn.id);
    } else if (stop !== null) this.#end(growing, "stop", stop);
    else if (isFull) this.#end(growing, "length", null);
  }

  #end(growing: Growing, finishReason: FinishReason, stopReason: number | string | null): void {
    const { job, index, sequence, logprobs, top, text } = growing;
    const ids = sequence.ids.slice(sequence.promptLength);
    const sample: Sample = { index, ids, logprobs, top, text, finishReason, stopReason };
    if (!this.#tell(growing, () => job.request.onSample?.(sample))) return;
    job.samples[index] = sample;
    job.left--;
    this.#counts.finishedSamples++;
    this.#growing.delete(sequence.id);
    this.#state = release(this.#state, sequence.id, this.#limits.hasPrefixCache);
    if (job.left > 0) return;
    const samples = job.samples.filter((done) => done !== null);
    const prompt = job.request.promptLogprobs === undefined ? {} : { promptLogprobs: job.promptLogprobs };
    job.resolve({ samples, cachedTokens: job.reused, ...prompt });
  }

  /** Call back; false if that ended the request. A callback that throws ends its own request and no other. */
  #tell({ job, sequence }: Growing, call: () => void): boolean {
    try {
      call();
    } catch (error) {
      this.#drop(job, error);
    }
    return this.#growing.has(sequence.id);
  }

  /** Forget a request at once. */
  #drop(job: Job, reason: unknown): void {
    for (const id of job.sequences) {
      if (this.#growing.delete(id)) this.#state = release(this.#state, id, false);
    }
    job.reject(reason);
  }
}

const NOT_NUMBERS =
  "The model's probabilities are not numbers (NaN): its weights are NaN or infinite, or a bias is too large. " +
  "Load an earlier checkpoint, and train with a lower learning rate.";

const drawnBy = ({ sequence }: Growing): number => sequence.ids.length - sequence.promptLength;

/** Tokens that would end a sample too early. */
function bannedFor(growing: Growing): readonly number[] {
  const { ends, request } = growing.job;
  return drawnBy(growing) < (request.minNewTokens ?? 0) ? ends : [];
}

/** The text that became certain with a token that was just drawn, and the stop text that it completes. */
function hear(growing: Growing, id: number, { isEnd, isFull }: { isEnd: boolean; isFull: boolean }): Heard {
  const { stream, job } = growing;
  if (stream === null) return { text: "", stop: null };
  const canStop = drawnBy(growing) >= (job.request.minNewTokens ?? 0);
  const heard = isEnd ? { text: "", stop: null } : stream.push(id, canStop);
  if (heard.stop !== null || !(isEnd || isFull)) return heard;
  const rest = stream.end(canStop);
  return { text: heard.text + rest.text, stop: rest.stop };
}
