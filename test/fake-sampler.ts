/**
 * A small sampler for tests of the server: real tokens, real text, no model.
 *
 * It keeps to `rollout/request.ts`: requests join and leave at any step, `n`, seeds, stops, limits and signals are
 * honoured, and what is drawn depends on the prompt, the seed, the sample's index and the tokens before only, never on
 * what else runs. A script may say what the reply to a prompt is, for replies that must have a form.
 */
import { stat } from "node:fs/promises";
import type {
  Completion,
  FinishReason,
  Sample,
  SampledToken,
  SampleRequest,
  SamplerStats,
  TokenLogprob,
} from "../src/rollout/request.ts";
import type { ServedModel } from "../src/serve/served-model.ts";
import { type StreamDecoder, streamDecoder } from "../src/text/stream.ts";
import type { Tokenizer } from "../src/text/tokenizer.ts";
import { UserError } from "../src/util/errors.ts";
import { Random } from "../src/util/random.ts";

export type FakeOptions = {
  readonly vocabSize?: number;
  readonly maxPositions?: number;
  /** Milliseconds per step; every running sample draws one token in it. */
  readonly stepMs?: number;
  readonly maxSequences?: number;
  /** The reply to a prompt, or undefined for a random one. */
  readonly script?: (prompt: string) => string | undefined;
};

type Running = {
  readonly index: number;
  readonly decoder: StreamDecoder;
  readonly tokens: TokenLogprob[];
  readonly tops: (readonly TokenLogprob[])[];
  text: string;
};

type Waiting = {
  readonly request: SampleRequest;
  readonly seed: number;
  readonly script: Int32Array | null;
  readonly left: Set<Running>;
  readonly samples: Sample[];
  resolve(completion: Completion): void;
  reject(reason: unknown): void;
};

export class FakeSampler implements ServedModel {
  readonly config: { readonly vocabSize: number; readonly maxPositions: number };
  readonly #tokenizer: Tokenizer;
  readonly #options: FakeOptions;
  #waiting: Waiting[] = [];
  readonly #running = new Set<Waiting>();
  #isStepping = false;
  #unseeded = 1000;
  #weights = 0;
  #promptTokens = 0;
  #generatedTokens = 0;
  #finishedSamples = 0;

  constructor(tokenizer: Tokenizer, options: FakeOptions = {}) {
    this.#tokenizer = tokenizer;
    this.#options = options;
    this.config = { vocabSize: options.vocabSize ?? 432, maxPositions: options.maxPositions ?? 2048 };
  }

