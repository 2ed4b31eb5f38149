/**
 * Sampling by the workers themselves, round by round: they draw some tokens for every sequence they have, and between
 * rounds requests come, end and are cancelled, and whatever else is asked of the model takes its turn.
 *
 * A request goes to the worker with the fewest sequences and stays there. Random numbers are drawn here, from the same
 * streams as on the embedded engine, so that a seed means the same tokens on both. Text and stop texts are the
 * controller's: what a worker drew past a stop text is dropped.
 */
import * as z from "zod";
import { checkLimits, checkRequest } from "../../rollout/check-request.ts";
import type {
  Completion,
  FinishReason,
  PromptToken,
  Sample,
  SampleRequest,
  SamplerLimits,
  SamplerStats,
  TokenLogprob,
} from "../../rollout/request.ts";
import { DEFAULT_SEQUENCES } from "../../rollout/sampler.ts";
import { type TextStream, textStream } from "../../rollout/text-stream.ts";
import type { Decodable } from "../../text/stream.ts";
import { messageOf, UserError } from "../../util/errors.ts";
import { Random } from "../../util/random.ts";

/** What a round is asked of one worker, without the model it is asked of. */
export type RoundMessage = {
  /** All workers are done: what sampling holds can be given back. */
  readonly isIdle: boolean;
  readonly steps: number;
  readonly keys: Int32Array;
  readonly uniforms: Float64Array;
  readonly add: readonly object[];
  readonly maxBatchedTokens: number;
  readonly regimeEnd: number | null;
};

/** What a worker may keep of its sequences, in numbers, and what it keeps of each token and of each sequence. */
export type CacheBudget = { readonly numbers: number; readonly perToken: number; readonly perRow: number };

export type RaySamplerParts = {
  readonly workers: number;
  readonly vocabSize: number;
  readonly maxLength: number;
  readonly cache: CacheBudget;
  /** Sequences longer than this are rotated differently; null where there is no such length. */
  readonly regimeEnd: number | null;
  readonly eosIds: readonly number[];
  readonly tokenizer: Decodable | null;
  readonly limits: SamplerLimits;
  /** Run a round, when nothing else uses the model. */
  readonly round: (messages: readonly RoundMessage[]) => Promise<Readonly<Record<string, unknown>>[]>;
};

type Job = {
  readonly request: SampleRequest;
  readonly id: number;
  readonly ends: readonly number[];
  readonly growing: readonly Growing[];
  readonly samples: (Sample | null)[];
  promptLogprobs: (PromptToken | null)[];
  left: number;
  readonly resolve: (completion: Completion) => void;
  readonly reject: (error: unknown) => void;
};

/** A sample as it grows. */
type Growing = {
  readonly key: number;
  readonly index: number;
  readonly limit: number;
  readonly random: Random;
  readonly stream: TextStream | null;
  readonly ids: number[];
  readonly logprobs: number[];
  readonly top: (readonly TokenLogprob[])[];
  text: string;
  isDone: boolean;
};

type Live = { readonly job: Job; readonly growing: Growing };

/** Tokens of a round: a call costs milliseconds, and a stop text is noticed at its end. */
const ROUND_TOKENS = 8;
const DEFAULT_BATCHED_TOKENS = 8192;

const likely = z.array(z.tuple([z.number(), z.number()]));
const roundAnswer = z.object({
  counts: z.instanceof(Int32Array),
  ids: z.instanceof(Int32Array),
  logprobs: z.instanceof(Float64Array),
  top: z.array(likely),
  prompts: z.array(z.array(z.tuple([z.number(), z.number(), likely]))),
});
type RoundAnswer = z.infer<typeof roundAnswer>;

