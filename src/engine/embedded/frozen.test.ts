/** Laws of frozen parameters: nothing moves them, nothing is kept for them, and the others are trained as before. */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { mul, neg, sum } from "../../graph/ops.ts";
import { parameterSpecs, readConfig } from "../../models/config.ts";
import { readAll } from "../../models/safetensors.ts";
import { loadParameters } from "../../models/weights.ts";
import { Runtime } from "../../runtime/runtime.ts";
import { Vectors } from "../../runtime/vectors.ts";
import type { OptimizerStep, TokenLoss, TokenRow } from "../contract.ts";
import { EmbeddedModel } from "./model.ts";
import { trainProgram } from "./programs.ts";

const folder = fileURLToPath(new URL("../../../test/fixtures/logits-more/qwen3_tied", import.meta.url));
const runtime = new Runtime({ threads: 1 });
let temporary = "";
beforeAll(async () => {
  temporary = await mkdtemp(join(tmpdir(), "frozen-"));
});
afterAll(async () => {
  await runtime.close();
  await rm(temporary, { recursive: true });
});

/** The model with those parameters frozen whose key begins with one of the prefixes. */
async function open(...frozen: readonly string[]): Promise<{ model: EmbeddedModel; vectors: Vectors }> {
  const config = await readConfig(folder);
  const specs = parameterSpecs(config).map((spec) => ({
    ...spec,
    isTrained: !frozen.some((prefix) => spec.key.startsWith(prefix)),
  }));
  const vectors = new Vectors(specs);
  await loadParameters(folder, specs, ({ name }) => vectors.view("weight", name));
  const model = new EmbeddedModel({ runtime, tokenizerFolder: folder, config, specs, vectors, limits: {} });
  return { model, vectors };
}

const loss: TokenLoss = {
  key: "likelihood",
  heads: ["logprobs"],
  build: ({ logprobs, mask }) => ({ loss: neg(sum(mul(logprobs!, mask))) }),
};
const rows: TokenRow[] = [7, 12, 5].map((length, row) => ({
  ids: Int32Array.from({ length }, (_, t) => (row * 11 + t * 5) % 61),
  mask: Uint8Array.from({ length }, (_, t) => Number(t > 0)),
}));
const adamw: OptimizerStep = { lr: 1e-2, betas: [0.9, 0.95], eps: 1e-8, weightDecay: 0.1, maxNorm: 1e9 };
const weightsOf = (model: EmbeddedModel, names: readonly string[]) =>
  new Map(names.map((name) => [name, model.weights(name).slice()]));

describe.each([
  ["one layer", ["layers.1."]],
  ["the embedding and the norms", ["embedding", "norm", "layers.0.mlp.norm"]],
])("with %s frozen", (_, prefixes) => {
  test("a step leaves it as it is, byte for byte, and trains the others with the gradient they had", async () => {
    const { model, vectors } = await open(...prefixes);
    const { model: whole, vectors: all } = await open();
    const frozen = all.names.filter((name) => !vectors.trainedNames.includes(name));
    expect(frozen.length).toBeGreaterThan(0);
    const before = weightsOf(model, frozen);
    for (let step = 0; step < 2; step++) {
      for (const each of [model, whole]) await each.train(rows, loss, { micro: { rows: 2 } });
      if (step === 0) {
        for (const name of vectors.trainedNames) expect(model.gradient(name), name).toEqual(whole.gradient(name));
      }
      for (const each of [model, whole]) await each.step(adamw);
      // The clipping factor is 1 in both, so the first step of every trained parameter is the same.
      if (step === 0) {
        for (const name of vectors.trainedNames) expect(model.weights(name), name).toEqual(whole.weights(name));
      }
    }
    expect(weightsOf(model, frozen)).toEqual(before);
    await model.close();
    await whole.close();
  });

  test("it has neither gradient nor moments: in memory, in the program, and in the optimizer's file", async () => {
    const { model, vectors } = await open(...prefixes);
    await model.train(rows, loss, { micro: { rows: 3 } });
    await model.step(adamw);
    const trained = new Set(vectors.trainedNames);
    const specs = parameterSpecs(model.config).map((spec) => ({ ...spec, isTrained: trained.has(spec.name) }));
    const size = ({ shape }: { shape: readonly number[] }) => Math.ceil(shape.reduce((a, b) => a * b, 4) / 64) * 64;
    const bytes = specs.filter(({ isTrained }) => isTrained).reduce((total, spec) => total + size(spec), 0);
    expect(vectors.arenas.reduce((total, arena) => total + arena.bytes, 0)).toBe(bytes);

    const form = { kind: "rows", parts: 1 } as const;
    const built = trainProgram({ config: model.config, specs }, loss, { isAdding: false, form });
    const written = [
      ...built.program.outputs.map(({ name }) => name),
      ...built.rowGradients.map((g) => `grad/${g.parameter}`),
    ];
    const gradients = new Set(written.filter((name) => name.startsWith("grad/")));
    expect(gradients).toEqual(new Set([...trained].map((name) => `grad/${name}`)));

    const dir = join(temporary, prefixes.join());
    await model.saveOptimizer(dir);
    const moments = [...(await readAll(join(dir, "optimizer.safetensors"))).keys()];
    expect(new Set(moments)).toEqual(
      new Set([...trained].flatMap((name) => [`exp_avg.${name}`, `exp_avg_sq.${name}`])),
    );
    const { model: other } = await open(...prefixes);
    await other.loadOptimizer(dir);
    await other.close();

    await model.save(join(dir, "model"));
    const saved = await readAll(join(dir, "model", "model.safetensors"));
    for (const { name } of specs) expect(saved.get(name)?.data, name).toEqual(model.weights(name));
    await model.close();
  });
});
