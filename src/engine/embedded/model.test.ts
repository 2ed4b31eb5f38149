/**
 * Laws of a model on the embedded engine, on small models with random weights: how a batch is cut, padded, queued,
 * stopped or saved never changes the results. test/parity.test.ts checks that the numbers are right.
 */
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Node } from "../../graph/node.ts";
import { add, div, mul, neg, square, sub, sum } from "../../graph/ops.ts";
import { parameterSpecs } from "../../models/config.ts";
import { openForReading, readAll, readHeader, writeSafetensors } from "../../models/safetensors.ts";
import { Random } from "../../util/random.ts";
import type { MicroBatching, OptimizerStep, TokenLoss, TokenRow } from "../contract.ts";
import { EmbeddedEngine } from "./engine.ts";
import type { EmbeddedModel } from "./model.ts";

const fixture = (name: string) => fileURLToPath(new URL(`../../../test/fixtures/${name}`, import.meta.url));
/** Untied with one key head; tied with normed heads; soft caps, windows and norms on all sides. */
const folders = ["logits-more/llama_mqa", "logits-more/qwen3_tied", "logits-more/gemma2_caps"];
const llama = folders[0]!;

const engine = new EmbeddedEngine();
let temporary = "";
beforeAll(async () => {
  temporary = await mkdtemp(join(tmpdir(), "model-"));
});
afterAll(async () => {
  await engine.close();
  await rm(temporary, { recursive: true });
});

const open = (name: string, on = engine) => on.open({ folder: fixture(name) });

// ---------------------------------------------------------------- batches and losses

const VOCABULARY = 61;
const LENGTHS = [13, 3, 21, 8, 2, 17, 5, 12];

function randomRow(random: Random, length: number): TokenRow {
  const list = (value: () => number) => Array.from({ length }, value);
  const ids = Int32Array.from(list(() => random.int(VOCABULARY)));
  // The second token always counts, so that every row does.
  const mask = list(() => Number(random.uniform() < 0.7)).map((m, t) => (t === 1 ? 1 : m));
  return { ids, mask, extra: { advantages: list(() => random.normal()) } };
}

const rows = LENGTHS.map((length, i) => randomRow(new Random(1, i), length));
const countOf = (batch: readonly TokenRow[]) =>
  batch.reduce((total, { mask }) => total + Array.from(mask).reduce((a, m, t) => (t === 0 ? a : a + m), 0), 0);

const masked = (values: Node, mask: Node): Node => sum(mul(values, mask));

/** A policy gradient with an entropy bonus, divided by a number that comes with the batch. */
const policyLoss: TokenLoss = {
  key: "policy",
  heads: ["logprobs", "entropy"],
  extra: ["advantages"],
  scalars: ["count"],
  build: ({ logprobs, entropy, advantages, mask, count }) => {
    const gain = add(mul(logprobs!, advantages!), mul(entropy!, 0.1));
    return { loss: div(neg(masked(gain, mask)), count!), metrics: { entropy: masked(entropy!, mask) } };
  },
};

const likelihoodLoss: TokenLoss = {
  key: "likelihood",
  heads: ["logprobs"],
  scalars: ["count"],
  build: ({ logprobs, mask, count }) => ({ loss: div(neg(masked(logprobs!, mask)), count!) }),
};

const together: MicroBatching = { rows: LENGTHS.length };
const train = (model: EmbeddedModel, batch = rows, micro: MicroBatching = together, loss = policyLoss) =>
  model.train(batch, loss, { micro, scalars: { count: countOf(rows) } });

const adamw: OptimizerStep = { lr: 1e-2, betas: [0.9, 0.95], eps: 1e-8, weightDecay: 0.1, maxNorm: 1 };

const namesOf = (model: EmbeddedModel) => parameterSpecs(model.config).map(({ name }) => name);
const copyOf = (model: EmbeddedModel, view: "weights" | "gradient") =>
  new Map(namesOf(model).map((name) => [name, model[view](name).slice()]));