export class RaySampler {
  readonly #parts: RaySamplerParts;
  readonly #waiting: Job[] = [];
  /** What each worker has, by rank. */
  readonly #placed: Live[][];
  /** What of it the worker does not know yet. */
  readonly #unsent = new Set<number>();
  readonly #seeds = new Random(Math.floor(Math.random() * 2 ** 32), "requests without a seed");
  readonly #counts = { promptTokens: 0, generatedTokens: 0, finishedSamples: 0 };
  #nextKey = 0;
  #nextJob = 0;
  #isLooping = false;
  #closed: Error | null = null;

  constructor(parts: RaySamplerParts) {
    checkLimits(parts.limits);
    this.#parts = parts;
    this.#placed = Array.from({ length: parts.workers }, () => []);
  }

  /** Sample; the promise settles when all `n` samples have ended. */
  async sample(request: SampleRequest): Promise<Completion> {
    if (this.#closed !== null) throw this.#closed;
    const { vocabSize, maxLength, tokenizer } = this.#parts;
    checkRequest(request, { vocabSize, maxLength, hasTokenizer: tokenizer !== null });
    request.signal?.throwIfAborted();
    const { promise, resolve, reject } = Promise.withResolvers<Completion>();
    const job = this.#open(request, { resolve, reject });
    this.#waiting.push(job);
    this.#counts.promptTokens += request.prompt.length;
    const abort = () => this.#drop(job, request.signal?.reason);
    request.signal?.addEventListener("abort", abort, { once: true });
    if (!this.#isLooping) void this.#loop();
    try {
      return await promise;
    } finally {
      request.signal?.removeEventListener("abort", abort);
    }
  }

  stats(): SamplerStats {
    const live = this.#placed.flat();
    const lengthOf = ({ job, growing }: Live) => job.request.prompt.length + growing.ids.length;
    const { cache, workers } = this.#parts;
    return {
      running: live.length,
      waiting: this.#waiting.reduce((sum, job) => sum + job.left, 0),
      cachedTokens: live.reduce((sum, one) => sum + lengthOf(one), 0),
      cacheTokens: cache.perToken === 0 ? 0 : Math.floor(cache.numbers / cache.perToken) * workers,
      ...this.#counts,
      reusedTokens: 0,
      preemptions: 0,
    };
  }

  /** Refuse whoever still waits, and whoever comes. */
  close(reason: Error): void {
    this.#closed = reason;
    this.#refuse(reason);
  }

  #refuse(reason: Error): void {
    for (const job of new Set([...this.#waiting, ...this.#placed.flat().map(({ job }) => job)]))
      this.#drop(job, reason);
  }

  #open(request: SampleRequest, settle: Pick<Job, "resolve" | "reject">): Job {
    const { tokenizer, eosIds, maxLength } = this.#parts;
    const n = request.n ?? 1;
    const seed = request.seed ?? this.#seeds.bits();
    const isText = request.wantsText || (request.stop?.length ?? 0) > 0;
    const growing = Array.from(
      { length: n },
      (_, index): Growing => ({
        key: this.#nextKey++,
        index,
        random: new Random(seed, "sample", index),
        limit: Math.min(request.prompt.length + request.maxNewTokens, maxLength),
        stream: isText && tokenizer !== null ? textStream(tokenizer, request.stop) : null,
        ids: [],
        logprobs: [],
        top: [],
        text: "",
        isDone: false,
      }),
    );
    return {
      request,
      id: this.#nextJob++,
      growing,
      left: n,
      promptLogprobs: [null],
      ends: [...(request.ignoreEos ? [] : eosIds), ...(request.stopIds ?? [])],
      samples: growing.map(() => null),
      ...settle,
    };
  }

  async #loop(): Promise<void> {
    this.#isLooping = true;
    await null; // requests made in one go begin together
    let isIdle = true;
    while (this.#waiting.length > 0 || this.#placed.some((live) => live.length > 0) || !isIdle) {
      this.#admit();
      isIdle = this.#placed.every((live) => live.length === 0);
      try {
        await this.#round(); // one more when all is done, so that the workers let go of what they keep
      } catch (error) {
        // Not one request's fault: all that wait are told, and later ones find an empty sampler.
        this.#refuse(error instanceof Error ? error : new Error(messageOf(error)));
        break;
      }
    }
    this.#isLooping = false;
  }

  /** Give those who wait to the workers with the fewest sequences, first come first served. */
  #admit(): void {
    const { limits, cache } = this.#parts;
    const most = limits.maxSequences ?? DEFAULT_SEQUENCES;
    for (let job = this.#waiting[0]; job !== undefined; job = this.#waiting[0]) {
      const least = this.#placed.reduce((a, b) => (b.length < a.length ? b : a));
      const numbers = [...least.map(({ growing }) => growing), ...job.growing].reduce(
        (sum, { limit }) => sum + cache.perRow + limit * cache.perToken,
        0,
      );
      const fits = least.length + job.growing.length <= most && numbers <= cache.numbers;
      if (!fits && least.length > 0) return; // one that never fits runs alone
      for (const growing of job.growing) {
        least.push({ job, growing });
        this.#unsent.add(growing.key);
      }
      this.#waiting.shift();
    }
  }

  async #round(): Promise<void> {
    const { limits, regimeEnd } = this.#parts;
    const maxBatchedTokens = limits.maxBatchedTokens ?? DEFAULT_BATCHED_TOKENS;
    const isIdle = this.#placed.every((live) => live.length === 0);
    const sent = this.#placed.map((live) => {
      const fresh = live.filter(({ growing }) => this.#unsent.delete(growing.key));
      const uniforms = live.flatMap(({ growing: { random } }) =>
        Array.from({ length: ROUND_TOKENS }, () => random.uniform()),
      );
      const message: RoundMessage = {
        isIdle,
        steps: ROUND_TOKENS,
        regimeEnd,
        maxBatchedTokens,
        add: fresh.map(newSequence),
        keys: Int32Array.from(live, ({ growing }) => growing.key),
        uniforms: Float64Array.from(uniforms),
      };
      return { live, fresh, message };
    });
    const answers = await this.#parts.round(sent.map(({ message }) => message));
    if (isIdle) return;
    sent.forEach(({ live, fresh }, rank) => {
      const answer = roundAnswer.parse(answers[rank]);
      tellPrompts(fresh, answer);
      this.#hear(live, answer);
    });
    for (const [rank, live] of this.#placed.entries())
      this.#placed[rank] = live.filter(({ growing }) => !growing.isDone);
  }

