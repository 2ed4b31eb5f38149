/** `trainyard generate`: arguments to a resolved config, then the responses. */
import { generateSchema } from "../config/generate/schema.ts";
import type { Call } from "./call.ts";
import { runVerb } from "./config-verb.ts";

/** Run the verb; returns the exit code. */
export async function run(call: Call): Promise<number> {
  return runVerb(call, generateSchema, {
    summary: "sample responses to the prompts of a file.",
    examples: [
      "trainyard generate model.path=models/tiny data.path=test.parquet data.output_path=answers.parquet",
      "trainyard generate model.path=Qwen/Qwen2.5-0.5B-Instruct data.path=test.jsonl data.output_path=answers.jsonl \\",
      "  data.n_samples=8 rollout.temperature=0.7 rollout.top_k=-1 rollout.response_length=1024",
      "trainyard generate model.path=NAME rollout.base_url=http://127.0.0.1:8000/v1 data.path=… data.output_path=…",
    ],
    work: async (config, context) => {
      const { generate } = await import("../train/generate/generate.ts");
      await generate(config, context);
    },
  });
}
