import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { EmbeddedEngine } from "../engine/embedded/engine.ts";
import { createModel } from "./create.ts";

const config = {
  architectures: ["LlamaForCausalLM"],
  model_type: "llama",
  vocab_size: 16,
  hidden_size: 8,
  intermediate_size: 16,
  num_hidden_layers: 1,
  num_attention_heads: 2,
  num_key_value_heads: 1,
  max_position_embeddings: 32,
  rms_norm_eps: 1e-5,
  rope_theta: 10000,
  initializer_range: 0.2,
  bos_token_id: null,
  eos_token_id: 1,
};

test.each([true, false])(
  "a model saved untied computes the same with a head of its own (tied before: %s)",
  async (isTied) => {
    const dir = await mkdtemp(join(tmpdir(), "untied-"));
    const engine = new EmbeddedEngine({ threads: 1 });
    try {
      await createModel(join(dir, "model"), { ...config, tie_word_embeddings: isTied }, 3);
      const model = await engine.open({ folder: join(dir, "model") });
      await model.save(join(dir, "untied"), "F32", { isUntied: true });
      const saved = JSON.parse(await readFile(join(dir, "untied", "config.json"), "utf8"));
      expect(saved.tie_word_embeddings).toBe(false);
      const untied = await engine.open({ folder: join(dir, "untied") });
      expect(untied.parameterCount - model.parameterCount).toBe(isTied ? 16 * 8 : 0);
      const rows = [{ ids: Int32Array.of(2, 5, 7, 1), mask: [0, 1, 1, 1] }];
      const options = { micro: { rows: 1 } };
      expect(await untied.forward(rows, ["logprobs"], options)).toEqual(
        await model.forward(rows, ["logprobs"], options),
      );
    } finally {
      await engine.close();
      await rm(dir, { recursive: true });
    }
  },
);
