/**
 * A decoder without a model, for tests of the sampler: logits follow from the tokens that its cache holds, from the
 * weights' version each of them was computed with, and from the regime of the sequence's length then. A token that is
 * not where it should be, or stale, changes what is drawn. Nothing is rounded.
 */
import { join } from "node:path";
import { expect } from "vitest";
import type { DecodeRun, Decoder, Distributions } from "../src/rollout/decoder.ts";
import type { SamplerLimits } from "../src/rollout/request.ts";
import { Sampler } from "../src/rollout/sampler.ts";
import { loadTokenizer } from "../src/text/tokenizer.ts";
import { Random } from "../src/util/random.ts";

/** Of its samplers, where they have one. */
export const tokenizer = await loadTokenizer(join(import.meta.dirname, "fixtures/text/gpt2"));
/** The token at which the "model" ends. */
export const EOS = 3;

/** A token in the cache: `version` is of the weights, `regime` of the length of its sequence. */
export type Held = { readonly id: number; readonly version: number; readonly regime: number };
/** What follows some tokens is sure; elsewhere any token may follow. */
export type Script = (ids: readonly number[]) => number | undefined;

const anything: Script = () => undefined;

/** The logits of the token that follows. */
export function logitsAfter(held: readonly Held[], vocabSize: number, script = anything): Float32Array {
  const ids = held.map(({ id }) => id);
  const sure = script(ids);
  if (sure !== undefined) return new Float32Array(vocabSize).fill(-50).fill(50, sure, sure + 1);
  let hash = 7;
  for (const { id, version, regime } of held) hash = (Math.imul(hash, 31) + id * 17 + version * 5 + regime) >>> 0;
  const random = new Random(hash, "logits");
  return Float32Array.from({ length: vocabSize }, () => random.normal(0, 2));
}

/** As the engine computes it. */
export function softmax(logits: Float32Array, temperature: number): Float32Array {
  const peak = Math.max(...logits);
  const powers = logits.map((logit) => Math.exp((logit - peak) / temperature));
  const sum = powers.reduce((a, b) => a + b, 0);
  return powers.map((power) => power / sum);
}

/** From 60 tokens on, keys are others every eight tokens. */
export const regimeOf = (length: number) => Math.max(0, length - 60) >> 3;

class CacheDecoder implements Decoder {
  readonly vocabSize: number;
  readonly cacheTokens: number;
  readonly promptTokens = 2048;
  readonly script: Script;
  /** Of the weights. */
  version = 0;
  /** Tokens computed so far. */
  tokensRun = 0;
  #slots: Held[][] = [];
  #capacity = 0;

  constructor({ vocabSize = 24, cacheTokens = 4000, script = anything }: Partial<Setup> = {}) {
    this.vocabSize = vocabSize;
    this.cacheTokens = cacheTokens;
    this.script = script;
  }
  regimeOf(length: number): number {
    return regimeOf(length);
  }
  layOut(capacity: number, lengths: readonly number[]): void {
    expect(capacity * lengths.length).toBeLessThanOrEqual(this.cacheTokens);
    this.#slots = lengths.map((length, at) => (this.#slots[at] ?? []).slice(0, length));
    this.#capacity = capacity;
  }
  copy(from: number, to: number, length: number): void {
    this.#slots[to] = this.#slots[from]!.slice(0, length);
  }
  swap(a: number, b: number): void {
    [this.#slots[a], this.#slots[b]] = [this.#slots[b]!, this.#slots[a]!];
  }
  async run({ slot, rows, reads, wantsLogits }: DecodeRun): Promise<Distributions> {
    const { version, vocabSize } = this;
    const starts = new Set(rows.map(({ past, length }) => `${past} ${regimeOf(length)}`));
    expect(starts.size === 1 || rows.every(({ ids }) => ids.length === 1)).toBe(true);
    for (const [i, { ids, past, length }] of rows.entries()) {
      const held = this.#slots[slot + i]!;
      held.splice(past, Infinity, ...ids.map((id) => ({ id, version, regime: regimeOf(length) })));
      expect(held.length).toBeLessThanOrEqual(this.#capacity);
      this.tokensRun += ids.length;
    }
    const logits = reads.map(({ row, at }) =>
      logitsAfter(this.#slots[slot + row]!.slice(0, rows[row]!.past + at + 1), vocabSize, this.script),
    );
    await tick();
    return {
      probs: joined(logits.map((values, i) => softmax(values, reads[i]!.temperature))),
      logits: wantsLogits ? joined(logits) : null,
    };
  }
}

/** A turn of the event loop; a run takes one. */
export const tick = () => new Promise<void>((resolve) => setImmediate(resolve));
const joined = (rows: readonly Float32Array[]) => Float32Array.from(rows.flatMap((row) => [...row]));

export type Setup = {
  readonly vocabSize: number;
  readonly cacheTokens: number;
  readonly script: Script;
  readonly limits: SamplerLimits;
  readonly maxLength: number;
  readonly hasTokenizer: boolean;
};

/** A sampler over such a decoder; `update` is what a training step is to it. */
export function setUp(setup: Partial<Setup> = {}) {
  const { limits = {}, maxLength = 120, hasTokenizer = false } = setup;
  const decoder = new CacheDecoder(setup);
  let queue: Promise<unknown> = Promise.resolve();
  const exclusive = <T>(work: () => Promise<T>): Promise<T> => {
    const result = queue.then(work);
    queue = result.catch(() => undefined);
    return result;
  };
  const parts = { decoder, tokenizer: hasTokenizer ? tokenizer : null, eosIds: [EOS], maxLength, limits, exclusive };
  const sampler = new Sampler(parts);
  const update = () =>
    exclusive(async () => {
      decoder.version++;
      sampler.forget();
    });
  return { decoder, sampler, update };
}
