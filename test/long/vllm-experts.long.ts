/**
 * A mixture of experts, whose weights are laid out otherwise in a checkpoint, at the workers and in vLLM.
 * TRAINYARD_TEST_PYTHON names an interpreter that has python/requirements.txt, TRAINYARD_VLLM_PYTHON one that has vllm.
 */
import { spawnSync } from "node:child_process";
import { cp } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { hasRay, playWith, python } from "../ray-yard.ts";
import { Yard } from "../rl-yard.ts";
import { expectAgreement, hasVllm, vllmConfig, vllmPython } from "../vllm-yard.ts";

const script = fileURLToPath(new URL("../python/tiny_models.py", import.meta.url));

test.skipIf(!hasVllm || !hasRay)(
  "vLLM samples from experts as they are after each update",
  { timeout: 600_000 },
  async () => {
    const yard = await Yard.make();
    try {
      const experts = { num_experts: 4, num_experts_per_tok: 2, moe_intermediate_size: 32, num_hidden_layers: 2 };
      const { architectures: _, ...sizes } = {
        ...vllmConfig,
        ...experts,
        model_type: "qwen3_moe",
        tie_word_embeddings: false,
      };
      const made = spawnSync(python, [script, yard.root], {
        input: JSON.stringify({ experts: sizes }),
        encoding: "utf8",
      });
      expect(made.status, made.stderr).toBe(0);
      const model = yard.path("experts");
      for (const file of ["tokenizer.json", "tokenizer_config.json"])
        await cp(`${yard.model}/${file}`, `${model}/${file}`);
      const keys = [
        ...[`actor_rollout_ref.model.path=${model}`, "actor_rollout_ref.rollout.name=vllm", "trainer.engine=ray"],
        ...["trainer.n_gpus_per_node=2", "trainer.total_training_steps=3"],
      ];
      expectAgreement(
        await playWith(yard, "run", keys, { TRAINYARD_PYTHON: python, TRAINYARD_VLLM_PYTHON: vllmPython }),
      );
    } finally {
      yard.remove();
    }
  },
);
