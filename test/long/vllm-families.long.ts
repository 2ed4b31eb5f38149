/**
 * Models whose weights vLLM keeps otherwise than a checkpoint does, and of which it has to take all that is new.
 * TRAINYARD_TEST_PYTHON names an interpreter that has python/requirements.txt, TRAINYARD_VLLM_PYTHON one that has vllm.
 */
import { spawnSync } from "node:child_process";
import { cp } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { hasRay, playWith, python } from "../ray-yard.ts";
import { Yard } from "../rl-yard.ts";
import { expectAgreement, hasVllm, vllmConfig, vllmPython } from "../vllm-yard.ts";

const script = fileURLToPath(new URL("../python/tiny_models.py", import.meta.url));
const { architectures: _, ...sizes } = { ...vllmConfig, num_hidden_layers: 2 };
const experts = { num_experts: 4, num_experts_per_tok: 2, moe_intermediate_size: 32 };

/** By what vLLM has of them. */
const configs = {
  "experts in a layout of their own": { ...sizes, ...experts, model_type: "qwen3_moe", tie_word_embeddings: false },
  "no head beside the embedding": { ...sizes, model_type: "gemma2", sliding_window: 8, initializer_range: 0.1 },
};

const name = "vLLM (where it and Ray are installed) samples from the weights after each update, where it has";
describe.skipIf(!hasVllm || !hasRay)(name, { timeout: 600_000 }, () => {
  let yard: Yard;
  beforeAll(async () => {
    yard = await Yard.make();
    const made = spawnSync(python, [script, yard.root], { input: JSON.stringify(configs), encoding: "utf8" });
    expect(made.status, made.stderr).toBe(0);
  }, 120_000);
  afterAll(() => yard.remove());

  test.each(Object.keys(configs))("%s", async (which) => {
    const model = yard.path(which);
    for (const file of ["tokenizer.json", "tokenizer_config.json"])
      await cp(`${yard.model}/${file}`, `${model}/${file}`);
    const keys = [
      `actor_rollout_ref.model.path=${model}`,
      "actor_rollout_ref.rollout.name=vllm",
      "trainer.engine=ray",
      "trainer.n_gpus_per_node=2",
      "trainer.total_training_steps=3",
    ];
    const env = { TRAINYARD_PYTHON: python, TRAINYARD_VLLM_PYTHON: vllmPython };
    expectAgreement(await playWith(yard, `run of ${which}`, keys, env));
  });
});
