/**
 * The models of the benches: checkpoints beside the project where they exist, else random ones of the same shape, made
 * once under .cache/. Speed and memory depend on the shape alone. A smoke test takes the model of `npm start`.
 */
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { type ParameterSpec, parameterSpecs, parseConfig } from "../src/models/config.ts";
import { elementCount } from "../src/models/safetensors.ts";
import { saveParameters } from "../src/models/weights.ts";
import { info } from "../src/util/log.ts";
import { Random } from "../src/util/random.ts";

export const root = join(import.meta.dirname, "..");

/** A name, and the config.json that describes the shape. */
export type ModelShape = { readonly name: string; readonly config: Readonly<Record<string, unknown>> };

export const minimind2Small: ModelShape = {
  name: "minimind2-small",
  config: {
    model_type: "llama",
    num_hidden_layers: 8,
    hidden_size: 512,
    intermediate_size: 1408,
    num_attention_heads: 8,
    num_key_value_heads: 2,
    head_dim: 64,
    vocab_size: 6400,
    hidden_act: "silu",
    rms_norm_eps: 1e-5,
    rope_theta: 1e6,
    max_position_embeddings: 32768,
    tie_word_embeddings: true,
    bos_token_id: 1,
    eos_token_id: 2,
  },
};

export const qwen05b: ModelShape = {
  name: "qwen2.5-0.5b",
  config: {
    model_type: "qwen2",
    num_hidden_layers: 24,
    hidden_size: 896,
    intermediate_size: 4864,
    num_attention_heads: 14,
    num_key_value_heads: 2,
    vocab_size: 151936,
    hidden_act: "silu",
    rms_norm_eps: 1e-6,
    rope_theta: 1e6,
    max_position_embeddings: 32768,
    use_sliding_window: false,
    tie_word_embeddings: true,
    bos_token_id: 151643,
    eos_token_id: 151645,
  },
};

const quickstartFolder = join(root, "examples", "quickstart", "model");
const quickstart: ModelShape = {
  name: "quickstart",
  config: JSON.parse(readFileSync(join(quickstartFolder, "config.json"), "utf8")),
};

/** The model that every bench measures. */
export function smallModel({ isSmoke }: { readonly isSmoke: boolean }): ModelShape {
  return isSmoke ? quickstart : minimind2Small;
}

/** A Hugging Face folder with a model of this shape. */
export async function modelFolder(shape: ModelShape): Promise<{ readonly folder: string; readonly isRandom: boolean }> {
  if (shape === quickstart) return { folder: quickstartFolder, isRandom: false };
  const beside = join(root, "..", "shared", "models", shape.name);
  if (existsSync(join(beside, "config.json"))) return { folder: beside, isRandom: false };
  const folder = join(root, ".cache", "bench", shape.name);
  if (!existsSync(join(folder, "config.json"))) {
    info(`Making a random model of the shape of ${shape.name} in .cache/, once …`);
    const config = parseConfig(shape.config, shape.name);
    await saveParameters(folder, config, parameterSpecs(config), randomWeights, { dtype: "F32" });
  }
  return { folder, isRandom: true };
}

/** Norms are one, all else is uniform with a standard deviation of 0.02. */
function randomWeights(spec: ParameterSpec): Float32Array {
  const values = new Float32Array(elementCount(spec.shape));
  if (spec.initial === 1) return values.fill(1);
  const random = new Random(0, spec.name);
  const halfWidth = 0.02 * Math.sqrt(3);
  for (let i = 0; i < values.length; i++) values[i] = (random.bits() / 2 ** 31 - 1) * halfWidth;
  return values;
}
