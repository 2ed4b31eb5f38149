/** `trainyard reward`: the training of a reward model. */
import { rewardSchema } from "../config/reward/schema.ts";
import { configVerb } from "./config-verb.ts";
import type { Verb } from "./verb.ts";

export const verb: Verb = configVerb({
  schema: rewardSchema,
  examples: [
    "trainyard reward model.path=models/tiny data.train_files=pairs.jsonl data.val_size=100",
    "trainyard reward model.path=Qwen/Qwen2.5-0.5B-Instruct data.train_files=train.parquet data.val_files=test.parquet \\",
    "  data.max_length=512 data.truncation=left optim.lr=2e-5",
  ],
  rows: {
    fits: (has) => has("chosen", "rejected"),
    check: async (task, findings) => (await import("./reward-check.ts")).checkPairs(task, findings),
  },
  plan: async (config, context) => (await import("./reward-plan.ts")).planReward(config, context),
  async run(config, context) {
    const { trainReward } = await import("../train/supervised/reward-model.ts");
    await trainReward(config, context);
  },
});