/** Every entry is as near as rounding of single precision allows, on the scale of each tensor. */
function expectNear(found: ReadonlyMap<string, Float32Array>, expected: ReadonlyMap<string, Float32Array>): void {
  for (const [name, values] of expected) {
    const scale = values.reduce((most, value) => Math.max(most, Math.abs(value)), 1e-6);
    const error = values.reduce((most, value, i) => Math.max(most, Math.abs(value - found.get(name)![i]!)), 0);
    expect(error / scale, name).toBeLessThan(2e-5);
  }
}

async function steps(model: EmbeddedModel, count: number): Promise<void> {
  for (let i = 0; i < count; i++) {
    await train(model, rows.slice(i % 4), { rows: 3 });
    await model.step(adamw);
  }
}

// ---------------------------------------------------------------- forward

describe.each(folders)("forward of %s", (folder) => {
  let model: EmbeddedModel;
  beforeAll(async () => {
    model = await open(folder);
  });
  afterAll(() => model.close());
  const forward = (batch: readonly TokenRow[], micro: MicroBatching) =>
    model.forward(batch, ["logprobs", "entropy"], { micro });

  test.each<MicroBatching>([{ rows: 8 }, { rows: 3 }, { maxTokens: 48 }])("batched by %j = alone", async (micro) => {
    const batched = await forward(rows, micro);
    for (const [i, row] of rows.entries()) {
      const [alone] = await forward([row], { rows: 1 });
      for (const head of ["logprobs", "entropy"] as const) {
        for (const [t, value] of alone![head]!.entries()) {
          expect(Math.abs(batched[i]![head]![t]! - value), `row ${i}, token ${t}, ${head}`).toBeLessThan(1e-5);
        }
      }
    }
  });

  test("is 0 where the mask is 0, and at the first token", async () => {
    for (const [i, { logprobs, entropy }] of (await forward(rows, together)).entries()) {
      Array.from(rows[i]!.mask).forEach((m, t) => {
        expect(logprobs![t] !== 0, `row ${i}, token ${t}`).toBe(m === 1 && t > 0);
        expect(entropy![t] !== 0, `row ${i}, token ${t}`).toBe(m === 1 && t > 0);
      });
    }
  });

  test("does not look ahead: what follows a token does not change it", async () => {
    const long = rows[2]!;
    const short = { ids: long.ids.slice(0, 11), mask: Array.from(long.mask).slice(0, 11) };
    const [whole, part] = [await forward([long], together), await forward([short], together)];
    part[0]!.logprobs!.forEach((value, t) => {
      expect(Math.abs(value - whole[0]!.logprobs![t]!)).toBeLessThan(1e-5);
    });
  });

  test("of a short row is the same beside any longer one", async () => {
    const short = rows[1]!;
    const beside = async (length: number) =>
      (await forward([short, randomRow(new Random(length), length)], together))[0]!.logprobs!;
    const [first, ...rest] = [await beside(4), await beside(22), await beside(37)];
    for (const other of rest) {
      other.forEach((value, t) => {
        expect(Math.abs(value - first[t]!)).toBeLessThan(1e-5);
      });
    }
  });

  test("at a temperature is the distribution that dividing the logits gives", async () => {
    // Every token in turn as the last one: their log-probs are the logits up to a constant.
    const lasts = Array.from(
      { length: VOCABULARY },
      (_, id): TokenRow => ({ ids: Int32Array.of(7, 3, id), mask: [0, 0, 1] }),
    );
    const temperature = 0.6;
    const ask = (options: { temperature?: number }) =>
      model.forward(lasts, ["logprobs", "entropy"], { micro: { rows: 16 }, ...options });
    const [plain, tempered] = [await ask({}), await ask({ temperature })];
    const scaled = plain.map(({ logprobs }) => logprobs![2]! / temperature);
    const total = Math.log(scaled.reduce((sum, value) => sum + Math.exp(value), 0));
    const entropy = scaled.reduce((sum, value) => sum - Math.exp(value - total) * (value - total), 0);
    expect(plain.reduce((sum, { logprobs }) => sum + Math.exp(logprobs![2]!), 0)).toBeCloseTo(1, 5);
    for (const [id, made] of tempered.entries()) {
      expect(made.logprobs![2]).toBeCloseTo(scaled[id]! - total, 4);
      expect(made.entropy![2]).toBeCloseTo(entropy, 4);
    }
  });
});

