/** `trainyard sft`: arguments to a resolved config, then the training run. */
import { homedir } from "node:os";
import { loadConfig } from "../config/file.ts";
import { resolve } from "../config/resolve.ts";
import { type SftConfig, sftSchema } from "../config/sft.ts";
import { info } from "../util/log.ts";
import { parseArguments } from "./arguments.ts";
import type { Call } from "./call.ts";
import { verbHelp } from "./help.ts";
import { withInterrupt } from "./interrupt.ts";

/** Run the verb; returns the exit code. */
export async function run({ args, env }: Call): Promise<number> {
  const parsed = parseArguments(args);
  if (parsed.isHelp) {
    process.stdout.write(verbHelp(sftSchema, summary, examples));
    return 0;
  }
  const file = await loadConfig({ ...parsed, folder: process.cwd() }, sftSchema);
  const sources = [file.entries, parsed.overrides];
  const { config, notices } = resolve(sftSchema, sources, { configName: file.configName, home: homedir(), env });

  if (file.file !== undefined) info(`Config: ${file.file}`);
  for (const notice of notices) info(notice);
  if (parsed.isDryRun) return print(config);
  return withInterrupt(async (signal) => {
    const { trainSft } = await import("../train/sft.ts");
    await trainSft(config, { signal, env });
  });
}

const summary = "fine-tune a model on prompts and responses, or on conversations.";

const examples = [
  "trainyard sft model.path=models/tiny data.train_files=chats.jsonl",
  "trainyard sft model.path=Qwen/Qwen2.5-0.5B-Instruct data.train_files=train.parquet \\",
  "  data.prompt_key=question data.response_key=answer optim.lr=1e-5",
  "trainyard sft run.yaml trainer.total_epochs=1 --dry-run",
];

async function print(config: SftConfig): Promise<number> {
  const { stringify } = await import("yaml");
  process.stdout.write(stringify(config));
  return 0;
}
