/** `trainyard sft`: supervised fine-tuning. */
import { sftSchema } from "../config/sft/schema.ts";
import { configVerb } from "./config-verb.ts";
import { columnPairs } from "./sft-columns.ts";
import type { Verb } from "./verb.ts";

export const verb: Verb = configVerb({
  schema: sftSchema,
  examples: [
    "trainyard sft model.path=models/tiny data.train_files=chats.jsonl",
    "trainyard sft model.path=Qwen/Qwen2.5-0.5B-Instruct data.train_files=train.parquet \\",
    "  data.prompt_key=question data.response_key=answer optim.lr=1e-5",
    "trainyard sft run.yaml trainer.total_epochs=1 --dry-run",
  ],
  rows: {
    fits: (has) => !has("chosen", "rejected") && (has("messages") || columnPairs.some((pair) => has(...pair))),
    check: async (task, findings) => (await import("./sft-check.ts")).checkExamples(task, findings),
  },
  plan: async (config, context) => (await import("./sft-plan.ts")).planSft(config, context),
  async run(config, context) {
    const { trainSft } = await import("../train/supervised/sft.ts");
    await trainSft(config, context);
  },
});
