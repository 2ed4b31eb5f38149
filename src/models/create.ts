/** New models with random weights, as Hugging Face folders: for small models trained from scratch, and for benches. */
import { Random } from "../util/random.ts";
import { type ParameterSpec, parameterSpecs, parseConfig } from "./config.ts";
import { saveParameters } from "./weights.ts";

/** Write a model folder for a config.json's content; the same seed gives the same weights. */
export async function createModel(dir: string, raw: Readonly<Record<string, unknown>>, seed: number): Promise<void> {
  const config = parseConfig(raw, "the new model's config.json");
  const spread = typeof raw.initializer_range === "number" ? raw.initializer_range : 0.02;
  const make = (spec: ParameterSpec) => initialise(spec, spread, seed);
  await saveParameters(dir, config, parameterSpecs(config), make, { dtype: "F32" });
}

/** As transformers starts them: matrices normal, norms at one, biases at zero. */
function initialise({ name, shape, initial }: ParameterSpec, spread: number, seed: number): Float32Array {
  const values = new Float32Array(shape.reduce((a, b) => a * b, 1));
  if (initial !== "normal") return values.fill(initial);
  const random = new Random(seed, name);
  for (let i = 0; i < values.length; i++) values[i] = random.normal(0, spread);
  return values;
}
