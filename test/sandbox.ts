/**
 * A place to train in: a temporary folder with a tiny model, a real tokenizer with a chat template, and rows.
 *
 * `sft` runs the command in this process and gives its exit code and what it said; `startSft` runs it in a process of its
 * own, for tests that kill it. Everything is made on the spot from test/fixtures/text and a seed.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdtempSync, rmSync } from "node:fs";
import { cp, readdir, readFile, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { main } from "../src/cli/main.ts";
import { createModel } from "../src/models/create.ts";
import { readMetrics } from "../src/run/metrics.ts";
import { isTiming } from "./timings.ts";

const fixtures = fileURLToPath(new URL("fixtures/text", import.meta.url));
const launcher = fileURLToPath(new URL("../bin/trainyard.js", import.meta.url));

/** The sandbox's model: two small layers, and a vocabulary that holds the fixture tokenizer's 425 tokens. */
export const tinyConfig = {
  architectures: ["LlamaForCausalLM"],
  model_type: "llama",
  vocab_size: 432,
  hidden_size: 32,
  intermediate_size: 64,
  num_hidden_layers: 2,
  num_attention_heads: 2,
  num_key_value_heads: 1,
  max_position_embeddings: 256,
  rms_norm_eps: 1e-5,
  rope_theta: 10000,
  tie_word_embeddings: true,
  bos_token_id: null,
  eos_token_id: 422,
};

/** A single-turn row of the sandbox. */
export const sum = (i: number) => ({ question: `${i}+${i}=?`, answer: `${2 * i}.` });

export class Sandbox {
  readonly root = mkdtempSync(join(tmpdir(), "trainyard-sft-"));
  readonly model = this.path("model");
  readonly train = this.path("train.jsonl");
  readonly validation = this.path("val.jsonl");

  /** Make the model and 40 rows, 32 of them to learn from. */
  static async make(): Promise<Sandbox> {
    const sandbox = new Sandbox();
    await createModel(sandbox.model, tinyConfig, 1);
    await sandbox.addTokenizer(sandbox.model);
    const rows = Array.from({ length: 40 }, (_, i) => sum(i));
    await sandbox.writeLines("train.jsonl", rows.slice(0, 32));
    await sandbox.writeLines("val.jsonl", rows.slice(32));
    return sandbox;
  }

  path(...names: readonly string[]): string {
    return join(this.root, ...names);
  }

  /** Qwen2's tokenizer with a template that adds a system prompt and writes out tools. */
  async addTokenizer(folder: string): Promise<void> {
    for (const name of ["tokenizer.json", "tokenizer_config.json"])
      await cp(join(fixtures, "qwen2", name), join(folder, name));
    await cp(join(fixtures, "templates", "tools.jinja"), join(folder, "chat_template.jinja"));
  }

  async writeLines(name: string, rows: readonly object[]): Promise<string> {
    const file = this.path(name);
    await writeFile(file, rows.map((row) => `${JSON.stringify(row)}\n`).join(""));
    return file;
  }

  /** A copy of the model under another name, to be broken. */
  async copyModel(name: string): Promise<string> {
    await cp(this.model, this.path(name), { recursive: true });
    return this.path(name);
  }

  /** The arguments of a run in the folder `run`; later ones win. */
  args(run: string, overrides: readonly string[] = []): string[] {
    return [
      "sft",
      `model.path=${this.model}`,
      `data.train_files=${this.train}`,
      `data.val_files=${this.validation}`,
      "data.prompt_key=question",
      "data.train_batch_size=8",
      "data.max_length=128",
      "trainer.threads=2",
      `trainer.default_local_dir=${this.path(run)}`,
      ...overrides,
    ];
  }

  /** Train in this process. */
  async sft(run: string, ...overrides: readonly string[]): Promise<{ code: number; said: string }> {
    return await this.command(...this.args(run, overrides));
  }

  /** Run any command of trainyard in this process; the logger `file` writes into the folder too. */
  async command(...args: readonly string[]): Promise<{ code: number; said: string }> {
    return await this.commandWith({}, ...args);
  }

