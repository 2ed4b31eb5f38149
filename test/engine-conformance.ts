/**
 * What every engine must do, whatever it computes with: laws over `Engine`, and findings in which two engines must agree.
 *
 * `engineLaws` declares the tests for one engine. The reference of log-probs, gradients and greedy tokens is
 * transformers' own (fixtures/logits*); everything else compares an engine with itself. `findings` is a record of
 * numbers, for `expectAgreement` to hold against another engine's.
 */
import { mkdtemp } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { defaultSettings } from "../scripts/goldens/settings.ts";
import { actorLoss } from "../src/algos/losses/actor-loss.ts";
import { batchScalars } from "../src/algos/losses/aggregate.ts";
import { weightedScores } from "../src/algos/losses/preference-loss.ts";
import { valueLoss } from "../src/algos/losses/value-loss.ts";
import type {
  Engine,
  HeadName,
  MicroBatching,
  Model,
  ModelSpec,
  OptimizerStep,
  TokenLoss,
  TokenOutputs,
  TokenRow,
} from "../src/engine/contract.ts";
import { div, mul, neg, stopGradient, sum } from "../src/graph/ops.ts";
import { parseConfig } from "../src/models/config.ts";
import { readAll, type Tensor } from "../src/models/safetensors.ts";
import type { Sample, SampleRequest } from "../src/rollout/request.ts";
import { UserError } from "../src/util/errors.ts";
import { Random } from "../src/util/random.ts";

export const fixture = (name: string): string => fileURLToPath(new URL(`fixtures/${name}`, import.meta.url));

/** Every family; windows, caps, and two rotary embeddings that depend on the length. */
const references = [
  "llama",
  "llama_tied",
  "llama3_rope",
  "llama_v5",
  "mistral",
  "qwen2",
  "qwen2_v5_sharded_bf16",
  "qwen3",
  "gemma",
  "gemma2",
].map((name) => `logits/${name}`);
const moreReferences = ["gemma2_caps", "llama_longrope_long", "llama_dynamic", "mistral_window", "llama_biases"].map(
  (name) => `logits-more/${name}`,
);

// ---------------------------------------------------------------- batches, losses, weights

const LENGTHS = [13, 3, 21, 8, 2, 17, 5, 12, 9];

/** Rows whose numbers come from `key`; the first and the last token of some count, and one row counts for nothing. */
export function batchOf(key: number, vocabSize = 100): TokenRow[] {
  return LENGTHS.map((length, i) => {
    const random = new Random(key, "row", i);
    const list = (value: () => number) => Array.from({ length }, value);
    const ids = Int32Array.from(list(() => random.int(vocabSize)));
    const mask = list(() => Number(i !== 4 && random.uniform() < 0.7)).map((m, t) => (t === 1 && i !== 4 ? 1 : m));
    const names = ["advantages", "oldLogprobs", "refLogprobs", "oldValues", "returns", "weight"];
    const extra = Object.fromEntries(names.map((name) => [name, list(() => random.normal(0, 1))]));
    for (const name of ["oldLogprobs", "refLogprobs"]) extra[name] = extra[name]!.map((v) => v / 4 - 4.6);
    return { ids, mask, extra };
  });
}

const scalarsOf = (rows: readonly TokenRow[]) =>
  batchScalars(
    rows.map(({ mask }) => Array.from(mask)),
    21,
  );

/** A policy loss with an entropy bonus and a penalty on the KL to the reference. */
const policy: TokenLoss = actorLoss({ ...defaultSettings.actor, entropy_coeff: 0.05, use_kl_loss: true });
const critic: TokenLoss = valueLoss(defaultSettings.critic);

/** The mean negative log-likelihood. */
const likelihood: TokenLoss = {
  key: "likelihood",
  heads: ["logprobs"],
  scalars: ["count"],
  build: ({ logprobs, mask, count }) => ({ loss: div(neg(sum(mul(logprobs!, mask))), count!) }),
};

const adamw: OptimizerStep = { lr: 1e-2, betas: [0.9, 0.95], eps: 1e-8, weightDecay: 0.1, maxNorm: 1 };

type Weights = ReadonlyMap<string, Float32Array>;

