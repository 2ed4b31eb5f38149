/**
 * Sampling by the workers themselves, round by round. In a round every worker draws some tokens for each of its
 * sequences; between rounds requests come, end and are cancelled, and other calls to the model get their turn.
 *
 * A request goes to the worker with the fewest sequences and stays there. Random numbers come from the controller, from
 * the same streams as on the embedded engine, so a seed gives the same tokens on both. Text and stop texts are handled
 * here too: tokens that a worker drew after a stop text are ignored.
 */
import * as z from "zod";
import { type ActiveRequest, ActiveRequests, type ActiveSample } from "../../rollout/active-requests.ts";
import { checkLimits } from "../../rollout/check-request.ts";
import type { Completion, SampleRequest, SamplerLimits, SamplerStats } from "../../rollout/request.ts";
import { DEFAULT_SEQUENCES } from "../../rollout/sampler.ts";
import type { Decodable } from "../../text/stream.ts";
import { invariant, messageOf } from "../../util/errors.ts";

/** What one worker is asked to do in a round. */
export type RoundMessage = {
  /** All workers are done: the memory of sampling can be freed. */
  readonly isIdle: boolean;
  readonly steps: number;
  readonly keys: Int32Array;
  readonly uniforms: Float64Array;
  readonly add: readonly object[];
  readonly maxBatchedTokens: number;
  readonly regimeEnd: number | null;
};

/** Numbers that a worker may cache in total, and the numbers that each token and each sequence take. */
export type CacheBudget = { readonly numbers: number; readonly perToken: number; readonly perRow: number };

export type RaySamplerParts = {
  readonly workers: number;
  readonly vocabSize: number;
  readonly maxLength: number;
  readonly cache: CacheBudget;
  /** Longer sequences have another rotary embedding; null if there is no such length. */
  readonly regimeEnd: number | null;
  readonly eosIds: readonly number[];
  readonly tokenizer: Decodable | null;
  readonly limits: SamplerLimits;
  /** Run a round, when nothing else uses the model. */
  readonly round: (messages: readonly RoundMessage[]) => Promise<Readonly<Record<string, unknown>>[]>;
};

/** Tokens of a round: a call costs milliseconds, and stop texts are only found after a round. */
const ROUND_TOKENS = 8;
const DEFAULT_BATCHED_TOKENS = 8192;

const topLogprobs = z.array(z.tuple([z.number(), z.number()]));
const roundAnswer = z.object({
  counts: z.instanceof(Int32Array),
  ids: z.instanceof(Int32Array),
  logprobs: z.instanceof(Float64Array),
  top: z.array(topLogprobs),
  prompts: z.array(z.array(z.tuple([z.number(), z.number(), topLogprobs]))),
});
type RoundAnswer = z.infer<typeof roundAnswer>;

export class RaySampler {
  readonly #parts: RaySamplerParts;
  readonly #requests: ActiveRequests;
  readonly #waiting: ActiveRequest[] = [];
  /** The samples of each worker, by rank. */
  readonly #placed: ActiveSample[][];
  /** Sequences that their worker does not have yet. */
  readonly #unsent = new Set<number>();
  #isLooping = false;

  constructor(parts: RaySamplerParts) {
    checkLimits(parts.limits);
    this.#parts = parts;
    this.#placed = Array.from({ length: parts.workers }, () => []);
    const { vocabSize, maxLength, eosIds, tokenizer } = parts;
    const onRelease = ({ active }: ActiveSample, isFinished: boolean) => {
      if (!isFinished) this.#remove(active);
    };
    this.#requests = new ActiveRequests({ vocabSize, maxLength, eosIds, tokenizer, onRelease });
  }