  /** Take up what one worker drew. */
  #hear(live: readonly Live[], { counts, ids, logprobs, top }: RoundAnswer): void {
    let at = 0;
    live.forEach((one, i) => {
      const end = at + counts[i]!;
      for (; at < end && !one.growing.isDone; at++) {
        const likeliest = top[at]!.map(([id, logprob]) => ({ id, logprob }));
        this.#grow(one, { id: ids[at]!, logprob: logprobs[at]!, top: likeliest });
      }
      at = end;
    });
  }

  /** One token more for a sample, and its end if that was the last. */
  #grow({ job, growing }: Live, drawn: TokenLogprob & { readonly top: readonly TokenLogprob[] }): void {
    const { request, ends } = job;
    if (Number.isNaN(drawn.logprob)) {
      this.#drop(job, new UserError(NOT_NUMBERS));
      return;
    }
    growing.ids.push(drawn.id);
    growing.logprobs.push(drawn.logprob);
    growing.top.push(drawn.top);
    this.#counts.generatedTokens++;
    const isEnd = ends.includes(drawn.id);
    const isFull = request.prompt.length + growing.ids.length >= growing.limit;
    const { text, stop } = hear(request, growing, { id: drawn.id, isEnd, isFull });
    growing.text += text;
    if (!this.#tell(job, growing, () => request.onToken?.({ ...drawn, index: growing.index, text }))) return;
    if (isEnd) {
      const isOwn = !request.ignoreEos && this.#parts.eosIds.includes(drawn.id) && !request.stopIds?.includes(drawn.id);
      this.#end(job, growing, "stop", isOwn ? null : drawn.id);
    } else if (stop !== null) this.#end(job, growing, "stop", stop);
    else if (isFull) this.#end(job, growing, "length", null);
  }

  #end(job: Job, growing: Growing, finishReason: FinishReason, stopReason: number | string | null): void {
    const { index, ids, logprobs, top, text } = growing;
    const sample: Sample = { index, ids, logprobs, top, text, finishReason, stopReason };
    if (!this.#tell(job, growing, () => job.request.onSample?.(sample))) return;
    growing.isDone = true;
    job.samples[index] = sample;
    job.left--;
    this.#counts.finishedSamples++;
    if (job.left > 0) return;
    const prompt = job.request.promptLogprobs === undefined ? {} : { promptLogprobs: job.promptLogprobs };
    job.resolve({ samples: job.samples.filter((done) => done !== null), cachedTokens: 0, ...prompt });
  }

  /** Call back; false if that ended the request. A callback that throws ends its own request and no other. */
  #tell(job: Job, growing: Growing, call: () => void): boolean {
    try {
      call();
    } catch (error) {
      this.#drop(job, error);
    }
    return !growing.isDone;
  }

  /** Forget a request at once; the workers do with the next round. */
  #drop(job: Job, reason: unknown): void {
    for (const growing of job.growing) growing.isDone = true;
    const place = this.#waiting.indexOf(job);
    if (place >= 0) this.#waiting.splice(place, 1);
    for (const [rank, live] of this.#placed.entries()) this.#placed[rank] = live.filter((one) => one.job !== job);
    job.reject(reason);
  }
}

