/** `trainyard reward`: a config, then the training of a reward model. */
import { rewardSchema } from "../config/reward/schema.ts";
import type { Call } from "./call.ts";
import { runVerb } from "./config-verb.ts";

const summary = "train a reward model on preference pairs (Bradley-Terry).";

const examples = [
  "trainyard reward model.path=models/tiny data.train_files=pairs.jsonl data.val_size=100",
  "trainyard reward model.path=Qwen/Qwen2.5-0.5B-Instruct data.train_files=train.parquet data.val_files=test.parquet \\",
  "  data.max_length=512 data.truncation=left optim.lr=2e-5",
];

/** Run the verb; returns the exit code. */
export async function run(call: Call): Promise<number> {
  return runVerb(call, rewardSchema, {
    summary,
    examples,
    work: async (config, context) => {
      const { trainReward } = await import("../train/supervised/reward-model.ts");
      await trainReward(config, context);
    },
  });
}