/** The weights of a model, by way of its saved folder. */
export async function weightsOf(model: Model, temporary: string): Promise<Weights> {
  const dir = join(await mkdtemp(join(temporary, "weights-")), "model");
  await model.save(dir);
  const tensors = await readAll(join(dir, "model.safetensors"));
  return new Map([...tensors].map(([name, { data }]) => [name, Float32Array.from(data as ArrayLike<number>)]));
}

/**
 * The gradient of a loss, by way of a step that is a function of it alone: without moments AdamW takes g / (|g| + eps)
 * off the weights.
 */
async function gradientOf(model: Model, temporary: string, train: () => Promise<unknown>): Promise<Weights> {
  const before = await weightsOf(model, temporary);
  await train();
  await model.step({ lr: 1, betas: [0, 0], eps: 1, weightDecay: 0, maxNorm: Infinity });
  const after = await weightsOf(model, temporary);
  const inverse = (moved: number) => moved / (1 - Math.abs(moved));
  return new Map([...before].map(([name, old]) => [name, old.map((w, i) => inverse(w - after.get(name)![i]!))]));
}

/** The largest difference of two tensors, relative to the largest entry of the second. */
function relativeError(found: ArrayLike<number>, expected: ArrayLike<number>): number {
  expect(found.length).toBe(expected.length);
  let scale = 1e-8;
  let error = 0;
  for (let i = 0; i < expected.length; i++) {
    scale = Math.max(scale, Math.abs(expected[i]!));
    error = Math.max(error, Math.abs(found[i]! - expected[i]!));
    if (Number.isNaN(found[i]! - expected[i]!)) return Number.NaN;
  }
  return error / scale;
}

/**
 * Every tensor is as near as `limit` to what is expected, in the 2-norm: where a gradient is almost 0 the first steps of
 * AdamW follow the sign of its rounding.
 */
export function expectNear(found: Weights, expected: Weights, limit: number): void {
  expect([...found.keys()].sort()).toEqual([...expected.keys()].sort());
  for (const [name, values] of expected) {
    const norm = (list: Float32Array) => Math.sqrt(list.reduce((sum, v) => sum + v * v, 0));
    const difference = values.map((v, i) => v - found.get(name)![i]!);
    expect(norm(difference) / Math.max(1e-8, norm(values)), name).toBeLessThan(limit);
  }
}

/** Some ordinary steps of training; the metrics of each. */
export async function trainSteps(model: Model, count: number, { loss = policy, from = 0 } = {}) {
  const metrics: Record<string, number>[] = [];
  for (let i = from; i < from + count; i++) {
    const rows = batchOf(i, 90);
    const told = await model.train(rows, loss, { micro: { rows: 2 }, scalars: scalarsOf(rows) });
    metrics.push({ ...told, gradNorm: (await model.step(adamw)).gradNorm });
  }
  return metrics;
}

const tokenRow = (ids: readonly number[], from = 1): TokenRow => ({
  ids: Int32Array.from(ids),
  mask: ids.map((_, t) => Number(t >= from)),
});

/** A model that was just opened has the log-probs, greedy tokens, loss and gradient that its folder's reference has. */
export async function expectReference(model: Model, folder: string, temporary: string): Promise<void> {
  const reference = await readAll(join(folder, "reference.safetensors"));
  const rows = matrixOf(reference.get("input_ids")!).map((ids) => tokenRow(ids));
  const found = await model.forward(rows, ["logprobs"], { micro: { rows: 1 } });
  const logprobs = found.flatMap((row) => [...row.logprobs!.subarray(1)]);
  expect(maxDifference(logprobs, numbersOf(reference.get("logprobs")!))).toBeLessThan(1e-4);

  const prompt = [...rows[0]!.ids];
  if (prompt.length + 8 <= model.config.maxPositions) {
    const { samples } = await model.sample({ prompt, maxNewTokens: 8, temperature: 0, ignoreEos: true });
    expect(samples[0]!.ids).toEqual(numbersOf(reference.get("greedy8")!).slice(-8));
  }

  const count = rows.reduce((total, { ids }) => total + ids.length - 1, 0);
  const gradient = await gradientOf(model, temporary, async () => {
    const { loss } = await model.train(rows, likelihood, { micro: { rows: 1 }, scalars: { count } });
    expect(Math.abs(loss! - numbersOf(reference.get("loss")!)[0]!)).toBeLessThan(1e-4);
  });
  for (const [name, values] of gradient) {
    expect(relativeError(values, numbersOf(reference.get(`grad.${name}`)!)), name).toBeLessThan(1e-3);
  }
}