describe("calls", () => {
  test("made at the same time give the same as one after the other", async () => {
    const [a, b] = [await open(folders[0]!), await open(folders[1]!)];
    const ask = (model: EmbeddedModel, batch: readonly TokenRow[], micro: MicroBatching) =>
      model.forward(batch, ["logprobs"], { micro });
    const asks = [
      () => ask(a, rows, { rows: 3 }),
      () => ask(b, rows, { rows: 2 }),
      () => ask(a, rows.slice(2), { rows: 1 }),
      () => ask(b, rows.slice(5), { rows: 8 }),
      () => ask(a, rows.toReversed(), { maxTokens: 50 }),
    ];
    const apart = [];
    for (const one of asks) apart.push(await one());
    expect(await Promise.all(asks.map((one) => one()))).toEqual(apart);
    await a.close();
    await b.close();
  });

  test("see what the calls before them did, in the order they were made", async () => {
    const [queued, awaited] = [await open(llama), await open(llama)];
    const work = (model: EmbeddedModel) => [
      () => train(model),
      () => model.step(adamw),
      () => model.forward(rows, ["logprobs"], { micro: together }),
      () => train(model),
      () => model.step(adamw),
    ];
    const apart = [];
    for (const one of work(awaited)) apart.push(await one());
    expect(await Promise.all(work(queued).map((one) => one()))).toEqual(apart);
    expect(copyOf(queued, "weights")).toEqual(copyOf(awaited, "weights"));
  });

  test("still work after one that failed", async () => {
    const model = await open(llama);
    const ask = () => model.forward(rows, ["logprobs"], { micro: together });
    const before = await ask();
    await expect(model.train(rows, policyLoss, { micro: together })).rejects.toThrow("needs the number count");
    expect(await ask()).toEqual(before);
  });
});

// ---------------------------------------------------------------- gradients

describe.each(folders)("the gradient of %s", (folder) => {
  let model: EmbeddedModel;
  let metrics: Readonly<Record<string, number>>;
  let whole: Map<string, Float32Array>;
  beforeAll(async () => {
    model = await open(folder);
    metrics = await train(model);
    whole = copyOf(model, "gradient");
    await model.step({ ...adamw, lr: 0 });
  });
  afterAll(() => model.close());
  const forget = () => model.step({ ...adamw, lr: 0, weightDecay: 0 });

  test("reaches every parameter", () => {
    for (const [name, gradient] of whole)
      expect(
        gradient.some((value) => value !== 0),
        name,
      ).toBe(true);
  });

  test.each<MicroBatching>([{ rows: 1 }, { rows: 3 }, { maxTokens: 48 }])("of 1x8 = that cut by %j", async (micro) => {
    const cut = await train(model, rows, micro);
    expectNear(copyOf(model, "gradient"), whole);
    for (const [name, value] of Object.entries(metrics)) expect(cut[name], name).toBeCloseTo(value, 4);
    await forget();
  });

  test("of two calls adds up to that of one", async () => {
    const first = await train(model, rows.slice(0, 3));
    const second = await train(model, rows.slice(3));
    expectNear(copyOf(model, "gradient"), whole);
    expect(first.loss! + second.loss!).toBeCloseTo(metrics.loss!, 5);
    await forget();
  });

  test("does not change with a row in which no token counts", async () => {
    const silent: TokenRow = {
      ids: rows[2]!.ids,
      mask: new Array(21).fill(0),
      extra: { advantages: new Array(21).fill(9) },
    };
    const found = await train(model, [...rows, silent], { rows: 9 });
    expectNear(copyOf(model, "gradient"), whole);
    expect(found.loss).toBeCloseTo(metrics.loss!, 5);
    await train(model, [silent, silent], { rows: 1 });
    expectNear(copyOf(model, "gradient"), whole);
    await forget();
  });

  test("is the slope of the loss", async () => {
    const loss = async () => {
      const outputs = await model.forward(rows, ["logprobs", "entropy"], { micro: together });
      const total = outputs.reduce(
        (sum, { logprobs, entropy }, i) =>
          logprobs!.reduce((a, value, t) => a + value * rows[i]!.extra!.advantages![t]! + 0.1 * entropy![t]!, sum),
        0,
      );
      return -total / countOf(rows);
    };
    for (const [name, gradient] of whole) {
      // The entry of the largest slope: there the rounding of the loss matters least.
      const at = gradient.reduce((best, value, i) => (Math.abs(value) > Math.abs(gradient[best]!) ? i : best), 0);
      const weights = model.weights(name);
      const kept = weights[at]!;
      const around = async (offset: number) => {
        weights[at] = kept + offset;
        const width = weights[at]! - kept;
        return { width, loss: await loss() };
      };
      const [up, down] = [await around(4e-3), await around(-4e-3)];
      weights[at] = kept;
      const slope = (up.loss - down.loss) / (up.width - down.width);
      expect(Math.abs(slope - gradient[at]!) / Math.abs(gradient[at]!), name).toBeLessThan(0.02);
    }
  });
});