  /** Sample; the promise settles when all `n` samples have ended. */
  async sample(request: SampleRequest): Promise<Completion> {
    invariant(request.grammar === undefined, "workers sample without a grammar");
    return this.#requests.serve(request, (active) => {
      this.#waiting.push(active);
      if (!this.#isLooping) void this.#loop();
    });
  }

  stats(): SamplerStats {
    const running = this.#placed.flat();
    const { cache, workers } = this.#parts;
    return {
      running: running.length,
      waiting: this.#waiting.reduce((sum, { samples }) => sum + samples.length, 0),
      cachedTokens: running.reduce((sum, { sequence }) => sum + sequence.ids.length, 0),
      cacheTokens: cache.perToken === 0 ? 0 : Math.floor(cache.numbers / cache.perToken) * workers,
      ...this.#requests.counts,
      reusedTokens: 0,
      preemptions: 0,
    };
  }

  /** Reject all requests, and every later one. */
  close(reason: Error): void {
    this.#requests.close(reason);
  }

  /** A request was dropped. The workers forget its sequences with the next round, which does not name them. */
  #remove(active: ActiveRequest): void {
    const at = this.#waiting.indexOf(active);
    if (at >= 0) this.#waiting.splice(at, 1);
    for (const [rank, samples] of this.#placed.entries())
      this.#placed[rank] = samples.filter((sample) => sample.active !== active);
  }

  async #loop(): Promise<void> {
    this.#isLooping = true;
    await null; // requests made in the same tick start together
    let isIdle = true;
    while (this.#waiting.length > 0 || this.#placed.some((samples) => samples.length > 0) || !isIdle) {
      this.#admit();
      isIdle = this.#placed.every((samples) => samples.length === 0);
      try {
        await this.#round(); // one more round when all is done, in which the workers free their memory
      } catch (error) {
        // No single request caused it: all of them are rejected, and later ones find an empty sampler.
        this.#requests.dropAll(error instanceof Error ? error : new Error(messageOf(error)));
        break;
      }
    }
    this.#isLooping = false;
  }

  /** Give waiting requests to the workers with the fewest sequences, first come first served. */
  #admit(): void {
    const { limits, cache } = this.#parts;
    const maxSequences = limits.maxSequences ?? DEFAULT_SEQUENCES;
    for (let active = this.#waiting[0]; active !== undefined; active = this.#waiting[0]) {
      const least = this.#placed.reduce((a, b) => (b.length < a.length ? b : a));
      const numbers = [...least, ...active.samples].reduce(
        (sum, { sequence }) => sum + cache.perRow + sequence.limit * cache.perToken,
        0,
      );
      const fits = least.length + active.samples.length <= maxSequences && numbers <= cache.numbers;
      if (!fits && least.length > 0) return; // a request that never fits runs alone
      for (const sample of active.samples) {
        least.push(sample);
        this.#unsent.add(sample.sequence.id);
      }
      this.#waiting.shift();
    }
  }

  async #round(): Promise<void> {
    const { limits, regimeEnd } = this.#parts;
    const maxBatchedTokens = limits.maxBatchedTokens ?? DEFAULT_BATCHED_TOKENS;
    const isIdle = this.#placed.every((samples) => samples.length === 0);
    const sent = this.#placed.map((samples) => {
      const added = samples.filter(({ sequence }) => this.#unsent.delete(sequence.id));
      const uniforms = samples.flatMap(({ random }) => Array.from({ length: ROUND_TOKENS }, () => random.uniform()));
      const message: RoundMessage = {
        isIdle,
        steps: ROUND_TOKENS,
        regimeEnd,
        maxBatchedTokens,
        add: added.map(newSequence),
        keys: Int32Array.from(samples, ({ sequence }) => sequence.id),
        uniforms: Float64Array.from(uniforms),
      };
      return { samples, added, message };
    });
    const answers = await this.#parts.round(sent.map(({ message }) => message));
    if (isIdle) return;
    sent.forEach(({ samples, added }, rank) => {
      const answer = roundAnswer.parse(answers[rank]);
      setPromptLogprobs(added, answer);
      this.#append(samples, answer);
    });
    for (const [rank, samples] of this.#placed.entries())
      this.#placed[rank] = samples.filter((sample) => this.#isActive(sample));
  }

  /** Append the tokens of one worker. Tokens after the end of a sample are ignored. */
  #append(samples: readonly ActiveSample[], { counts, ids, logprobs, top }: RoundAnswer): void {
    let at = 0;
    samples.forEach((sample, i) => {
      const end = at + counts[i]!;
      for (; at < end && this.#isActive(sample); at++) {
        const likeliest = top[at]!.map(([id, logprob]) => ({ id, logprob }));
        this.#requests.append(sample, { id: ids[at]!, logprob: logprobs[at]!, top: likeliest });
      }
      at = end;
    });
  }

  #isActive({ sequence }: ActiveSample): boolean {
    return this.#requests.get(sequence.id) !== undefined;
  }
}

/** A sequence that a worker does not have yet. `params` are the fields of its `SamplingParams`. */
function newSequence({ active, index, sequence }: ActiveSample): object {
  const { request, stopIds } = active;
  return {
    key: sequence.id,
    request: sequence.request,
    limit: sequence.limit,
    prompt: Int32Array.from(request.prompt),
    promptLogprobs: index === 0 ? (request.promptLogprobs ?? null) : null,
    params: {
      temperature: request.temperature ?? 1,
      top_k: Math.max(0, request.topK ?? 0),
      top_p: request.topP ?? 1,
      min_p: request.minP ?? 0,
      repetition_penalty: request.repetitionPenalty ?? 1,
      presence_penalty: request.presencePenalty ?? 0,
      frequency_penalty: request.frequencyPenalty ?? 0,
      logit_bias: request.logitBias ?? {},
      logprobs: request.topLogprobs ?? 0,
      min_tokens: request.minNewTokens ?? 0,
      stop_token_ids: stopIds,
    },
  };
}

/** The log-probs of the prompts of new requests, in the order they were sent. */
function setPromptLogprobs(added: readonly ActiveSample[], { prompts }: RoundAnswer): void {
  added.forEach(({ active, sequence }, i) => {
    if (!sequence.wantsPromptLogprobs) return;
    prompts[i]!.forEach(([id, logprob, top], at) => {
      active.promptLogprobs[at + 1] = {
        id,
        logprob,
        top: top.map(([other, value]) => ({ id: other, logprob: value })),
      };
    });
  });
}
