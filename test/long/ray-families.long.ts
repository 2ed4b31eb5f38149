/**
 * Families that the embedded engine does not support, on the Ray engine: results are compared with transformers. TRAINYARD_TEST_PYTHON names an interpreter that has python/requirements.txt.
 */
import { spawnSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { cp } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { EmbeddedEngine } from "../../src/engine/embedded/engine.ts";
import { RayEngine } from "../../src/engine/ray/engine.ts";
import { readAll } from "../../src/models/safetensors.ts";
import { expectReference, expectSameAmongOthers, weightsOf } from "../engine-conformance.ts";
import { hasRay, playOnRay, python } from "../ray-yard.ts";
import { Yard } from "../rl-yard.ts";

const sizes = {
  vocab_size: 16,
  hidden_size: 16,
  num_hidden_layers: 2,
  num_attention_heads: 2,
  max_position_embeddings: 64,
  initializer_range: 0.2,
  bos_token_id: null,
  eos_token_id: 1,
  pad_token_id: 2,
};
const grouped = { ...sizes, num_key_value_heads: 1, intermediate_size: 32, attention_dropout: 0.1 };
const configs = {
  gpt_neox: { ...sizes, model_type: "gpt_neox", intermediate_size: 32, hidden_dropout: 0.1, attention_dropout: 0.1 },
  /** With a bias of keys, whose gradient is zero but for rounding, there is nothing to compare. */
  opt: { ...sizes, model_type: "opt", ffn_dim: 32, word_embed_proj_dim: 16, dropout: 0.1, enable_bias: false },
  mixtral: { ...grouped, model_type: "mixtral", num_local_experts: 4, router_jitter_noise: 0.1 },
  /** On two workers one has no expert of its own. */
  mixtral_of_one: { ...grouped, model_type: "mixtral", num_local_experts: 1, num_experts_per_tok: 1 },
  qwen2_moe: {
    ...grouped,
    model_type: "qwen2_moe",
    num_experts: 5,
    num_experts_per_tok: 2,
    moe_intermediate_size: 8,
    shared_expert_intermediate_size: 24,
  },
};

const scan = { mamba_n_heads: 4, mamba_d_head: 8, mamba_n_groups: 2, mamba_d_state: 8, mamba_chunk_size: 8 };
const delta = {
  linear_num_key_heads: 2,
  linear_num_value_heads: 4,
  linear_key_head_dim: 8,
  linear_value_head_dim: 8,
  num_experts: 4,
  num_experts_per_tok: 2,
  moe_intermediate_size: 8,
  shared_expert_intermediate_size: 8,
};

/** Families with layers that have a state of a fixed size instead of keys and values. */
const recurrent = {
  mamba: { ...sizes, initializer_range: 0.6, model_type: "mamba", state_size: 4 },
  mamba2: {
    ...sizes,
    initializer_range: 0.6,
    model_type: "mamba2",
    num_heads: 4,
    head_dim: 8,
    n_groups: 2,
    state_size: 4,
    chunk_size: 8,
  },
  falcon_h1: { ...grouped, ...scan, model_type: "falcon_h1", mamba_d_ssm: 32 },
  qwen3_next: { ...grouped, ...delta, model_type: "qwen3_next", head_dim: 8, full_attention_interval: 2 },
  granitemoehybrid: {
    ...grouped,
    ...scan,
    model_type: "granitemoehybrid",
    shared_intermediate_size: 16,
    num_local_experts: 4,
    num_experts_per_tok: 2,
    layer_types: ["linear_attention", "full_attention"],
  },
  lfm2: {
    ...grouped,
    model_type: "lfm2",
    conv_bias: true,
    block_multiple_of: 8,
    layer_types: ["conv", "full_attention"],
  },
};

/** Families whose cache cannot be used, each for another reason. */
const uncached = {
  rwkv: { ...sizes, model_type: "rwkv", attention_hidden_size: 16, rescale_every: 1, layer_norm_epsilon: 1e-12 },
  nemotron_h: {
    ...grouped,
    model_type: "nemotron_h",
    mamba_num_heads: 4,
    mamba_head_dim: 8,
    n_groups: 2,
    ssm_state_size: 4,
    chunk_size: 8,
    head_dim: 8,
    layers_block_type: ["linear_attention", "full_attention"],
  },
  bart: {
    ...sizes,
    model_type: "bart",
    d_model: 16,
    decoder_layers: 2,
    decoder_attention_heads: 2,
    decoder_ffn_dim: 32,
    encoder_layers: 1,
    encoder_attention_heads: 2,
    encoder_ffn_dim: 8,
    init_std: 0.2,
  },
};

/** It sees the tokens that it is to predict. */
const bert = { ...sizes, model_type: "bert", intermediate_size: 32 };

const script = (name: string): string => fileURLToPath(new URL(`../python/${name}`, import.meta.url));

function run(name: string, args: readonly string[], input: object): void {
  const { status, stderr } = spawnSync(python, [script(name), ...args], { input: JSON.stringify(input) });
  if (status !== 0) throw new Error(String(stderr));
}

describe.skipIf(!hasRay)("on the Ray engine (needs Python with ray)", { timeout: 300_000 }, () => {
  let yard: Yard;
  let engine: RayEngine;
  let address = "";
  beforeAll(async () => {
    process.env.RAY_AUTH_TOKEN ??= randomBytes(20).toString("hex"); // of the cluster and of those who join it
    yard = await Yard.make();
    run("tiny_models.py", [yard.path("models")], { ...configs, ...recurrent, ...uncached, bert });
    engine = new RayEngine({ python, workersPerNode: 2, init: { num_cpus: 4 }, collectiveMs: 60_000 });
    address = (await engine.group()).address;
  }, 400_000);
  afterAll(async () => {
    await engine?.close();
    yard?.remove();
  });

  test.each([...Object.keys(configs), ...Object.keys(recurrent)])(
    "%s has log-probs, loss, gradient and greedy tokens of transformers",
    async (name) => {
      const folder = yard.path("models", name);
      for (const sharding of [{}, { checkpointing: true }]) {
        const model = await engine.open({ folder, sharding });
        await expectReference(model, folder, yard.path("models"));
        await model.close();
      }
    },
  );

  test.each([...Object.keys(configs), ...Object.keys(recurrent), ...Object.keys(uncached)])(
    "%s gives a row the same log-probs among others and alone, sampled and learnt from, and keeps its weights",
    async (name) => {
      const folder = yard.path("models", name);
      const model = await engine.open({ folder });
      await expectSameAmongOthers(model, folder);
      const before = await readAll(`${folder}/model.safetensors`);
      const after = await weightsOf(model, yard.path("models"));
      expect(after).toEqual(new Map([...before].map(([key, { data }]) => [key, data])));
      await model.close();
    },
  );

  test("a model that sees the tokens that it is to predict is an error", async () => {
    await expect(engine.open({ folder: yard.path("models", "bert") })).rejects.toThrow(
      /family bert sees the tokens that it is to predict/,
    );
  });

  test("a family without the requested head is an error", async () => {
    await expect(engine.open({ folder: yard.path("models", "opt"), head: "value" })).rejects.toThrow(
      /no model of the family opt with a head for each token/,
    );
  });

  test("the embedded engine names the families that it supports, and the engine for others", async () => {
    const embedded = new EmbeddedEngine();
    await expect(embedded.open({ folder: yard.path("models", "opt") })).rejects.toThrow(
      /model_type` is "opt".*trainer\.engine=ray/,
    );
    await embedded.close();
  });

  test.each([
    { name: "mixtral", keys: ["algorithm.adv_estimator=grpo"], roles: ["actor"] },
    { name: "gpt_neox", keys: ["algorithm.adv_estimator=gae"], roles: ["actor", "critic"] },
  ])("two steps of PPO on $name move its weights, and transformers reads what they leave", async ({ name, ...one }) => {
    const folder = yard.path("models", name);
    for (const file of ["tokenizer.json", "tokenizer_config.json"])
      await cp(`${yard.model}/${file}`, `${folder}/${file}`);
    const metrics = await playOnRay(yard, name, [
      ...one.keys,
      `actor_rollout_ref.model.path=${folder}`,
      `critic.model.path=${folder}`,
      "trainer.engine=ray",
      "trainer.n_gpus_per_node=2",
      `ray_kwargs.ray_init.address=${address}`,
    ]);
    expect(metrics.map((data) => data["actor/grad_norm"]! > 0)).toEqual([true, true]);

    const saved = one.roles.map((role) => yard.path(name, "global_step_2", role));
    const out = yard.path(`${name}.safetensors`);
    run("logits.py", [], { ids: [[3, 4, 5, 6]], folders: [folder, ...saved], out });
    const logits = await readAll(out);
    const [before, after] = ["0", "1"].map((key) => Array.from(logits.get(key)!.data as Float32Array));
    expect(after).toHaveLength(before!.length);
    expect(Math.max(...after!.map((value, i) => Math.abs(value - before![i]!)))).toBeGreaterThan(1e-3);
    expect(after!.every(Number.isFinite)).toBe(true);
  });
});