// ---------------------------------------------------------------- steps

describe("a step", () => {
  test("is torch's AdamW with torch's clipping, whether the norm is above or below the limit", async () => {
    const model = await open(llama);
    const name = "model.layers.1.mlp.up_proj.weight";
    const expected = Float64Array.from(model.weights(name));
    const [m, v] = [new Float64Array(expected.length), new Float64Array(expected.length)];
    for (const [index, maxNorm] of [0.05, 1e9].entries()) {
      const { lr, betas, eps, weightDecay } = adamw;
      await train(model);
      const norm = Math.hypot(...[...copyOf(model, "gradient").values()].flatMap((gradient) => [...gradient]));
      const scale = Math.min(1, maxNorm / (norm + 1e-6));
      model.gradient(name).forEach((raw, i) => {
        const g = raw * scale;
        m[i] = m[i]! * betas[0] + g * (1 - betas[0]);
        v[i] = v[i]! * betas[1] + g * g * (1 - betas[1]);
        const [mHat, vHat] = [m[i]! / (1 - betas[0] ** (index + 1)), v[i]! / (1 - betas[1] ** (index + 1))];
        expected[i] = expected[i]! * (1 - lr * weightDecay) - (lr * mHat) / (Math.sqrt(vHat) + eps);
      });
      const result = await model.step({ ...adamw, maxNorm });
      expect(result.gradNorm).toBeCloseTo(norm, 5);
      expect(result.isSkipped).toBe(false);
      model.weights(name).forEach((weight, i) => {
        expect(Math.abs(weight - expected[i]!)).toBeLessThan(2e-5);
      });
    }
  });

  test("forgets the gradient: the next one is that of the next batch alone", async () => {
    const [used, fresh] = [await open(llama), await open(llama)];
    await train(used, rows.slice(0, 4));
    await used.step({ ...adamw, lr: 0 });
    await train(used, rows.slice(4));
    await train(fresh, rows.slice(4));
    expect(copyOf(used, "gradient")).toEqual(copyOf(fresh, "gradient"));
  });

  const silent: TokenRow = { ids: Int32Array.of(4, 5, 6), mask: [1, 0, 0], extra: { advantages: [1, 2, 3] } };
  const expectNoGradient = (model: EmbeddedModel) => {
    for (const [name, gradient] of copyOf(model, "gradient")) {
      expect(
        gradient.every((value) => value === 0),
        name,
      ).toBe(true);
    }
  };

  test("leaves no gradient for a batch in which no token counts", async () => {
    const model = await open(llama);
    await train(model);
    await model.step(adamw);
    await train(model, [silent]);
    expectNoGradient(model);
  });

  test("after a batch in which no token counts only decays the weights", async () => {
    const model = await open(llama);
    expect(await train(model, [silent])).toMatchObject({ loss: 0 });
    expectNoGradient(model);
    const before = copyOf(model, "weights");
    expect(await model.step(adamw)).toEqual({ gradNorm: 0, isSkipped: false });
    const decay = Math.fround(1 - adamw.lr * adamw.weightDecay);
    for (const [name, weights] of before) {
      expect(
        model.weights(name).every((weight, i) => weight === Math.fround(weights[i]! * decay)),
        name,
      ).toBe(true);
    }
  });

  test.each([Number.NaN, Number.POSITIVE_INFINITY])("with a weight of %d is skipped without a trace", async (bad) => {
    const [hit, spared] = [await open(llama), await open(llama)];
    await Promise.all([steps(hit, 2), steps(spared, 2)]);
    const weights = hit.weights("model.layers.0.mlp.gate_proj.weight");
    const kept = weights[7]!;
    weights[7] = bad;
    const before = copyOf(hit, "weights");
    await hit.saveOptimizer(join(temporary, `before ${bad}`));
    await train(hit);
    const result = await hit.step(adamw);
    expect(result.isSkipped).toBe(true);
    expect(Number.isFinite(result.gradNorm)).toBe(false);
    expect(copyOf(hit, "weights")).toEqual(before);
    await hit.saveOptimizer(join(temporary, `after ${bad}`));
    expect(await optimizerFile(`after ${bad}`)).toEqual(await optimizerFile(`before ${bad}`));
    weights[7] = kept;
    await Promise.all([steps(hit, 2), steps(spared, 2)]);
    expect(copyOf(hit, "weights")).toEqual(copyOf(spared, "weights"));
  });

  test("repeated lowers the loss", async () => {
    const model = await open(llama);
    const losses: number[] = [];
    for (let i = 0; i < 25; i++) {
      const { loss } = await train(model, rows, { rows: 4 }, likelihoodLoss);
      losses.push(loss!);
      await model.step(adamw);
    }
    expect(losses.at(-1)!).toBeLessThan(losses[0]! / 3);
  });
});

