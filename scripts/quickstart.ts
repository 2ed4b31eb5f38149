/**
 * `npm start`: trains a small model to add with carries, by PPO. It also starts the dashboard, and prints the model's
 * answers before and after.
 *
 * It runs the command `npx trainyard ppo examples/quickstart/ppo.ts`. A stopped run is resumed; a finished run is run
 * again. Keys after `npm start --` are passed to that command; `--fresh` starts over.
 */
import { mkdir, open, readFile } from "node:fs/promises";
import { homedir } from "node:os";
import { join } from "node:path";
import { parseArguments } from "../src/cli/arguments.ts";
import { main } from "../src/cli/main.ts";
import { loadConfig } from "../src/config/file.ts";
import { type PpoConfig, ppoSchema } from "../src/config/ppo/schema.ts";
import { resolve } from "../src/config/resolve.ts";
import { latestCheckpoint } from "../src/run/checkpoint.ts";
import { readMetrics } from "../src/run/metrics.ts";
import { metricsPath } from "../src/run/names.ts";
import { info } from "../src/util/log.ts";

const file = "examples/quickstart/ppo.ts";
const intro = `
A model of 0.8 million weights was trained on sums that mostly leave out the
carry: 58+67=15. PPO now rewards it for right sums, and nothing else.
`;
/** How many sums to show: the first ones of the validation file. */
const shown = 6;

async function quickstart(args: readonly string[]): Promise<number> {
  const keys = args.filter((it) => it !== "--fresh");
  const command = ["ppo", file, ...keys];
  const config = await read(command.slice(1));
  if (config === null) return await main(command, process.env); // it prints the mistake, or its help
  info(intro);
  const { default_local_dir: dir, total_training_steps: steps } = config.trainer;
  const isFinished = ((await latestCheckpoint(dir))?.step ?? 0) >= (steps ?? Number.POSITIVE_INFINITY);
  const isFresh = args.includes("--fresh") || isFinished;

  const dashboard = await watch(dir);
  info(`Dashboard: ${dashboard.url}\n\n$ npx trainyard ${command.join(" ")}`);
  const code = await main([...command, ...(isFresh ? ["trainer.resume_mode=disable"] : [])], process.env);
  await dashboard.stop();
  if (code === 130 && (await latestCheckpoint(dir)) !== null)
    info("npm start goes on; npm start -- --fresh starts over.");
  if (code === 0) await conclude(config);
  return code;
}

/** The config of the command; null if the command does not start a run, or has a mistake. */
async function read(args: readonly string[]): Promise<PpoConfig | null> {
  try {
    const parsed = parseArguments(args);
    if (parsed.isHelp || parsed.isDryRun) return null;
    const { entries, file: read } = await loadConfig({ ...parsed, folder: process.cwd() }, ppoSchema);
    return resolve(ppoSchema, [entries, parsed.overrides], { file: read, home: homedir(), env: process.env }).config;
  } catch {
    return null;
  }
}

/** Start the dashboard before the run begins. */
async function watch(folder: string): Promise<{ readonly url: string; stop(): Promise<void> }> {
  await mkdir(folder, { recursive: true });
  await (await open(metricsPath(folder), "a")).close(); // the dashboard takes a folder with this file for a run
  const { startDashboard } = await import("../src/dashboard/server.ts");
  return await startDashboard({ folder });
}

type Task = {
  readonly prompt: readonly { readonly role: string; readonly content: string }[];
  readonly reward_model: { readonly ground_truth: string };
};

/** The answers before and after, the gain, and where to look next. */
async function conclude({ trainer, actor_rollout_ref: all, data }: PpoConfig): Promise<void> {
  const { default_local_dir: dir } = trainer;
  const checkpoint = await latestCheckpoint(dir);
  const [testFile] = data.val_files ?? [];
  if (checkpoint === null || testFile === undefined) return;
  const lines = (await readFile(testFile, "utf8")).split("\n").slice(0, shown);
  const tasks = lines.map((line): Task => JSON.parse(line)); // scripts/make-quickstart-model.ts wrote them
  const trained = join(checkpoint.dir, "actor");
  const [before, after] = [await answers(all.model.path, tasks), await answers(trained, tasks)];

  const say = (line: string) => process.stdout.write(`${line}\n`);
  say("\nSums it has never seen   before    after");
  for (const [i, { prompt, reward_model: truth }] of tasks.entries()) {
    const cell = (answer: string) => `${answer.padStart(7)} ${answer === truth.ground_truth ? "✓" : "✗"}`;
    say(`  ${prompt[0]!.content.padEnd(20)}${cell(before[i]!)}${cell(after[i]!)}`);
  }
  const accuracies = (await readMetrics(dir)).flatMap((step) => step.data["val-core/sums/acc/mean@1"] ?? []);
  const [first = Number.NaN, last = Number.NaN] = [accuracies[0], accuracies.at(-1)];
  say(`  ${"accuracy".padEnd(20)}${first.toFixed(2).padStart(9)}${last.toFixed(2).padStart(9)}\n`);
  say(`Next\n  npx trainyard chat ${trained}`);
  say("      ask it yourself");
  say(`  npx trainyard dashboard ${dir}`);
  say("      its curves, and its answers token by token");
  say("  npx node examples/loop.ts");
  say("      the same by GRPO, in a hundred lines to read and change");
}

/** The greedy answers of a model. */
async function answers(folder: string, tasks: readonly Task[]): Promise<string[]> {
  const { loadModel } = await import("../src/train/load-model.ts");
  await using model = await loadModel(folder);
  return await Promise.all(tasks.map(({ prompt }) => model.chat(prompt, { maxNewTokens: 6, temperature: 0 })));
}

process.chdir(join(import.meta.dirname, ".."));
process.exitCode = await quickstart(process.argv.slice(2));
