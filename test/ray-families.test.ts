/**
 * Families that the embedded engine does not know, on the Ray engine: transformers computes them there, so it is what
 * they are held against. TRAINYARD_TEST_PYTHON names an interpreter that has python/requirements.txt.
 */
import { spawnSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { cp } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { EmbeddedEngine } from "../src/engine/embedded/engine.ts";
import { RayEngine } from "../src/engine/ray/engine.ts";
import { readAll } from "../src/models/safetensors.ts";
import { expectReference } from "./engine-conformance.ts";
import { hasRay, playOnRay, python } from "./ray-yard.ts";
import { Yard } from "./rl-yard.ts";

const sizes = {
  ...{ vocab_size: 16, hidden_size: 16, num_hidden_layers: 2, num_attention_heads: 2, max_position_embeddings: 64 },
  ...{ initializer_range: 0.2, bos_token_id: null, eos_token_id: 1, pad_token_id: 2 },
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
    ...{ ...grouped, model_type: "qwen2_moe", num_experts: 5, num_experts_per_tok: 2 },
    ...{ moe_intermediate_size: 8, shared_expert_intermediate_size: 24 },
  },
};

const script = (name: string): string => fileURLToPath(new URL(`python/${name}`, import.meta.url));

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
    run("tiny_models.py", [yard.path("models")], configs);
    engine = new RayEngine({ python, workersPerNode: 2, init: { num_cpus: 4 }, collectiveMs: 60_000 });
    address = (await engine.group()).address;
  }, 400_000);
  afterAll(async () => {
    await engine?.close();
    yard?.remove();
  });

  test.each(Object.keys(configs))(
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

  test("a family without the head that is asked for is refused", async () => {
    await expect(engine.open({ folder: yard.path("models", "opt"), head: "value" })).rejects.toThrow(
      /no model of the family opt with a head for each token/,
    );
  });

  test("the embedded engine says which families it knows, and who knows the others", async () => {
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
      ...[...one.keys, `actor_rollout_ref.model.path=${folder}`, `critic.model.path=${folder}`],
      ...["trainer.engine=ray", "trainer.n_gpus_per_node=2", `ray_kwargs.ray_init.address=${address}`],
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