  /** The same, with further environment variables. */
  async commandWith(
    env: Readonly<Record<string, string>>,
    ...args: readonly string[]
  ): Promise<{ code: number; said: string }> {
    return await listening(() => main(args, { HF_HUB_OFFLINE: "1", VERL_FILE_LOGGER_ROOT: this.root, ...env }));
  }

  /** Train in a process of its own. */
  startSft(run: string, ...overrides: readonly string[]): Child {
    return new Child([process.execPath, launcher, ...this.args(run, overrides)], this.root);
  }

  /** Train in a process that `wrapper`, a command that runs its arguments, starts. */
  startSftUnder(run: string, wrapper: readonly string[], ...overrides: readonly string[]): Child {
    return new Child([...wrapper, process.execPath, launcher, ...this.args(run, overrides)], this.root);
  }

  /** The metrics of a run by step; those that the clock decides only if asked for. */
  async metrics(run: string, { withTimings = false } = {}): Promise<Record<string, number>[]> {
    const lines = await readMetrics(this.path(run));
    return lines.map(({ data }) =>
      Object.fromEntries(Object.entries(data).filter(([name]) => withTimings || !isTiming(name))),
    );
  }

  /** What the law "a resumed run ends like an unbroken one" compares: metrics as text, checksums of the last checkpoint. */
  async outcome(run: string): Promise<{ lines: string[]; step: string; files: Record<string, string> }> {
    const text = await readFile(this.path(run, "metrics.jsonl"), "utf8");
    const lines = text.split("\n").map((line) => line.replace(/,"(timing_|perf\/)[^,}]*/g, ""));
    const step = await readFile(this.path(run, "latest_checkpointed_iteration.txt"), "utf8");
    return { lines, step, files: await checksums(this.path(run, `global_step_${step}`)) };
  }

  remove(): void {
    rmSync(this.root, { recursive: true, force: true });
  }
}

/** Everything below a folder: the checksum of each file by its path, `/` behind the name of an empty folder. */
export async function checksums(folder: string): Promise<Record<string, string>> {
  const found: Record<string, string> = {};
  const entries = await readdir(folder, { recursive: true, withFileTypes: true }).catch(() => []);
  for (const entry of entries) {
    const path = join(entry.parentPath, entry.name);
    const name = path.slice(folder.length + 1);
    if (entry.isFile())
      found[name] = createHash("sha256")
        .update(await readFile(path))
        .digest("hex");
    else found[`${name}/`] = "";
  }
  return Object.fromEntries(Object.entries(found).sort(([a], [b]) => (a < b ? -1 : 1)));
}

/** Run `work`, keeping what is written to stderr meanwhile. */
async function listening(work: () => Promise<number>): Promise<{ code: number; said: string }> {
  const { stderr } = process;
  const write = stderr.write;
  let said = "";
  stderr.write = (chunk: string | Uint8Array) => {
    said += typeof chunk === "string" ? chunk : Buffer.from(chunk).toString();
    return true;
  };
  try {
    return { code: await work(), said };
  } finally {
    stderr.write = write;
  }
}

/** A running command. */
export class Child {
  readonly process: ChildProcess;
  /** The exit code, or the signal that ended it. */
  readonly ended: Promise<number | NodeJS.Signals | null>;
  said = "";

  constructor([command = "", ...args]: readonly string[], cwd: string) {
    this.process = spawn(command, args, { cwd, stdio: ["ignore", "inherit", "pipe"] });
    this.process.stderr?.on("data", (chunk) => {
      this.said += chunk;
    });
    this.ended = new Promise((resolve) => this.process.once("close", (code, signal) => resolve(signal ?? code)));
  }

  get isRunning(): boolean {
    return this.process.exitCode === null && this.process.signalCode === null;
  }

  /** Once it has said something like `pattern`, or has ended. */
  async saying(pattern: RegExp): Promise<void> {
    while (this.isRunning && !pattern.test(this.said)) await pause(5);
  }
}

export const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));
