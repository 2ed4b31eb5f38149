/**
 * Makes data for sft-then-rl.sh: right answers to some of the sums of the quickstart.
 *
 *   npx node examples/recipes/make-demonstrations.ts FOLDER
 */
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const folder = process.argv[2] ?? "checkpoints/recipes/demonstrations";
const count = 64;

type Task = { readonly prompt: readonly object[]; readonly reward_model: { readonly ground_truth: string } };
const lines = readFileSync(join(import.meta.dirname, "../quickstart/train.jsonl"), "utf8").split("\n");
const tasks = lines.slice(0, count).map((line): Task => JSON.parse(line));
const rows = tasks.map(({ prompt, reward_model: { ground_truth: answer } }) => ({
  messages: [...prompt, { role: "assistant", content: answer }],
}));
mkdirSync(folder, { recursive: true });
writeFileSync(join(folder, "answers.jsonl"), rows.map((row) => `${JSON.stringify(row)}\n`).join(""));
