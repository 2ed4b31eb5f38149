/**
 * What is saved after training loads in Hugging Face transformers and computes the same: every family and head, in one
 * file, in shards and in BF16. TRAINYARD_TEST_PYTHON names an interpreter that has python/requirements.txt.
 */
import { spawn } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { HeadName, ModelSpec, TokenLoss, TokenRow } from "../src/engine/contract.ts";
import { EmbeddedEngine } from "../src/engine/embedded/engine.ts";
import type { EmbeddedModel } from "../src/engine/embedded/model.ts";
import { neg, sum } from "../src/graph/ops.ts";
import { parameterSpecs } from "../src/models/config.ts";
import { readAll, type Tensor } from "../src/models/safetensors.ts";
import { saveParameters } from "../src/models/weights.ts";

const python = process.env.TRAINYARD_TEST_PYTHON;
const path = (relative: string) => fileURLToPath(new URL(relative, import.meta.url));

type Form = "one file" | "shards" | "BF16";
type Case = { readonly folder: string; readonly form: Form; readonly head?: NonNullable<ModelSpec["head"]> };

const cases: readonly Case[] = [
  ...["llama", "llama_tied", "llama3_rope", "llama_v5", "mistral", "qwen2", "qwen3", "gemma", "gemma2"].map(
    (name): Case => ({ folder: `logits/${name}`, form: "one file" }),
  ),
  ...["llama_yarn", "llama_longrope_long", "llama_biases", "llama_value", "llama_score", "qwen2_score"].map(
    (name): Case => ({ folder: `logits-more/${name}`, form: "one file" }),
  ),
  { folder: "logits-more/mistral_window", form: "shards" },
  { folder: "logits-more/gemma2_caps", form: "shards" },
  { folder: "logits-more/qwen3_tied", form: "shards" },
  { folder: "logits-more/qwen2_window", form: "BF16" },
  { folder: "logits-more/gemma_mqa", form: "BF16" },
  { folder: "logits-more/qwen2_value", form: "BF16" },
  { folder: "logits/llama", form: "one file", head: "value" },
  { folder: "logits/gemma2", form: "shards", head: "score" },
];

/** Below every fixture's vocabulary; a length that is no multiple of four. */
const ids = [0, 1].map((row) => Array.from({ length: 14 }, (_, t) => 3 + ((row * 31 + t * 17) % 50)));
const rows = ids.map((row): TokenRow => ({ ids: Int32Array.from(row), mask: row.map(() => 1) }));

describe.skipIf(!python)("saved after a training step, transformers loads it (needs Python with transformers)", () => {
  let engine: EmbeddedEngine;
  let temporary = "";
  const ours: number[][] = [];
  let theirs = new Map<string, Tensor>();

  beforeAll(async () => {
    engine = new EmbeddedEngine();
    temporary = await mkdtemp(join(tmpdir(), "transformers-"));
    for (const [i, one] of cases.entries()) ours.push(await trainAndSave(one, join(temporary, String(i))));
    const folders = cases.map((_, i) => join(temporary, String(i)));
    theirs = await askTransformers(folders, join(temporary, "logits.safetensors"));
  });
  afterAll(async () => {
    await engine.close();
    await rm(temporary, { recursive: true });
  });

  /** Train, save, and say what the saved folder computes here. */
  async function trainAndSave({ folder, form, head }: Case, dir: string): Promise<number[]> {
    const spec = { folder: path(`fixtures/${folder}`), seed: 5 };
    const model = await engine.open(head === undefined ? spec : { ...spec, head });
    const before = model.weights("model.norm.weight").slice();
    await model.train(rows, lossOf(model), { micro: { rows: 2 } });
    await model.step({ lr: 1e-2, betas: [0.9, 0.999], eps: 1e-8, weightDecay: 0.01, maxNorm: 1 });
    expect(model.weights("model.norm.weight")).not.toEqual(before);
    if (form === "shards") {
      const options = { dtype: "F32", maxShardBytes: 20_000, tokenizerFrom: spec.folder } as const;
      await saveParameters(dir, model.config, parameterSpecs(model.config), ({ name }) => model.weights(name), options);
    } else await model.save(dir, form === "BF16" ? "BF16" : "F32");
    // Only BF16 rounds; the rest is held against the weights in memory.
    const saved = form === "BF16" ? await engine.open({ folder: dir }) : model;
    return outputsOf(saved);
  }

  test.each(cases.map((one, i) => ({ ...one, head: one.head ?? "its own", i })))(
    "$folder with $head head in $form",
    ({ i }) => {
      const logits = theirs.get(String(i))!.data;
      expect(logits).toHaveLength(ours[i]!.length);
      const worst = Math.max(...ours[i]!.map((value, k) => Math.abs(value - Number(logits[k]))));
      expect(worst).toBeLessThan(2e-4);
    },
  );
});

const headOf: Record<EmbeddedModel["config"]["head"], HeadName> = { lm: "logprobs", value: "values", score: "scores" };

function lossOf(model: EmbeddedModel): TokenLoss {
  const head = headOf[model.config.head];
  return { key: `sum of ${head}`, heads: [head], build: (tensors) => ({ loss: neg(sum(tensors[head]!)) }) };
}

/** In transformers' layout: logits or values of every position, the score of the last. */
async function outputsOf(model: EmbeddedModel): Promise<number[]> {
  const extended = ids.map((row): TokenRow => ({ ids: Int32Array.of(...row, 0), mask: [0, ...row.map(() => 1)] }));
  const micro = { rows: 2 };
  if (model.config.head === "lm") return (await model.logits(rows)).flat().flatMap((logits) => [...logits]);
  if (model.config.head === "score") {
    return (await model.forward(rows, ["scores"], { micro })).map(({ scores }) => scores!.at(-1)!);
  }
  return (await model.forward(extended, ["values"], { micro })).flatMap(({ values }) => [...values!.subarray(1)]);
}

async function askTransformers(folders: readonly string[], out: string): Promise<Map<string, Tensor>> {
  const env = { ...process.env, HF_HUB_OFFLINE: "1", TRANSFORMERS_VERBOSITY: "error" };
  const child = spawn(python!, [path("python/logits.py")], { env, stdio: ["pipe", "inherit", "pipe"] });
  const ended = new Promise<number | null>((resolve, reject) => child.once("error", reject).once("close", resolve));
  child.stdin.end(JSON.stringify({ ids, folders, out }));
  const [said, code] = await Promise.all([text(child.stderr), ended]);
  expect(code, said).toBe(0);
  return readAll(out);
}