/** Rows of several lengths, learnt from and sampled together, get the log-probs that each gets alone, and the reference's. */
export async function expectSameAmongOthers(model: Model, folder: string): Promise<void> {
  const reference = await readAll(join(folder, "reference.safetensors"));
  const ids = matrixOf(reference.get("input_ids")!);
  const rows = [ids[0]!, ids[1]!.slice(0, 5), ids[0]!.slice(2, 11), ids[1]!].map((row) => tokenRow(row));
  const forward = (given: readonly TokenRow[], count: number) =>
    model.forward(given, ["logprobs"], { micro: { rows: count } });
  const numbers = (found: readonly TokenOutputs[]) => found.flatMap(({ logprobs }) => [...logprobs!]);
  expect(maxDifference(numbers(await forward(rows, 8)), numbers(await forward(rows, 1)))).toBeLessThan(1e-4);

  const asked = rows.map((row, i) => ({
    prompt: [...row.ids.slice(0, 3 * i + 1)],
    maxNewTokens: 6 + 5 * i,
    seed: i,
    n: 2,
  }));
  const answers = await Promise.all(asked.map((one) => model.sample({ ...one, ignoreEos: true })));
  for (const [i, { samples }] of answers.entries()) {
    const { prompt, maxNewTokens } = asked[i]!;
    for (const sample of samples) {
      expect(sample.ids).toHaveLength(maxNewTokens);
      const [learnt] = await forward([tokenRow([...prompt, ...sample.ids])], 1);
      expect(maxDifference(learnt!.logprobs!.subarray(prompt.length), sample.logprobs)).toBeLessThan(1e-4);
    }
  }
  const after = await forward(
    ids.map((row) => tokenRow(row)),
    1,
  );
  const expected = numbersOf(reference.get("logprobs")!);
  expect(
    maxDifference(
      after.flatMap(({ logprobs }) => [...logprobs!.subarray(1)]),
      expected,
    ),
  ).toBeLessThan(1e-4);
}

// ---------------------------------------------------------------- the laws of one engine

