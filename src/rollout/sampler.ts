/**
 * Continuous batching: requests come and go at any step, and each step runs what the scheduler plans.
 *
 * `plan.ts` decides what to compute, the decoder computes it, and the sampler draws tokens from the distributions. What
 * a request gets depends on its own prompt, settings and seed, not on what else runs (except for rounding: the order of
 * summation in a product depends on the number of rows).
 */

import type { Decodable } from "../text/stream.ts";
import { invariant, messageOf } from "../util/errors.ts";
import { ActiveRequests, type ActiveSample, allowedTokens, bannedIds } from "./active-requests.ts";
import { checkLimits } from "./check-request.ts";
import type { Decoder, Read } from "./decoder.ts";
import { draw, needsLogits, scored, temperatureOf } from "./draw.ts";
import { type Action, plan, type RunRow } from "./plan.ts";
import type { Completion, SampleRequest, SamplerLimits, SamplerStats } from "./request.ts";
import { emptyState, forget, type Limits, needsPromptLogprobs, release, type State } from "./scheduler-state.ts";

export type SamplerParts = {
  readonly decoder: Decoder;
  /** Needed for text and stop texts. */
  readonly tokenizer: Decodable | null;
  /** Tokens with which the model itself ends a sample. */
  readonly eosIds: readonly number[];
  readonly maxLength: number;
  readonly limits: SamplerLimits;
  /** Runs work when nothing else uses the model. */
  readonly exclusive: <T>(work: () => Promise<T>) => Promise<T>;
};

/** The default number of sequences decoded together: more rows make products hardly faster. */
export const DEFAULT_SEQUENCES = 128;
const DEFAULT_BATCHED_TOKENS = 2048;

export class Sampler {
  readonly #parts: SamplerParts;
  readonly #limits: Limits;
  readonly #requests: ActiveRequests;
  readonly #counts = { reusedTokens: 0, preemptions: 0 };
  #state: State = emptyState();
  #isLooping = false;

  constructor(parts: SamplerParts) {
    this.#parts = parts;
    const { decoder, limits, tokenizer, eosIds } = parts;
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
    this.#requests = new ActiveRequests({
      vocabSize: decoder.vocabSize,
      maxLength: this.#limits.maxLength,
      eosIds,
      tokenizer,
      onRelease: ({ sequence }, isFinished) => {
        this.#state = release(this.#state, sequence.id, isFinished && this.#limits.hasPrefixCache);
      },
    });
  }

  /** The longest sequence, prompt included. */
  get maxLength(): number {
    return this.#limits.maxLength;
  }

  /** Sample; the promise settles when all `n` samples have ended. */
  sample(request: SampleRequest): Promise<Completion> {
    return this.#requests.serve(request, ({ samples }) => {
      const sequences = samples.map(({ sequence }) => sequence);
      this.#state = { ...this.#state, waiting: [...this.#state.waiting, ...sequences] };
      if (!this.#isLooping) void this.#loop();
    });
  }

  stats(): SamplerStats {
    const { running, waiting, slots } = this.#state;
    const cachedTokens = slots.reduce((sum, slot) => sum + (slot?.length ?? 0), 0);
    return {
      running: running.length,
      waiting: waiting.length,
      cachedTokens,
      cacheTokens: this.#limits.cacheTokens,
      ...this.#requests.counts,
      ...this.#counts,
    };
  }

  /** The weights changed: next tokens are drawn from the new ones, over keys and values computed with them. */
  forget(): void {
    this.#state = forget(this.#state);
  }

  /** Reject all requests, and every later one. */
  close(reason: Error): void {
    this.#requests.close(reason);
  }

  async #loop(): Promise<void> {
    this.#isLooping = true;
    await null; // requests made in the same tick start together
    while (!this.#requests.isEmpty) {
      try {
        await this.#parts.exclusive(() => this.#step());
      } catch (error) {
        // No single request caused it: all of them are rejected, and later ones find an empty sampler.
        this.#requests.dropAll(error instanceof Error ? error : new Error(messageOf(error)));
        this.#state = emptyState();
      }
    }
    this.#isLooping = false; // in the same tick as the last check, so that the next request starts the loop again
  }

  async #step(): Promise<void> {
    if (this.#requests.isEmpty) return; // all were cancelled while others used the model
    const { actions, state, preempted, reused } = plan(this.#state, this.#limits);
    invariant(
      actions.some((action) => action.do === "run"),
      "a step computes tokens of at least one sequence",
    );
    this.#state = state;
    this.#counts.preemptions += preempted;
    for (const [id, length] of reused) {
      const sample = this.#requests.get(id);
      if (sample?.index !== 0 || sample.logprobs.length > 0) continue; // a prompt is counted once
      sample.active.cachedTokens = length;
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
      const sample = this.#requests.get(sequence.id);
      if (sample === undefined) return; // cancelled in the meantime
      if (needsPromptLogprobs(sequence)) {
        for (let at = from; at < Math.min(to, sequence.promptLength - 1); at++) {
          const use = (probs: Float32Array) => this.#readPrompt(sample, at + 1, probs);
          reads.push({ row, at: at - from, temperature: 1, use });
        }
      }
      if (to < sequence.ids.length) return;
      const sampling = sample.active.request;
      wantsLogits ||= sampling.grammar !== undefined || needsLogits(sampling, bannedIds(sample));
      const use = (probs: Float32Array, logits: Float32Array | null) => {
        for (const { id } of [sequence, ...followers]) this.#drawNext(id, probs, logits);
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

  #readPrompt({ active, sequence }: ActiveSample, at: number, probs: Float32Array): void {
    active.promptLogprobs[at] = scored(probs, sequence.ids[at]!, active.request.promptLogprobs ?? 0);
  }

  /** One token more for a sequence, from the distribution after its last token. */
  #drawNext(sequenceId: number, probs: Float32Array, logits: Float32Array | null): void {
    const sample = this.#requests.get(sequenceId);
    if (sample === undefined) return; // cancelled while it was computed
    const { active, sequence, random } = sample;
    const { ids, promptLength } = sequence;
    try {
      const allowed = allowedTokens(sample);
      const context = {
        sampling: active.request,
        ids,
        promptLength,
        banned: bannedIds(sample),
        ...(allowed && { allowed }),
      };
      this.#requests.append(
        sample,
        draw(probs, logits, context, () => random.uniform()),
      );
    } catch (error) {
      if (active.request.grammar === undefined) throw error;
      this.#requests.drop(active, error); // what the grammar allows could not be found: no other request is to blame
    }
  }
}