async function optimizerFile(folder: string) {
  const path = join(temporary, folder, "optimizer.safetensors");
  const file = await openForReading(path);
  const { metadata } = await readHeader(file, path).finally(() => file.close());
  return { metadata, tensors: await readAll(path) };
}

// ---------------------------------------------------------------- saving

describe.each(folders)("%s", (folder) => {
  test("saved and opened again has the same weights, bit for bit, and the same log-probs", async () => {
    const model = await open(folder);
    await steps(model, 1);
    const saved = join(temporary, `saved ${folder}`);
    await model.save(saved);
    const again = await engine.open({ folder: saved });
    expect(copyOf(again, "weights")).toEqual(copyOf(model, "weights"));
    const ask = (of: EmbeddedModel) => of.forward(rows, ["logprobs"], { micro: together });
    expect(await ask(again)).toEqual(await ask(model));
  });

  test("a save that nobody waits for has the weights of its call; passes go on meanwhile, and an update waits", async () => {
    const [model, other] = [await open(folder), await open(folder)];
    await steps(model, 1);
    await steps(other, 1);
    const [early, late] = [join(temporary, `early ${folder}`), join(temporary, `late ${folder}`)];
    await other.save(late);
    await other.saveOptimizer(join(late, "optimizer"));
    const order: string[] = [];
    const writing = [model.save(early), model.saveOptimizer(join(early, "optimizer"))].map((write) =>
      write.then(() => order.push("written")),
    );
    await model.forward(rows.slice(0, 1), ["logprobs"], { micro: together });
    await steps(model, 2).then(() => order.push("updated"));
    await Promise.all(writing);
    expect(order).toEqual(["written", "written", "updated"]);
    for (const file of ["model.safetensors", "optimizer/optimizer.safetensors"])
      expect(await readFile(join(early, file))).toEqual(await readFile(join(late, file)));
  });

  test("resumed = uninterrupted, bit for bit", async () => {
    const model = await open(folder);
    await steps(model, 3);
    const saved = join(temporary, `resumed ${folder}`);
    await model.save(saved);
    await model.saveOptimizer(saved);
    const resumed = await engine.open({ folder: saved });
    await resumed.loadOptimizer(saved);
    await steps(model, 3);
    await steps(resumed, 3);
    expect(copyOf(resumed, "weights")).toEqual(copyOf(model, "weights"));
  });
});

