/** A model whose layers rotate differently trains, shares prefixes and samples like any other. */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { parseConfig, positionsOf } from "../../models/config.ts";
import { createModel } from "../../models/create.ts";
import type { TokenRow } from "../contract.ts";
import { decodeProgram } from "./decode-program.ts";
import { EmbeddedEngine } from "./engine.ts";
import type { EmbeddedModel } from "./model.ts";
import { forwardProgram } from "./programs.ts";

const VOCABULARY = 53;
const linear = { rope_type: "linear", factor: 3, rope_theta: 900 };
const dynamic = { rope_type: "dynamic", factor: 2, rope_theta: 50 };
/** Layers with a window rotate by the second set of values, the others by the first. */
const configOf = (full_attention: object, sliding_attention: object) => ({
  model_type: "gemma2",
  architectures: ["Gemma2ForCausalLM"],
  vocab_size: VOCABULARY,
  hidden_size: 24,
  intermediate_size: 40,
  num_hidden_layers: 4,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  head_dim: 6,
  sliding_window: 64,
  max_position_embeddings: 20,
  initializer_range: 0.3,
  rope_parameters: { full_attention, sliding_attention },
});

const engine = new EmbeddedEngine({ threads: 1 });
let folder = "";
let model: EmbeddedModel;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "rotations-"));
  await createModel(join(folder, "both"), configOf(linear, dynamic), 3);
  model = await engine.open({ folder: join(folder, "both") });
});
afterAll(async () => {
  await engine.close();
  await rm(folder, { recursive: true });
});

const row = (length: number, seed: number, shared = 0): TokenRow => ({
  ids: Int32Array.from({ length }, (_, t) => (t < shared ? t * 7 + 1 : seed * 13 + t * 5) % VOCABULARY),
  mask: Uint8Array.from({ length }, (_, t) => Number(t >= Math.max(1, shared))),
});

async function logprobs(rows: readonly TokenRow[], on = model): Promise<number[]> {
  const outputs = await on.forward(rows, ["logprobs"], { micro: { rows: rows.length } });
  return outputs.flatMap(({ logprobs }) => [...logprobs!]);
}

function expectNear(found: readonly number[], expected: readonly number[]): void {
  expect(found).toHaveLength(expected.length);
  found.forEach((value, i) => {
    expect(Math.abs(value - expected[i]!), `number ${i}`).toBeLessThan(1e-4);
  });
}

test("its programs have a pair of tables for each scheme, the first under the name of a single one", () => {
  const namesOf = (program: { inputs: readonly { name: string }[] }) =>
    program.inputs.flatMap(({ name }) => (name.startsWith("rope") ? [name] : [])).sort();
  const both = ["rope.1.cos", "rope.1.sin", "rope.cos", "rope.sin"];
  const form = { kind: "rows", parts: 1 } as const;
  expect(positionsOf(model.config)).toHaveLength(2);
  expect(namesOf(forwardProgram(model.config, ["logprobs"], { temperature: 1, form }))).toEqual(both);
  expect(namesOf(decodeProgram(model.config, "tokens", false))).toEqual(both);
  const single = parseConfig(configOf(linear, linear), "config.json");
  expect(namesOf(forwardProgram(single, ["logprobs"], { temperature: 1, form }))).toEqual(["rope.cos", "rope.sin"]);
});

test("both tables matter", async () => {
  const rows = [row(12, 1)];
  const found = await logprobs(rows);
  for (const [name, config] of Object.entries({
    full: configOf(linear, linear),
    sliding: configOf(dynamic, dynamic),
  })) {
    await createModel(join(folder, name), config, 3); // the same weights
    const other = await engine.open({ folder: join(folder, name) });
    const differences = (await logprobs(rows, other)).map((value, i) => Math.abs(value - found[i]!));
    expect(Math.max(...differences), name).toBeGreaterThan(1e-3);
    await other.close();
  }
});

test("rows together, with shared prefixes and past the length that changes one table, are as rows alone", async () => {
  const rows = [row(14, 1, 10), row(17, 2, 10), row(12, 3, 10), row(26, 4), row(31, 5), row(9, 6)];
  const alone: number[] = [];
  for (const each of rows) alone.push(...(await logprobs([each])));
  expectNear(await logprobs(rows), alone);
});

test("what it samples has the log-probs of its forward pass", async () => {
  const prompt = Array.from({ length: 7 }, (_, t) => (t * 9 + 2) % VOCABULARY);
  const { samples } = await model.sample({ prompt, n: 3, maxNewTokens: 9, ignoreEos: true, seed: 4 });
  for (const { ids, logprobs: sampled } of samples) {
    const all = [...prompt, ...ids];
    const found = await logprobs([{ ids: Int32Array.from(all), mask: all.map((_, t) => Number(t >= prompt.length)) }]);
    expectNear([...sampled], found.slice(prompt.length));
  }
});