/** Declare the laws; `engine` is asked for once tests run, and `temporary` for a folder to write to. */
export function engineLaws(engine: () => Engine, temporary: () => string): void {
  const use = async (spec: string | ModelSpec, work: (model: Model) => Promise<void>): Promise<void> => {
    const model = await engine().open(typeof spec === "string" ? { folder: fixture(spec) } : spec);
    try {
      await work(model);
    } finally {
      await model.close();
    }
  };

  describe("log-probs, loss, gradient and greedy tokens are transformers'", () => {
    test.each([...references, ...moreReferences])("%s", async (folder) => {
      await use(folder, (model) => expectReference(model, fixture(folder), temporary()));
    });
  });

  describe("training", () => {
    test("a batch gives the same gradient however it is cut", async () => {
      const gradients: Weights[] = [];
      for (const micro of [{ rows: 9 }, { rows: 2 }, { maxTokens: 24 }] satisfies MicroBatching[]) {
        await use("logits/llama_tied", async (model) => {
          const rows = batchOf(1);
          const train = () => model.train(rows, policy, { micro, scalars: scalarsOf(rows) });
          gradients.push(await gradientOf(model, temporary(), train));
        });
      }
      for (const other of gradients.slice(1)) expectNear(other, gradients[0]!, 1e-3);
    });

    test("gradients of batches add up until a step", async () => {
      const rows = batchOf(2);
      const options = { micro: { rows: 3 }, scalars: scalarsOf(rows) };
      const gradients: Weights[] = [];
      for (const parts of [[rows], [rows.slice(0, 2), rows.slice(2)]]) {
        await use("logits/qwen3", async (model) => {
          const train = async () => {
            for (const part of parts) await model.train(part, policy, options);
          };
          gradients.push(await gradientOf(model, temporary(), train));
        });
      }
      expectNear(gradients[1]!, gradients[0]!, 1e-3);
    });

    test("a gradient that is not finite changes nothing, and says so", async () => {
      await use("logits/llama", async (model) => {
        await trainSteps(model, 1);
        const before = await weightsOf(model, temporary());
        await model.train(batchOf(0), likelihood, { micro: { rows: 4 }, scalars: { count: 0 } });
        const { gradNorm, isSkipped } = await model.step(adamw);
        expect(isSkipped).toBe(true);
        expect(Number.isFinite(gradNorm)).toBe(false);
        expect(await weightsOf(model, temporary())).toEqual(before);
        const [after] = await trainSteps(model, 1, { from: 1 });
        await use("logits/llama", async (other) => {
          await trainSteps(other, 1);
          const [uninterrupted] = await trainSteps(other, 1, { from: 1 });
          expect(after).toEqual(uninterrupted);
        });
      });
    });

    test("a batch in which no token counts has a gradient of zero", async () => {
      await use("logits/llama", async (model) => {
        const rows = [tokenRow([5, 6, 7], 3)];
        expect(await model.train(rows, likelihood, { micro: { rows: 1 }, scalars: { count: 1 } })).toEqual({ loss: 0 });
        expect(await model.step(adamw)).toEqual({ gradNorm: 0, isSkipped: false });
      });
    });

    test("a loss may read several numbers of each token, and an extra that a row lacks is named", async () => {
      const one: TokenLoss = {
        key: "one",
        heads: ["logprobs"],
        extra: ["advantages"],
        build: ({ logprobs, advantages, mask }) => ({ loss: sum(mul(mul(logprobs!, advantages!), mask)) }),
      };
      const three: TokenLoss = {
        ...one,
        key: "three",
        extra: [{ name: "parts", width: 3 }],
        build: ({ parts, ...tensors }) => one.build({ ...tensors, advantages: sum(parts!, [-1]) }),
      };
      const rows = batchOf(1);
      const inParts = rows.map(({ ids, mask, extra }) => ({
        ids,
        mask,
        extra: { parts: Array.from(extra!.advantages!).flatMap((value) => [value / 2, 1, value / 2 - 1]) },
      }));
      await use("logits/llama", async (model) => {
        const { loss } = await model.train(rows, one, { micro: { rows: 2 } });
        const { gradNorm } = await model.step({ ...adamw, lr: 0 });
        expect((await model.train(inParts, three, { micro: { rows: 2 } })).loss).toBeCloseTo(loss!, 3);
        expect((await model.step({ ...adamw, lr: 0 })).gradNorm / gradNorm).toBeCloseTo(1, 4);
        await expect(model.train(rows, three, { micro: { rows: 2 } })).rejects.toThrow(
          /The loss `three` reads `parts` of each token, and row 0 of the batch has only /,
        );
      });
    });

    test("a loss that no output changes leaves the decay alone, and later passes see it", async () => {
      const constant: TokenLoss = {
        key: "constant",
        heads: ["logprobs"],
        build: ({ logprobs }) => ({ loss: sum(stopGradient(logprobs!)) }),
      };
      await use("logits/llama", async (model) => {
        const outputs = () => model.forward(batchOf(1), ["logprobs"], { micro: { rows: 9 } });
        const before = await weightsOf(model, temporary());
        const old = await outputs();
        await model.train(batchOf(1), constant, { micro: { rows: 9 } });
        expect(await model.step({ ...adamw, lr: 0.5 })).toEqual({ gradNorm: 0, isSkipped: false });
        const decayed = new Map([...before].map(([name, values]) => [name, values.map((v) => v * (1 - 0.5 * 0.1))]));
        expectNear(await weightsOf(model, temporary()), decayed, 1e-6);
        expect(await outputs()).not.toEqual(old);
      });
    });

    test("a token that is not in the vocabulary is refused, and the model goes on", async () => {
      await use("logits/llama", async (model) => {
        const rows = [tokenRow([5, 100, 7])];
        await expect(model.forward(rows, ["logprobs"], { micro: { rows: 1 } })).rejects.toThrow(UserError);
        expect(await model.forward([tokenRow([5, 6])], ["logprobs"], { micro: { rows: 1 } })).toHaveLength(1);
      });
    });
  });

  describe("folders", () => {
    test.each<ModelSpec>([
      { folder: fixture("logits/llama_tied") },
      { folder: fixture("logits/gemma2"), head: "value", seed: 3 },
      { folder: fixture("logits/qwen2"), head: "score", seed: 3 },
    ])("what is saved opens as what it was: $folder, head $head", async (spec) => {
      const dir = join(temporary(), `saved-${spec.head}-${Math.random()}`);
      const rows = batchOf(3);
      const head: HeadName = spec.head === "value" ? "values" : spec.head === "score" ? "scores" : "logprobs";
      await use(spec, async (model) => {
        const outputs = await model.forward(rows, [head], { micro: { rows: 4 } });
        await model.save(dir);
        await use({ folder: dir }, async (saved) => {
          expect(saved.config.head).toBe(spec.head ?? "lm");
          expect(await saved.forward(rows, [head], { micro: { rows: 4 } })).toEqual(outputs);
        });
      });
    });

    test("a model takes over the weights of another, and a folder that is written over holds the new ones", async () => {
      const dir = join(temporary(), `twice-${Math.random()}`);
      await use("logits/llama", async (model) => {
        await model.save(dir);
        await trainSteps(model, 1);
        await model.save(dir);
        const weights = await weightsOf(model, temporary());
        await use("logits/llama", async (other) => {
          const outputs = (from: Model) => from.forward(batchOf(1), ["logprobs"], { micro: { rows: 9 } });
          expect(await outputs(other)).not.toEqual(await outputs(model));
          await other.load(dir);
          expect(await weightsOf(other, temporary())).toEqual(weights);
          expect(await outputs(other)).toEqual(await outputs(model));
        });
        await expect(model.load(fixture("logits/gemma"))).rejects.toThrow(/holds a gemma model/);
      });
    });

    test("BF16 rounds the weights and nothing else", async () => {
      const dir = join(temporary(), `bf16-${Math.random()}`);
      await use("logits/mistral", async (model) => {
        await model.save(dir, "BF16");
        const weights = await weightsOf(model, temporary());
        await use({ folder: dir }, async (saved) => expectNear(await weightsOf(saved, temporary()), weights, 2 ** -8));
      });
    });

    test("resumed from weights and optimizer state = uninterrupted", async () => {
      const dir = join(temporary(), `resume-${Math.random()}`);
      await use("logits/qwen2", async (model) => {
        await trainSteps(model, 2);
        await model.save(join(dir, "model"));
        await model.saveOptimizer(join(dir, "optimizer"));
        const uninterrupted = await trainSteps(model, 2, { from: 2 });
        await use({ folder: join(dir, "model") }, async (resumed) => {
          await resumed.loadOptimizer(join(dir, "optimizer"));
          expect(await trainSteps(resumed, 2, { from: 2 })).toEqual(uninterrupted);
          expect(await weightsOf(resumed, temporary())).toEqual(await weightsOf(model, temporary()));
        });
      });
    });

    test("a folder without a model is refused with its name", async () => {
      const dir = await mkdtemp(join(temporary(), "empty-"));
      await expect(engine().open({ folder: dir })).rejects.toThrow(dir);
    });
  });

  describe("sampling", () => {
    const promptOf = (length: number, key: number) => {
      const random = new Random(key, "prompt");
      return Array.from({ length }, () => random.int(90));
    };
    /** All kinds of requests. */
    const mixed: SampleRequest[] = [1, 5, 13, 22, 30, 8, 17, 2, 26, 11].map((length, key) => ({
      prompt: promptOf(length, key),
      maxNewTokens: 4 + ((key * 7) % 19),
      temperature: [0, 1, 0.7, 1.5][key % 4]!,
      seed: 100 + key,
      ...(key % 3 === 0 ? { topK: 12 } : key % 3 === 1 ? { topP: 0.9, minP: 0.01 } : {}),
      ...(key % 4 === 1 ? { repetitionPenalty: 1.2, presencePenalty: 0.3, frequencyPenalty: 0.1 } : {}),
      ...(key % 5 === 2 ? { logitBias: { 7: 2, 9: -5 }, minNewTokens: 3 } : {}),
      ...(key % 5 === 3 ? { n: 3 } : {}),
      topLogprobs: key % 3,
    }));

    describe.each(["logits/llama", "logits/gemma2", "logits-more/llama_longrope_long"])("from %s", (folder) => {
      let model: Model;
      beforeAll(async () => {
        model = await engine().open({ folder: fixture(folder) });
      });
      afterAll(() => model.close());
      const requests = () =>
        mixed.map((request) => ({
          ...request,
          prompt: Array.from(request.prompt, (id) => id % model.config.vocabSize).slice(
            0,
            model.config.maxPositions - 9,
          ),
        }));

      test("log-probs are those of `forward`", async () => {
        const { vocabSize, maxPositions } = model.config;
        for (const temperature of [1, 0.6]) {
          const prompt = promptOf(9, 5).map((id) => id % vocabSize);
          const maxNewTokens = Math.min(20, maxPositions - 9);
          const { samples } = await model.sample({ prompt, maxNewTokens, temperature, n: 3, seed: 1, ignoreEos: true });
          for (const { ids, logprobs } of samples) {
            if (folder.includes("longrope") && ids.length > 0) {
              await expectStepwise(model, { prompt, ids, logprobs, temperature });
              continue;
            }
            const row = tokenRow([...prompt, ...ids], prompt.length);
            const [output] = await model.forward([row], ["logprobs"], { micro: { rows: 1 }, temperature });
            expect(maxDifference(output!.logprobs!.subarray(prompt.length), logprobs)).toBeLessThan(1e-4);
          }
        }
      });

      test("what a request gets does not depend on what else runs", async () => {
        const alone: Sample[] = [];
        for (const request of requests()) alone.push(...(await model.sample(request)).samples);
        const together = await Promise.all(requests().map((request) => model.sample(request)));
        expectSame(
          together.flatMap(({ samples }) => samples),
          alone,
        );
      });
    });

    test("a sample ends at a stop token, at the model's own, or at its length, and says which", async () => {
      await use("logits/llama", async (model) => {
        const ask = { prompt: promptOf(4, 1), seed: 3, maxNewTokens: 40 };
        const free = (await model.sample({ ...ask, ignoreEos: true })).samples[0]!;
        expect(free).toMatchObject({ finishReason: "length", stopReason: null });
        expect(free.ids).toHaveLength(40);
        const stopId = free.ids[7]!;
        const stopped = (await model.sample({ ...ask, ignoreEos: true, stopIds: [stopId] })).samples[0]!;
        expect(stopped).toMatchObject({ finishReason: "stop", stopReason: stopId });
        expect(stopped.ids).toEqual(free.ids.slice(0, free.ids.indexOf(stopId) + 1));
        const own = (await model.sample({ ...ask, logitBias: { 2: 100 } })).samples[0]!;
        expect(own).toMatchObject({ ids: [2], finishReason: "stop", stopReason: null });
        const later = (await model.sample({ ...ask, logitBias: { 2: 100 }, minNewTokens: 5 })).samples[0]!;
        expect(later.ids.indexOf(2)).toBe(5);
        const { length } = (await model.sample({ ...ask, prompt: promptOf(60, 1), ignoreEos: true })).samples[0]!.ids;
        expect(length).toBe(4); // the context is 64 tokens
      });
    });

    test("a stop text ends a sample before it, and text comes in order", async () => {
      await use({ folder: fixture("logits/llama"), tokenizerFolder: fixture("text/added") }, async (model) => {
        const ask = { prompt: promptOf(4, 1), seed: 3, maxNewTokens: 30, ignoreEos: true };
        const heard: string[] = [];
        const { samples } = await model.sample({ ...ask, wantsText: true, onToken: ({ text }) => heard.push(text) });
        const { text, ids } = samples[0]!;
        expect(text.length).toBeGreaterThan(4);
        expect(heard).toHaveLength(ids.length);
        expect(heard.join("")).toBe(text);
        const stop = text.slice(3, 5);
        const stopped = (await model.sample({ ...ask, stop: [stop] })).samples[0]!;
        expect(stopped).toMatchObject({
          finishReason: "stop",
          stopReason: stop,
          text: text.slice(0, text.indexOf(stop)),
        });
        expect(stopped.ids).toEqual(ids.slice(0, stopped.ids.length));
      });
    });

    test("prompt log-probs are those of `forward`", async () => {
      await use("logits/llama", async (model) => {
        const prompt = promptOf(20, 2);
        const completion = await model.sample({ prompt, maxNewTokens: 2, promptLogprobs: 2, n: 2, seed: 1 });
        const [output] = await model.forward([tokenRow(prompt)], ["logprobs"], { micro: { rows: 1 } });
        const told = completion.promptLogprobs!;
        expect(told.map((token) => token?.id ?? null)).toEqual([null, ...prompt.slice(1)]);
        const logprobs = told.map((token) => token?.logprob ?? 0);
        expect(maxDifference(logprobs, output!.logprobs!)).toBeLessThan(1e-4);
        for (const token of told.slice(1)) expect(token!.top[0]!.logprob).toBeGreaterThanOrEqual(token!.logprob);
      });
    });

    test("a request that is cancelled ends at once, and the others go on", async () => {
      await use("logits/llama", async (model) => {
        const ask = { prompt: promptOf(4, 1), seed: 3, maxNewTokens: 30, ignoreEos: true };
        const alone = await model.sample(ask);
        const controller = new AbortController();
        const onToken = () => controller.abort(new Error("enough"));
        const [other] = await Promise.all([
          model.sample(ask),
          expect(model.sample({ ...ask, seed: 4, n: 2, signal: controller.signal, onToken })).rejects.toThrow("enough"),
        ]);
        expectSame(other.samples, alone.samples);
        expect(model.samplerStats()).toMatchObject({ running: 0, waiting: 0 });
      });
    });

    test("after a step tokens are drawn from the new weights", async () => {
      await use("logits/llama", async (model) => {
        const ask = { prompt: promptOf(6, 1), maxNewTokens: 12, seed: 5, ignoreEos: true };
        const before = await model.sample(ask);
        const inFlight = model.sample({ ...ask, maxNewTokens: 50 });
        await trainSteps(model, 2);
        await inFlight;
        const { ids, logprobs } = (await model.sample(ask)).samples[0]!;
        expect(ids).not.toEqual(before.samples[0]!.ids);
        const row = tokenRow([...ask.prompt, ...ids], ask.prompt.length);
        const [output] = await model.forward([row], ["logprobs"], { micro: { rows: 1 } });
        expect(maxDifference(output!.logprobs!.subarray(ask.prompt.length), logprobs)).toBeLessThan(1e-4);
      });
    });

    test("a model with another head cannot generate, and says so", async () => {
      await use({ folder: fixture("logits/llama"), head: "value" }, async (model) => {
        await expect(model.sample({ prompt: [1], maxNewTokens: 1 })).rejects.toThrow(/cannot generate/);
      });
    });
  });
}

