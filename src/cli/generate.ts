/** `trainyard generate`: responses to the prompts of a file. */
import { generateSchema } from "../config/generate/schema.ts";
import { configVerb } from "./config-verb.ts";
import type { Verb } from "./verb.ts";

export const verb: Verb = configVerb({
  schema: generateSchema,
  examples: [
    "trainyard generate model.path=models/tiny data.path=test.parquet data.output_path=answers.parquet",
    "trainyard generate model.path=Qwen/Qwen2.5-0.5B-Instruct data.path=test.jsonl data.output_path=answers.jsonl \\",
    "  data.n_samples=8 rollout.temperature=0.7 rollout.top_k=-1 rollout.response_length=1024",
    "trainyard generate model.path=NAME rollout.base_url=http://127.0.0.1:8000/v1 data.path=… data.output_path=…",
  ],
  rows: {
    fits: (has) => has("prompt"),
    check: async (task, findings) => (await import("./generate-check.ts")).checkPrompts(task, findings),
  },
  async run(config, context) {
    const { generate } = await import("../train/generate/generate.ts");
    await generate(config, context);
  },
});