/** A sequence that a worker does not know yet, in its words. */
function newSequence({ job, growing }: Live): object {
  const { request, ends, id } = job;
  return {
    key: growing.key,
    request: id,
    limit: growing.limit,
    prompt: Int32Array.from(request.prompt),
    promptLogprobs: growing.index === 0 ? (request.promptLogprobs ?? null) : null,
    rules: {
      temperature: request.temperature ?? 1,
      top_k: Math.max(0, request.topK ?? 0),
      top_p: request.topP ?? 1,
      min_p: request.minP ?? 0,
      repetition: request.repetitionPenalty ?? 1,
      presence: request.presencePenalty ?? 0,
      frequency: request.frequencyPenalty ?? 0,
      bias: request.logitBias ?? {},
      top: request.topLogprobs ?? 0,
      least: request.minNewTokens ?? 0,
      ends,
    },
  };
}

/** What the worker says of the prompts of new requests, in the order they were sent. */
function tellPrompts(fresh: readonly Live[], { prompts }: RoundAnswer): void {
  fresh.forEach(({ job, growing }, i) => {
    if (growing.index !== 0 || job.request.promptLogprobs === undefined) return;
    const told = prompts[i]!.map(([id, logprob, top]): PromptToken => {
      return { id, logprob, top: top.map(([other, value]) => ({ id: other, logprob: value })) };
    });
    job.promptLogprobs = [null, ...told];
  });
}

const NOT_NUMBERS =
  "The model's probabilities are not numbers (NaN): its weights are NaN or infinite, or a bias is too large. " +
  "Load an earlier checkpoint, and train with a lower learning rate.";

/** The text that became certain with a token that was just drawn, and the stop text that it completes. */
function hear(
  request: SampleRequest,
  { stream, ids }: Growing,
  { id, isEnd, isFull }: { id: number; isEnd: boolean; isFull: boolean },
): { text: string; stop: string | null } {
  if (stream === null) return { text: "", stop: null };
  const canStop = ids.length >= (request.minNewTokens ?? 0);
  const heard = isEnd ? { text: "", stop: null } : stream.push(id, canStop);
  if (heard.stop !== null || !(isEnd || isFull)) return heard;
  const rest = stream.end(canStop);
  return { text: heard.text + rest.text, stop: rest.stop };
}