/** Where positions mean something else past a length, each token by what was known when it was drawn. */
async function expectStepwise(
  model: Model,
  drawn: { prompt: number[]; ids: readonly number[]; logprobs: readonly number[]; temperature: number },
): Promise<void> {
  const all = [...drawn.prompt, ...drawn.ids];
  const rows = drawn.ids.map((_, i) => tokenRow(all.slice(0, drawn.prompt.length + i + 1), drawn.prompt.length + i));
  const options = { micro: { rows: 1 }, temperature: drawn.temperature };
  const outputs = await model.forward(rows, ["logprobs"], options);
  const { scaling } = parseConfig(model.config.raw, "config.json").layers[0]!.position;
  const border = scaling.type === "longrope" ? scaling.originalPositions : Infinity;
  // The row of a token ends with it, so its own length is one more than what was known.
  outputs.forEach(({ logprobs }, i) => {
    if (rows[i]!.ids.length === border + 1) return;
    expect(Math.abs(logprobs!.at(-1)! - drawn.logprobs[i]!), `token ${i}`).toBeLessThan(1e-4);
  });
}

// ---------------------------------------------------------------- what two engines agree on

/** Numbers that depend on nothing but the weights and the batches. */
export type Findings = {
  readonly outputs: Readonly<Record<string, readonly number[]>>;
  readonly metrics: Readonly<Record<string, readonly Readonly<Record<string, number>>[]>>;
  readonly weights: Readonly<Record<string, Weights>>;
  readonly tokens: readonly (readonly number[])[];
};

