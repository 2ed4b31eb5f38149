/**
 * Laws of sampling on the embedded engine. The sampler is the trainer: on every family its log-probs are `forward`'s,
 * whatever else is in the batch, and the result of a request depends only on the request and the weights.
 */
import { readdirSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { div, mul, neg, sum } from "../../graph/ops.ts";
import { parameterSpecs, positionRegime, positionsOf, readConfig } from "../../models/config.ts";
import { createModel } from "../../models/create.ts";
import { loadParameters } from "../../models/weights.ts";
import { PREFILL_CHUNK } from "../../rollout/plan.ts";
import type { Completion, Sample, SampleRequest, SamplerLimits } from "../../rollout/request.ts";
import { Sampler } from "../../rollout/sampler.ts";
import { Runtime } from "../../runtime/runtime.ts";
import { Vectors } from "../../runtime/vectors.ts";
import type { Grammar } from "../../text/grammar/grammar.ts";
import { UserError } from "../../util/errors.ts";
import { Random } from "../../util/random.ts";
import type { OptimizerStep, TokenLoss, TokenRow } from "../contract.ts";
import { EmbeddedDecoder } from "./decoder.ts";
import { EmbeddedEngine } from "./engine.ts";
import { cacheBytesPerToken } from "./kv-cache.ts";
import type { EmbeddedModel } from "./model.ts";

const fixtures = join(import.meta.dirname, "../../../test/fixtures");
const folders = ["logits", "logits-more"].flatMap((set) =>
  readdirSync(join(fixtures, set)).flatMap((name) => (/_(score|value)$/.test(name) ? [] : [join(set, name)])),
);

const engine = new EmbeddedEngine();
let temporary = "";
/** A model with a long context, whose distributions are neither flat nor certain. */
let longContext = "";
const LONG = 1200;
beforeAll(async () => {
  temporary = await mkdtemp(join(tmpdir(), "sampling-"));
  longContext = join(temporary, "long");
  const raw = {
    model_type: "llama",
    architectures: ["LlamaForCausalLM"],
    vocab_size: 89,
    hidden_size: 32,
    intermediate_size: 48,
    num_hidden_layers: 2,
    num_attention_heads: 4,
    num_key_value_heads: 2,
    max_position_embeddings: LONG,
    rms_norm_eps: 1e-6,
    eos_token_id: 2,
    initializer_range: 0.25,
  };
  await createModel(longContext, raw, 1);
});
afterAll(async () => {
  await engine.close();
  await rm(temporary, { recursive: true });
});

async function withModel(folder: string, sampler: SamplerLimits, use: (model: EmbeddedModel) => Promise<void>) {
  const model = await engine.open({ folder, sampler });
  try {
    await use(model);
  } finally {
    await model.close();
  }
}

// ---------------------------------------------------------------- requests and comparisons

const promptOf = (length: number, key: number, vocabSize: number): number[] => {
  const random = new Random(9, "prompt", key);
  return Array.from({ length }, () => random.int(vocabSize));
};

/** The largest difference between a sample's log-probs and the model's own of the same tokens. */
async function logprobError(
  model: Pick<EmbeddedModel, "config" | "forward" | "logits">,
  prompt: readonly number[],
  { ids, logprobs }: Pick<Sample, "ids" | "logprobs">,
  temperature: number,
): Promise<number> {
  const all = [...prompt, ...ids];
  const regime = (length: number) => positionRegime(positionsOf(model.config), length);
  const error = (found: ArrayLike<number>) => Math.max(...logprobs.map((logprob, i) => Math.abs(logprob - found[i]!)));
  if (regime(prompt.length) === regime(all.length)) {
    const row = { ids: Int32Array.from(all), mask: all.map((_, t) => Number(t >= prompt.length)) };
    const [output] = await model.forward([row], ["logprobs"], { micro: { rows: 1 }, temperature });
    return error(output!.logprobs!.subarray(prompt.length));
  }
  // Longer sequences have other tables: each token is compared at the length that it was sampled at.
  const found: number[] = [];
  for (let length = prompt.length; length < all.length; length++) {
    const known = all.slice(0, length);
    const row = { ids: Int32Array.from(known), mask: known.map((_, t) => Number(t === length - 1)) };
    const [[logits]] = (await model.logits([row])) as [[Float32Array]];
    const powers = Array.from(logits, (logit) => Math.exp(logit / temperature));
    found.push(Math.log(powers[all[length]!]! / powers.reduce((a, b) => a + b, 0)));
  }
  return error(found);
}

/** The same tokens, and the same log-probs to rounding. */
function expectSame(found: readonly Sample[], expected: readonly Sample[], what = ""): void {
  expect(
    found.map(({ ids }) => ids),
    what,
  ).toEqual(expected.map(({ ids }) => ids));
  for (const [i, { logprobs, finishReason, stopReason }] of expected.entries()) {
    expect(found[i]).toMatchObject({ finishReason, stopReason });
    for (const [t, logprob] of logprobs.entries()) {
      expect(Math.abs(found[i]!.logprobs[t]! - logprob), `${what}: sample ${i}, token ${t}`).toBeLessThan(2e-5);
    }
  }
}

// ---------------------------------------------------------------- the sampler is the trainer

/** Requests that come while others run: some late, some short, one cancelled on its way. */
async function sampleInTurns(
  sample: (request: SampleRequest) => Promise<Completion>,
  context: number,
  vocabSize: number,
) {
  const controller = new AbortController();
  const later: Promise<void>[] = [];
  const done: { prompt: number[]; sample: Sample; temperature: number }[] = [];
  const room = Math.min(context, 48);
  const ask = async (key: number, length: number, more: Partial<SampleRequest>): Promise<void> => {
    const prompt = promptOf(Math.max(1, Math.floor(length * room)), key, vocabSize);
    const temperature = key % 2 === 0 ? 1 : 0.7;
    const request = { prompt, maxNewTokens: 40, temperature, seed: key, ignoreEos: true, ...more };
    for (const one of (await sample(request)).samples) done.push({ prompt, sample: one, temperature });
  };
  let told = 0;
  const onToken = () => {
    told++;
    if (told === 2) later.push(ask(3, 0.3, {}), ask(4, 0.5, { maxNewTokens: 2 }));
    if (told === 4) controller.abort(new Error("enough"));
    if (told === 5) later.push(ask(5, 0.02, { n: 3 }));
  };
  const cancelled = ask(0, 0.25, { signal: controller.signal });
  await Promise.all([
    expect(cancelled).rejects.toThrow("enough"),
    ask(1, 0.05, { onToken }),
    ask(2, 0.4, { maxNewTokens: 3, n: 2 }),
  ]);
  await Promise.all(later);
  return done;
}

describe.each(folders)("%s", (folder) => {
  test("log-probs while sampling are those of `forward`, while requests come and go", async () => {
    await withModel(join(fixtures, folder), {}, async (model) => {
      const { vocabSize, maxPositions } = model.config;
      const done = await sampleInTurns((request) => model.sample(request), maxPositions, vocabSize);
      expect(done).toHaveLength(8);
      for (const { prompt, sample, temperature } of done) {
        expect(await logprobError(model, prompt, sample, temperature)).toBeLessThan(1e-4);
      }
    });
  });
});

test("log-probs are those of `forward` past the trained length, where every length has other frequencies", async () => {
  const folder = join(fixtures, "logits-more/llama_dynamic");
  const runtime = new Runtime();
  const config = await readConfig(folder);
  const specs = parameterSpecs(config);
  const vectors = new Vectors(specs);
  await loadParameters(folder, specs, ({ name }) => vectors.view("weight", name), { allowNewHead: false });
  const weights = runtime.bind(Object.fromEntries(specs.map(({ name }) => [name, vectors.view("weight", name)])));
  const cacheBytes = 500 * cacheBytesPerToken(config);
  const decoder = new EmbeddedDecoder({ runtime, config, weights: () => weights, cacheBytes });
  // The engine's own samplers end at the trained length; this one goes on to three times that.
  const sampler = new Sampler({
    decoder,
    tokenizer: null,
    eosIds: [],
    maxLength: 3 * config.maxPositions,
    limits: {},
    exclusive: (work) => work(),
  });
  const done = await sampleInTurns((request) => sampler.sample(request), sampler.maxLength, config.vocabSize);
  await runtime.close();
  await withModel(folder, {}, async (model) => {
    for (const { prompt, sample, temperature } of done) {
      expect(await logprobError(model, prompt, sample, temperature)).toBeLessThan(1e-4);
    }
  });
});

// ---------------------------------------------------------------- what a request gets is its own

/** All kinds of requests for a model of this context and vocabulary. */
const mixed = (context: number, vocabSize: number): SampleRequest[] =>
  [1, 5, 13, 22, 30, 8, 17, 2, 26, 11].map((length, key) => ({
    prompt: promptOf(Math.min(length, context - 2), key, vocabSize),
    maxNewTokens: 4 + ((key * 7) % 19),
    temperature: [0, 1, 0.7, 1.5][key % 4]!,
    seed: 100 + key,
    ...(key % 3 === 0 ? { topK: 12 } : key % 3 === 1 ? { topP: 0.9, minP: 0.01 } : {}),
    ...(key % 4 === 1 ? { repetitionPenalty: 1.2, presencePenalty: 0.3, frequencyPenalty: 0.1 } : {}),
    ...(key % 5 === 2 ? { logitBias: { 7: 2, 9: -5 }, minNewTokens: 3 } : {}),
    ...(key % 5 === 3 ? { n: 3 } : {}),
    ...(key % 4 === 3 ? { grammar: evenTokens(vocabSize) } : {}),
    topLogprobs: key % 3,
  }));

/** A grammar of any number of tokens with even ids. */
function evenTokens(vocabSize: number): Grammar {
  const bits = new Uint32Array(Math.ceil(vocabSize / 32)).fill(0x55555555);
  const state: Grammar = { isComplete: true, allowed: () => ({ bits, count: vocabSize >> 1 }), after: () => state };
  return state;
}

async function inTurn(model: EmbeddedModel, requests: readonly SampleRequest[]): Promise<Sample[]> {
  const samples: Sample[] = [];
  for (const request of requests) samples.push(...(await model.sample(request)).samples);
  return samples;
}
const atOnce = async (model: EmbeddedModel, requests: readonly SampleRequest[]): Promise<Sample[]> =>
  (await Promise.all(requests.map((request) => model.sample(request)))).flatMap(({ samples }) => samples);

/** Plain attention with one key head; windows and soft caps; two rope regimes. */
const three = ["logits-more/llama_mqa", "logits-more/gemma2_caps", "logits-more/llama_longrope_long"];
describe.each(three)("what a request gets from %s does not depend on", (name) => {
  const folder = join(fixtures, name);
  let requests: SampleRequest[];
  let alone: Sample[];
  beforeAll(async () => {
    await withModel(folder, { hasPrefixCache: false }, async (model) => {
      requests = mixed(model.config.maxPositions, model.config.vocabSize);
      alone = await inTurn(model, requests);
    });
  });

  test("the grammar of another request: with one, only its tokens are drawn", async () => {
    await withModel(folder, {}, async (model) => {
      const constrained = requests.flatMap(({ grammar, n = 1 }) => new Array<boolean>(n).fill(grammar !== undefined));
      const samples = await atOnce(model, requests);
      expect(samples.map(({ policyLogprobs }) => policyLogprobs !== undefined)).toEqual(constrained);
      for (const [i, { ids, finishReason }] of samples.entries()) {
        const drawn = finishReason === "stop" ? ids.slice(0, -1) : ids; // without the token that ended it
        if (constrained[i]) expect(drawn.filter((id) => id % 2 === 1)).toEqual([]);
      }
      const free = requests.filter(({ grammar }) => grammar === undefined);
      expectSame(
        await atOnce(model, free),
        samples.filter((_, i) => !constrained[i]),
      );
    });
  });

  test("what else is in the batch", async () => {
    await withModel(folder, {}, async (model) => expectSame(await atOnce(model, requests), alone));
  });

  test("requests that come later, or are cancelled", async () => {
    await withModel(folder, {}, async (model) => {
      let told = 0;
      const others: Promise<unknown>[] = [];
      const onToken = () => {
        if (++told % 5 !== 0 || told > 60) return;
        const signal = told % 2 === 0 ? AbortSignal.timeout(1) : new AbortController().signal;
        const other = { prompt: promptOf(3 + told / 2, told, 61), maxNewTokens: 9, n: 1 + (told % 3), signal };
        others.push(model.sample(other).catch(() => undefined));
      };
      expectSame(
        await atOnce(
          model,
          requests.map((request) => ({ ...request, onToken })),
        ),
        alone,
      );
      expect(others.length).toBeGreaterThan(5);
      await Promise.all(others);
      expect(model.samplerStats()).toMatchObject({ running: 0, waiting: 0 });
    });
  });

  test("how prompts are cut into chunks, or how many run at once", async () => {
    for (const limits of [{ maxBatchedTokens: 7 }, { maxSequences: 2 }, { maxSequences: 3, maxBatchedTokens: 16 }]) {
      await withModel(folder, limits, async (model) => {
        expectSame(await atOnce(model, requests), alone, JSON.stringify(limits));
      });
    }
  });

  test("what earlier prompts left in the cache", async () => {
    await withModel(folder, {}, async (model) => {
      const long = { ...requests[4]!, prompt: promptOf(40, 4, 61), maxNewTokens: 6, ignoreEos: true };
      const [first] = await inTurn(model, [long]);
      // The next turn of a conversation begins with the last one.
      const next = { ...long, prompt: [...long.prompt, ...first!.ids, 5, 6], seed: 4 };
      const completion = await model.sample(next);
      expect(model.samplerStats().reusedTokens).toBe(completion.cachedTokens);
      if (name.includes("longrope")) expect(completion.cachedTokens).toBeGreaterThanOrEqual(16);
      else expect(completion.cachedTokens).toBe(long.prompt.length + first!.ids.length - 1);
      const group = await model.sample({ ...next, n: 4 });
      expect(group.cachedTokens).toBe(next.prompt.length - 1);
      await withModel(folder, { hasPrefixCache: false }, async (fresh) => {
        expectSame(completion.samples, await inTurn(fresh, [next]));
        expectSame(group.samples, await inTurn(fresh, [{ ...next, n: 4 }]));
        expect(fresh.samplerStats()).toMatchObject({ reusedTokens: 0, cachedTokens: 0 });
      });
    });
  });
});

describe("with a long context", () => {
  const tokens = (prompt: number[], maxNewTokens: number, seed: number): SampleRequest => ({
    prompt,
    maxNewTokens,
    seed,
    ignoreEos: true,
  });

  test("a prompt that is read in chunks gives what `forward` says, alone and beside others", async () => {
    await withModel(longContext, {}, async (model) => {
      const requests = [PREFILL_CHUNK + 1, 2 * PREFILL_CHUNK + 100, PREFILL_CHUNK - 1, 30].map((length, key) =>
        tokens(promptOf(length, key, 89), 8, key),
      );
      const samples = await atOnce(model, requests);
      for (const [i, { prompt }] of requests.entries()) {
        expect(await logprobError(model, Array.from(prompt), samples[i]!, 1)).toBeLessThan(1e-4);
      }
      await withModel(longContext, { maxBatchedTokens: 100, hasPrefixCache: false }, async (other) => {
        expectSame(await atOnce(other, requests), samples);
      });
    });
  });

  test("a preempted sequence continues as if it had not been preempted", async () => {
    const requests = Array.from({ length: 8 }, (_, key) => tokens(promptOf(20 + key, key, 89), 130, key));
    await withModel(longContext, {}, async (model) => {
      const alone = await atOnce(model, requests);
      expect(model.samplerStats().preemptions).toBe(0);
      const cacheBytes = 520 * cacheBytesPerToken(model.config);
      for (const hasPrefixCache of [true, false]) {
        await withModel(longContext, { cacheBytes, hasPrefixCache }, async (small) => {
          expectSame(await atOnce(small, requests), alone, `prefix cache ${hasPrefixCache}`);
          expect(small.samplerStats().preemptions).toBeGreaterThan(0);
        });
      }
    });
  });
});

test("prompt log-probs are those of `forward`, and the likeliest tokens are in order", async () => {
  await withModel(longContext, {}, async (model) => {
    const prompt = promptOf(150, 1, 89);
    const request = { prompt, maxNewTokens: 3, promptLogprobs: 4, temperature: 0.7, n: 2 };
    await model.sample(request); // tokens that it leaves in the cache must still be scored
    const { promptLogprobs, samples } = await model.sample(request);
    const row = { ids: Int32Array.from(prompt), mask: prompt.map(() => 1) };
    const [output] = await model.forward([row], ["logprobs"], { micro: { rows: 1 } });
    const logits = (await model.logits([row]))[0]!;
    expect(promptLogprobs).toHaveLength(prompt.length);
    expect(promptLogprobs!.map((token) => token === null)).toEqual(prompt.map((_, t) => t === 0));
    for (const [t, token] of promptLogprobs!.entries()) {
      if (token === null) continue;
      expect(token.id).toBe(prompt[t]);
      expect(Math.abs(token.logprob - output!.logprobs![t]!)).toBeLessThan(1e-4);
      const before = logits[t - 1]!;
      const order = [...before.keys()].sort((a, b) => before[b]! - before[a]!);
      expect(token.top.map(({ id }) => id)).toEqual(order.slice(0, 4));
    }
    expect(samples).toHaveLength(2);
  });
});

// ---------------------------------------------------------------- training meanwhile

const likelihood: TokenLoss = {
  key: "likelihood",
  heads: ["logprobs"],
  scalars: ["count"],
  build: ({ logprobs, mask, count }) => ({ loss: div(neg(sum(mul(logprobs!, mask))), count!) }),
};
const adamw: OptimizerStep = { lr: 3e-2, betas: [0.9, 0.95], eps: 1e-8, weightDecay: 0, maxNorm: 1 };
const batch: TokenRow[] = [7, 12].map((length, key) => {
  const ids = Int32Array.from(promptOf(length, key, 61));
  return { ids, mask: Array.from(ids, () => 1) };
});
async function update(model: EmbeddedModel): Promise<void> {
  await model.train(batch, likelihood, { micro: { rows: 2 }, scalars: { count: 17 } });
  await model.step(adamw);
}

describe("an update is seen by the next token", () => {
  const folder = join(fixtures, "logits-more/qwen3_tied");
  const prompt = promptOf(20, 3, 61);
  const request: SampleRequest = { prompt, maxNewTokens: 12, seed: 1, ignoreEos: true };

  test("of the next request, though its prompt was in the cache", async () => {
    await withModel(folder, {}, async (model) => {
      const before = (await model.sample(request)).samples[0]!;
      await update(model);
      expect(await logprobError(model, prompt, before, 1)).toBeGreaterThan(1e-2); // these are other weights
      const { samples, cachedTokens } = await model.sample(request);
      expect(cachedTokens).toBe(0);
      expect(await logprobError(model, prompt, samples[0]!, 1)).toBeLessThan(1e-4);
    });
  });

  test("of a request in flight, which goes on with the new weights", async () => {
    await withModel(folder, {}, async (model) => {
      let updated: Promise<void> | null = null;
      let drawn = 0;
      let drawnBefore = 0;
      const onToken = () => {
        if (++drawn === 5)
          updated = update(model).then(() => {
            drawnBefore = drawn;
          });
      };
      const [sample] = (await model.sample({ ...request, maxNewTokens: 40, onToken })).samples;
      await updated;
      expect(drawnBefore).toBeGreaterThanOrEqual(5);
      expect(drawnBefore).toBeLessThan(40);
      const after = { ids: sample!.ids.slice(drawnBefore), logprobs: sample!.logprobs.slice(drawnBefore) };
      const known = [...prompt, ...sample!.ids.slice(0, drawnBefore)];
      expect(await logprobError(model, known, after, 1)).toBeLessThan(1e-4);
      const old = { ids: sample!.ids.slice(0, drawnBefore), logprobs: sample!.logprobs.slice(0, drawnBefore) };
      expect(await logprobError(model, prompt, old, 1)).toBeGreaterThan(1e-2);
    });
  });

  test("of a model that took over other weights", async () => {
    await withModel(folder, {}, async (model) => {
      await model.sample(request);
      await update(model);
      const saved = join(temporary, "updated");
      await model.save(saved);
      await withModel(folder, {}, async (other) => {
        await other.sample(request);
        await other.load(saved);
        expectSame(await inTurn(other, [request]), await inTurn(model, [request]));
      });
    });
  });
});

test("sampling, forward and training on one model take turns and all finish", async () => {
  await withModel(join(fixtures, "logits-more/qwen3_tied"), {}, async (model) => {
    const request = (seed: number) => ({ prompt: promptOf(9, seed, 61), maxNewTokens: 30, seed, ignoreEos: true });
    const [expected] = await model.forward(batch, ["logprobs"], { micro: { rows: 2 } });
    const sampling = Promise.all([1, 2, 3].map((seed) => model.sample(request(seed))));
    for (let i = 0; i < 4; i++) {
      const [found] = await model.forward(batch, ["logprobs"], { micro: { rows: 1 } });
      found!.logprobs!.forEach((value, t) => {
        expect(Math.abs(value - expected!.logprobs![t]!)).toBeLessThan(1e-5);
      });
      await model.train(batch, likelihood, { micro: { rows: 1 }, scalars: { count: 17 } });
    }
    for (const { samples } of await sampling) expect(samples[0]!.ids).toHaveLength(30);
  });
});

// ---------------------------------------------------------------- closing and errors

const small = () => join(fixtures, "logits-more/llama_mqa");
const endless: SampleRequest = { prompt: [5, 6, 7], maxNewTokens: 60, ignoreEos: true };
const started = () => {
  const { promise, resolve } = Promise.withResolvers<void>();
  return { promise, onToken: () => resolve() };
};

test("closing the model refuses waiting and later requests", async () => {
  const model = await engine.open({ folder: small() });
  const { promise, onToken } = started();
  const sampling = Promise.allSettled([model.sample({ ...endless, onToken }), model.sample({ ...endless, n: 4 })]);
  await promise;
  await model.close();
  for (const result of await sampling) expect(result).toMatchObject({ reason: { message: "the model was closed" } });
  await expect(model.sample(endless)).rejects.toThrow("the model was closed");
});

test("closing the engine refuses waiting requests", async () => {
  const own = new EmbeddedEngine();
  const model = await own.open({ folder: small() });
  const { promise, onToken } = started();
  const sampling = Promise.allSettled([model.sample({ ...endless, onToken }), model.sample(endless)]);
  await promise;
  await own.close();
  for (const result of await sampling) expect(result).toMatchObject({ reason: { message: "the engine was closed" } });
  await expect(model.sample(endless)).rejects.toThrow("the engine was closed");
});

test("weights that are NaN give an error, not samples", async () => {
  await withModel(small(), {}, async (model) => {
    model.weights("model.norm.weight").fill(Number.NaN);
    for (const more of [{}, { temperature: 0 }, { topP: 0.9 }, { repetitionPenalty: 1.1 }, { topK: 3 }]) {
      await expect(model.sample({ ...endless, ...more })).rejects.toThrow("are not numbers (NaN)");
    }
    expect(model.samplerStats()).toMatchObject({ running: 0, waiting: 0 });
  });
});

test("a model that cannot generate says so, and can still be trained and closed", async () => {
  const model = await engine.open({ folder: join(fixtures, "logits-more/llama_value") });
  for (let i = 0; i < 2; i++) await expect(model.sample(endless)).rejects.toThrow(UserError);
  const loss: TokenLoss = {
    key: "values",
    heads: ["values"],
    build: ({ values, mask }) => ({ loss: sum(mul(values!, mask)) }),
  };
  await model.train(batch, loss, { micro: { rows: 2 } });
  await model.step(adamw);
  await model.close();
});

test("300 requests leave nothing running, nothing waiting, and no more in the cache than it holds", async () => {
  await withModel(small(), { cacheBytes: 200_000 }, async (model) => {
    const controllers: AbortController[] = [];
    const requests = Array.from({ length: 300 }, (_, key) => {
      const controller = new AbortController();
      controllers.push(controller);
      const prompt = promptOf(1 + ((key * 13) % 40), key % 7, 61);
      const onToken = () => key % 5 === 0 && controllers[key]!.abort();
      return { prompt, maxNewTokens: 1 + (key % 9), n: 1 + (key % 3), signal: controller.signal, onToken };
    });
    const results = await Promise.allSettled(requests.map((request) => model.sample(request)));
    expect(results.filter(({ status }) => status === "rejected")).toHaveLength(60);
    const stats = model.samplerStats();
    expect(stats).toMatchObject({ running: 0, waiting: 0 });
    expect(stats.cachedTokens).toBeLessThanOrEqual(stats.cacheTokens);
    expect(stats.cacheTokens).toBe(Math.floor(200_000 / cacheBytesPerToken(model.config)));
  });
});

test("10,000 queued requests are served in the order they came", async () => {
  await withModel(small(), {}, async (model) => {
    const order: number[] = [];
    const requests = Array.from({ length: 10_000 }, (_, key) => ({
      prompt: promptOf(3, key % 11, 61),
      maxNewTokens: 1,
      onSample: () => order.push(key),
    }));
    await atOnce(model, requests);
    expect(order).toEqual(requests.map((_, key) => key));
  });
}, 20_000);