  async sample(request: SampleRequest): Promise<Completion> {
    request.signal?.throwIfAborted();
    const { script } = this.#options;
    const reply = script?.(this.#tokenizer.decode(request.prompt));
    return new Promise((resolve, reject) => {
      const waiting: Waiting = {
        request,
        seed: request.temperature === 0 ? 0 : (request.seed ?? this.#unseeded++),
        script: reply === undefined ? null : this.#tokenizer.encode(reply, { addSpecialTokens: false }),
        left: new Set(),
        samples: [],
        resolve,
        reject,
      };
      for (let index = 0; index < (request.n ?? 1); index++) {
        const decoder = streamDecoder(this.#tokenizer, { skipSpecialTokens: true });
        waiting.left.add({ index, decoder, tokens: [], tops: [], text: "" });
      }
      request.signal?.addEventListener("abort", () => this.#cancel(waiting), { once: true });
      this.#waiting.push(waiting);
      void this.#step();
    });
  }

  samplerStats(): SamplerStats {
    const running = [...this.#running].reduce((sum, { left }) => sum + left.size, 0);
    const waiting = this.#waiting.reduce((sum, { left }) => sum + left.size, 0);
    return {
      running,
      waiting,
      cachedTokens: [...this.#running].reduce((sum, { request }) => sum + request.prompt.length, 0),
      cacheTokens: 4096,
      promptTokens: this.#promptTokens,
      reusedTokens: 0,
      generatedTokens: this.#generatedTokens,
      finishedSamples: this.#finishedSamples,
      preemptions: 0,
    };
  }

  async load(folder: string): Promise<void> {
    const found = await stat(folder).catch(() => null);
    if (found === null) throw new UserError(`There is no folder "${folder}".`);
    this.#weights++;
  }

  #cancel(waiting: Waiting): void {
    this.#waiting = this.#waiting.filter((other) => other !== waiting);
    this.#running.delete(waiting);
    waiting.left.clear();
    waiting.reject(waiting.request.signal?.reason);
  }

  async #step(): Promise<void> {
    if (this.#isStepping) return;
    this.#isStepping = true;
    while (this.#waiting.length + this.#running.size > 0) {
      const { stepMs = 0 } = this.#options;
      await new Promise((resolve) => (stepMs > 0 ? setTimeout(resolve, stepMs) : setImmediate(resolve)));
      this.#admit();
      for (const waiting of this.#running) {
        for (const sample of waiting.left) this.#draw(waiting, sample);
        if (waiting.left.size > 0 || !this.#running.delete(waiting)) continue;
        waiting.resolve(this.#completionOf(waiting));
      }
    }
    this.#isStepping = false;
  }

  #admit(): void {
    const { maxSequences = 8 } = this.#options;
    let free = maxSequences - this.samplerStats().running;
    while (this.#waiting[0] !== undefined && (free >= this.#waiting[0].left.size || this.#running.size === 0)) {
      const [next] = this.#waiting.splice(0, 1);
      free -= next!.left.size;
      this.#promptTokens += next!.request.prompt.length;
      this.#running.add(next!);
    }
  }

  #draw(waiting: Waiting, running: Running): void {
    const { request } = waiting;
    const position = running.tokens.length;
    const token = this.#next(waiting, running);
    running.tokens.push(token);
    const random = new Random(token.id, "top");
    const top = Array.from({ length: request.topLogprobs ?? 0 }, (_, i) =>
      i === 0 ? token : { id: random.int(this.#tokenizer.vocabSize), logprob: token.logprob - i },
    );
    running.tops.push(top);
    this.#generatedTokens++;
    const isEos = !request.ignoreEos && this.#tokenizer.eosIds.includes(token.id);
    const isStopId = request.stopIds?.includes(token.id) ?? false;
    running.text += running.decoder.push(token.id);
    const stop = request.stop?.find((text) => running.text.includes(text));
    const drawn: SampledToken = { ...token, index: running.index, top, text: "" };
    request.onToken?.(drawn);
    if (!waiting.left.has(running)) return; // the listener has cancelled it
    const length = request.prompt.length + position + 1;
    if (isStopId || stop !== undefined) this.#finish(waiting, running, "stop", stop ?? token.id);
    else if (isEos) this.#finish(waiting, running, "stop", null);
    else if (position + 1 >= request.maxNewTokens || length >= this.config.maxPositions)
      this.#finish(waiting, running, "length", null);
  }

  /** From the script, or by chance; no token that would end the sample before its time. */
  #next({ request, seed, script }: Waiting, { index, tokens }: Running): TokenLogprob {
    const eos = this.#tokenizer.eosId ?? 0;
    const at = tokens.length;
    if (script !== null) return { id: script[at] ?? eos, logprob: -0.5 };
    const last = tokens.at(-1)?.id ?? request.prompt[request.prompt.length - 1] ?? 0;
    const random = new Random(seed, index, this.#weights, at, last, request.prompt.length);
    const isEnd = random.uniform() < 0.02 && at >= (request.minNewTokens ?? 0) && !request.ignoreEos;
    return { id: isEnd ? eos : random.int(eos - 3), logprob: -random.uniform() * 5 };
  }

  #finish(waiting: Waiting, running: Running, finishReason: FinishReason, stopReason: number | string | null): void {
    const { index, tokens, tops } = running;
    const sample: Sample = {
      index,
      ids: tokens.map(({ id }) => id),
      logprobs: tokens.map(({ logprob }) => logprob),
      top: tops,
      text: "",
      finishReason,
      stopReason,
    };
    waiting.left.delete(running);
    waiting.samples[index] = sample;
    this.#finishedSamples++;
    waiting.request.onSample?.(sample);
  }

  #completionOf({ request, samples }: Waiting): Completion {
    const { prompt, promptLogprobs } = request;
    if (promptLogprobs === undefined) return { samples, cachedTokens: 0 };
    const tokens = Array.from(prompt, (id, i) => {
      const random = new Random(id, "prompt", i);
      const logprob = -random.uniform() * 5;
      const top = Array.from({ length: promptLogprobs }, (_, k) => ({
        id: k === 0 ? id : random.int(eosLess),
        logprob: logprob - k,
      }));
      return i === 0 ? null : { id, logprob, top };
    });
    return { samples, promptLogprobs: tokens, cachedTokens: 0 };
  }
}

/** Ids below this are plain tokens of the fixture tokenizer. */
const eosLess = 400;