/** What an engine makes of three heads of three models: outputs, two steps of training, and samples after them. */
export async function findings(engine: Engine, temporary: string): Promise<Findings> {
  const cases: readonly { spec: ModelSpec; heads: readonly HeadName[]; loss: TokenLoss }[] = [
    { spec: { folder: fixture("logits/llama") }, heads: ["logprobs", "entropy", "sumPiSquared"], loss: policy },
    { spec: { folder: fixture("logits/gemma2"), head: "value", seed: 5 }, heads: ["values"], loss: critic },
    { spec: { folder: fixture("logits/qwen3"), head: "score", seed: 5 }, heads: ["scores"], loss: weightedScores },
  ];
  const outputs: Record<string, number[]> = {};
  const metrics: Record<string, Record<string, number>[]> = {};
  const weights: Record<string, Weights> = {};
  const tokens: (readonly number[])[] = [];
  for (const { spec, heads, loss } of cases) {
    const model = await engine.open(spec);
    const found = await model.forward(batchOf(7), heads, { micro: { maxTokens: 40 }, temperature: 0.8 });
    for (const head of heads) outputs[head] = found.flatMap((row) => [...row[head]!]);
    metrics[loss.key] = await trainSteps(model, 2, { loss });
    weights[spec.folder] = await weightsOf(model, temporary);
    if (model.config.head === "lm") {
      const request = { prompt: [3, 1, 4, 1, 5], maxNewTokens: 16, n: 3, seed: 11, topP: 0.95 };
      tokens.push(...(await model.sample(request)).samples.map(({ ids }) => ids));
    }
    await model.close();
  }
  return { outputs, metrics, weights, tokens };
}

