/** `trainyard sft`: a config, then supervised fine-tuning. */
import { sftSchema } from "../config/sft/schema.ts";
import type { Call } from "./call.ts";
import { runVerb } from "./config-verb.ts";

const summary = "fine-tune a model on prompts and responses, or on conversations.";

const examples = [
  "trainyard sft model.path=models/tiny data.train_files=chats.jsonl",
  "trainyard sft model.path=Qwen/Qwen2.5-0.5B-Instruct data.train_files=train.parquet \\",
  "  data.prompt_key=question data.response_key=answer optim.lr=1e-5",
  "trainyard sft run.yaml trainer.total_epochs=1 --dry-run",
];

/** Run the verb; returns the exit code. */
export async function run(call: Call): Promise<number> {
  return runVerb(call, sftSchema, {
    summary,
    examples,
    work: async (config, context) => {
      const { trainSft } = await import("../train/supervised/sft.ts");
      await trainSft(config, context);
    },
  });
}