describe("optimizer state is refused, with the file and what is wrong in the message,", () => {
  test("when it belongs to a model with other parameters", async () => {
    const [model, other] = [await open(folders[0]!), await open("logits-more/llama_biases")];
    await model.saveOptimizer(join(temporary, "fewer"));
    await expect(other.loadOptimizer(join(temporary, "fewer"))).rejects.toThrow(
      /optimizer\.safetensors.*`exp_avg\.model\.layers\.0\.self_attn\.q_proj\.bias`/,
    );
  });

  test("when it belongs to a model of another shape", async () => {
    const [model, other] = [await open(folders[0]!), await open("logits/llama")];
    await model.saveOptimizer(join(temporary, "narrower"));
    await expect(other.loadOptimizer(join(temporary, "narrower"))).rejects.toThrow(
      /^\S.*optimizer\.safetensors.*`exp_avg\.model\.embed_tokens\.weight`/,
    );
  });

  test("when it does not say how many steps it has seen", async () => {
    const model = await open(llama);
    const tensors = ["exp_avg", "exp_avg_sq"].flatMap((prefix) =>
      parameterSpecs(model.config).map(({ name, shape }) => ({
        name: `${prefix}.${name}`,
        shape,
        data: () => new Float32Array(model.weights(name).length),
      })),
    );
    const dir = join(temporary, "stepless");
    await writeSafetensors(join(dir, "optimizer.safetensors"), tensors, { dtype: "F32" });
    await expect(model.loadOptimizer(dir)).rejects.toThrow(/optimizer\.safetensors.*step/);
  });
});

// ---------------------------------------------------------------- engines

describe("an engine", () => {
  test("keeps two models apart, also when they are of one shape", async () => {
    const alone = await open(llama);
    await steps(alone, 3);
    const [a, b] = [await open(llama), await open(llama)];
    const untouched = copyOf(b, "weights");
    await Promise.all([steps(a, 3), b.forward(rows, ["entropy"], { micro: together })]);
    expect(copyOf(a, "weights")).toEqual(copyOf(alone, "weights"));
    expect(copyOf(b, "weights")).toEqual(untouched);
    await a.close();
    await steps(b, 3);
    expect(copyOf(b, "weights")).toEqual(copyOf(alone, "weights"));
  });

  test("that copies outputs = one that does not, bit for bit", async () => {
    const copying = new EmbeddedEngine({ copyMode: "copy" });
    try {
      for (const folder of folders) {
        const [copied, plain] = [await open(folder, copying), await open(folder)];
        await Promise.all([steps(copied, 2), steps(plain, 2)]);
        expect(copyOf(copied, "weights")).toEqual(copyOf(plain, "weights"));
        const ask = (of: EmbeddedModel) => of.forward(rows, ["logprobs", "entropy"], { micro: { rows: 3 } });
        expect(await ask(copied)).toEqual(await ask(plain));
      }
    } finally {
      await copying.close();
    }
  });
});

// ---------------------------------------------------------------- extras