/** Outputs within 1e-4, metrics and next weights within 1e-3 of their scale, the same tokens. */
export function expectAgreement(found: Findings, expected: Findings): void {
  for (const [head, values] of Object.entries(expected.outputs)) {
    expect(maxDifference(found.outputs[head]!, values), head).toBeLessThan(1e-4);
  }
  for (const [loss, steps] of Object.entries(expected.metrics)) {
    steps.forEach((step, i) => {
      const names = Object.keys(step);
      expect(Object.keys(found.metrics[loss]![i]!).sort()).toEqual([...names].sort());
      for (const name of names) {
        const difference = Math.abs(found.metrics[loss]![i]![name]! - step[name]!);
        expect(difference, `${name} in step ${i}`).toBeLessThan(1e-3 * Math.max(0.1, Math.abs(step[name]!)));
      }
    });
  }
  for (const [folder, weights] of Object.entries(expected.weights)) expectNear(found.weights[folder]!, weights, 1e-3);
  expect(found.tokens).toEqual(expected.tokens);
}

// ---------------------------------------------------------------- numbers

function numbersOf({ data }: Tensor): number[] {
  return Array.from(data as ArrayLike<number | bigint>, Number);
}

function matrixOf(tensor: Tensor): number[][] {
  const values = numbersOf(tensor);
  const [rows, columns] = tensor.shape as [number, number];
  return Array.from({ length: rows }, (_, i) => values.slice(i * columns, (i + 1) * columns));
}

function maxDifference(a: ArrayLike<number>, b: ArrayLike<number>): number {
  expect(a.length).toBe(b.length);
  return Math.max(...Array.from(a, (value, i) => Math.abs(value - b[i]!)));
}

/** The same tokens, and the same log-probs to rounding. */
function expectSame(found: readonly Sample[], expected: readonly Sample[]): void {
  expect(found.map(({ ids }) => ids)).toEqual(expected.map(({ ids }) => ids));
  for (const [i, { logprobs, finishReason, stopReason, top }] of expected.entries()) {
    expect(found[i]).toMatchObject({ finishReason, stopReason });
    expect(maxDifference(found[i]!.logprobs, logprobs), `sample ${i}`).toBeLessThan(2e-5);
    expect(found[i]!.top.map((list) => list.length)).toEqual(top.map((list) => list.length));
  }
}