describe("what a loss reads of each token besides the model's outputs", () => {
  const WIDTH = 3;
  /** The same loss twice: of one number per token, and of that number in three parts. */
  const plain: TokenLoss = { ...policyLoss, key: "plain", name: "plain" };
  const wide: TokenLoss = {
    ...policyLoss,
    key: "wide",
    name: "wide",
    extra: [{ name: "parts", width: WIDTH }],
    build: ({ parts, ...tensors }) => policyLoss.build({ ...tensors, advantages: sum(parts!, [-1]) }),
  };
  const PROMPT = 10;
  const own = rows.filter(({ ids }) => ids.length > PROMPT + 1);
  const inParts = own.map(({ ids, mask, extra }) => ({
    ids,
    mask,
    extra: { parts: Array.from(extra!.advantages!).flatMap((value) => [value, 1, -1]) },
  }));

  // Rows that begin alike are laid out as branches, others as rows of a grid.
  const prompt = own[0]!.ids.slice(0, PROMPT);
  const alike = (batch: readonly TokenRow[]): TokenRow[] =>
    batch.map(({ ids, mask, extra }) => ({
      ids: Int32Array.of(...prompt, ...ids.slice(PROMPT)),
      mask: Array.from(mask, (counts, t) => (t < PROMPT ? 0 : t === PROMPT ? 1 : counts)),
      ...(extra && { extra }),
    }));

  test.each([
    ["rows of a grid", (batch: readonly TokenRow[]): TokenRow[] => [...batch]],
    ["branches of one prompt", alike],
  ])("may have a width, in %s", async (_, form) => {
    expect(own.length).toBeGreaterThan(1);
    const [one, other] = [await open(llama), await open(llama)];
    const { loss } = await train(one, form(own), { rows: 4 }, plain);
    expect((await train(other, form(inParts), { rows: 4 }, wide)).loss).toBeCloseTo(loss!, 5);
    for (const { name } of parameterSpecs(one.config)) {
      const [a, b] = [one.gradient(name), other.gradient(name)];
      expect(Math.max(...a.map((value, i) => Math.abs(value - b[i]!)))).toBeLessThan(1e-5);
    }
  });

  test("must be there for every row: what is missing is named with the loss", async () => {
    const model = await open(llama);
    const some = rows.map((row, i) => (i === 2 ? { ids: row.ids, mask: row.mask } : row));
    await expect(train(model, some, { rows: 4 }, plain)).rejects.toThrow(
      "The loss `plain` reads `advantages` of each token, and row 2 of the batch has no extra.",
    );
    await expect(train(model, rows, { rows: 4 }, wide)).rejects.toThrow(
      "only `advantages`. Give every row `extra.parts`",
    );
    const short = inParts.map((row) => ({ ...row, extra: { parts: row.extra.parts.slice(1) } }));
    await expect(train(model, short, { rows: 4 }, wide)).rejects.toThrow(/so give \d+ numbers, 3 for each/);
  });
});

// ---------------------------------------------------------------- value heads

describe("a language model with a new value head", () => {
  const openCritic = (seed: number) => engine.open({ folder: fixture(llama), head: "value", seed });
  const valueLoss: TokenLoss = {
    key: "value",
    heads: ["values"],
    extra: ["advantages"],
    scalars: ["count"],
    build: ({ values, advantages, mask, count }) => ({
      loss: div(masked(square(sub(values!, advantages!)), mask), count!),
    }),
  };

  test("has the random head of its seed", async () => {
    const [a, same, other] = [await openCritic(1), await openCritic(1), await openCritic(2)];
    expect(a.weights("score.weight")).toEqual(same.weights("score.weight"));
    expect(a.weights("score.weight")).not.toEqual(other.weights("score.weight"));
  });

  test("learns values, and keeps its head when it is saved and opened", async () => {
    const critic = await openCritic(1);
    const losses: number[] = [];
    for (let i = 0; i < 25; i++) {
      const { loss } = await train(critic, rows, { rows: 4 }, valueLoss);
      losses.push(loss!);
      await critic.step(adamw);
    }
    expect(losses.at(-1)!).toBeLessThan(losses[0]! / 3);
    await critic.save(join(temporary, "critic"));
    const again = await engine.open({ folder: join(temporary, "critic") });
    expect(again.config.head).toBe("value");
    const ask = (of: EmbeddedModel) => of.forward(rows, ["values"], { micro: together });
    expect(await ask(again)).toEqual(await ask(critic));
  });
});

test("sumPiSquared is the sum of the squared probabilities that the logits give", async () => {
  const rows = [{ ids: Int32Array.of(3, 1, 4, 1), mask: [0, 1, 1, 1] }];
  const model = await open("logits-more/gemma2_caps");
  const [outputs] = await model.forward(rows, ["sumPiSquared"], { micro: { rows: 1 }, temperature: 0.7 });
  const shifted = [{ ids: rows[0]!.ids, mask: [1, 1, 1, 0] }];
  const [logits] = await model.logits(shifted);
  for (const [t, row] of logits!.entries()) {
    const weights = [...row].map((value) => Math.exp(value / 0.7));
    const total = weights.reduce((a, b) => a + b);
    const expected = weights.reduce((sum, weight) => sum + (weight / total) ** 2, 0);
    expect(outputs!.sumPiSquared![t + 1]).toBeCloseTo(expected, 5);
  }
});
