/**
 * Responses to prompts: rows in, the same rows with a `responses` column out (verl's main_generation and
 * main_generation_server).
 *
 * `generate` is the whole run, read downwards. Every row is checked before the first is sampled. Finished rows are kept
 * in a journal beside the output, so that a run that was killed continues from there. The seed of a row depends on its
 * prompt and on `rollout.seed` alone, so the output does not depend on interruptions, on the order of the rows, or on
 * how many rows are sampled at the same time.
 */
import { createHash } from "node:crypto";
import { mkdir } from "node:fs/promises";
import { dirname, resolve } from "node:path";
import type { GenerateConfig } from "../../config/generate/schema.ts";
import { expandHome, readRows, writeRows } from "../../data/files.ts";
import { type Prompt, promptOf } from "../../data/messages.ts";
import { parquetBytes } from "../../data/parquet-writer.ts";
import { columnOf, placeOf, type Row } from "../../data/row.ts";
import { takeLock } from "../../run/lock.ts";
import { messageOf, UserError } from "../../util/errors.ts";
import { explainWrite } from "../../util/files.ts";
import { counted } from "../../util/format.ts";
import { info, status } from "../../util/log.ts";
import { Random } from "../../util/random.ts";
import type { TrainContext } from "../context.ts";
import { inFlight } from "./in-flight.ts";
import { Journal, type JournalEntry } from "./journal.ts";
import { GenerateProgress } from "./progress.ts";
import type { PreparedPrompt, Responder } from "./responder.ts";
import { openResponder } from "./source.ts";

/** Generate to the end, or until the signal is aborted. */
export async function generate(config: GenerateConfig, context: TrainContext): Promise<void> {
  const { data, rollout } = config;
  const output = expandHome(data.output_path);
  const { rows } = await readRows(data.path, data.train_max_samples < 0 ? {} : { maxRows: data.train_max_samples });
  checkOutput(config, rows, output);
  await mkdir(dirname(output), { recursive: true }).catch((error: unknown) => {
    throw explainWrite(output, error);
  });
  const lock = await takeLock(`${output}.lock`, output, "data.output_path");
  try {
    const { responder, settings } = await openResponder(config, context);
    try {
      const tasks = await prepare(rows, config, responder, context.signal);
      await using journal = await Journal.open(journalPath(output), settings);
      const done = await sampleAll(tasks, journal, config, context.signal);
      const responses = tasks.map(({ key }) => done.get(key)!);
      await writeRows(
        output,
        rows.map(({ values }, i) => ({ ...values, responses: responses[i]!.responses })),
      );
      await journal.remove();
      sayDone(responses, output, rollout.response_length);
    } finally {
      await responder.close();
    }
  } finally {
    await lock.release();
  }
}

/** Where finished rows are kept until all are done. */
const journalPath = (output: string): string => `${output}.partial.jsonl`;

/** One row to sample. */
type Task = { readonly row: Row; readonly key: string; readonly prompt: PreparedPrompt };

/** Sample the rows that are not in the journal; returns all rows by key. */
async function sampleAll(
  tasks: readonly Task[],
  journal: Journal,
  { data, rollout }: GenerateConfig,
  signal: AbortSignal,
): Promise<Map<string, JournalEntry>> {
  const done = new Map(journal.entries);
  const left = tasks.filter(({ key }) => !done.has(key));
  sayStart(tasks.length, left.length, journal);
  const progress = new GenerateProgress(tasks.length - left.length, tasks.length);
  const sampling = {
    n: data.n_samples,
    maxNewTokens: rollout.response_length,
    temperature: rollout.do_sample ? rollout.temperature : 0,
    topK: rollout.top_k,
    topP: rollout.top_p,
    ignoreEos: rollout.ignore_eos,
  };
  try {
    await inFlight(left, { limit: data.batch_size, signal }, async ({ row, key, prompt }, stop) => {
      let seen = 0;
      const onToken = () => {
        seen++;
        progress.token();
      };
      const options = { ...sampling, seed: seedOf(rollout.seed, key), signal: stop, onToken };
      const { samples, tokens } = await prompt.sample(options).catch((error: unknown) => {
        throw placed(row, error);
      });
      const sorted = samples.toSorted((a, b) => a.index - b.index);
      const cut = sorted.filter(({ finishReason }) => finishReason === "length").length;
      const entry = { key, responses: sorted.map(({ text }) => text), tokens, cut };
      await journal.append(entry);
      done.set(key, entry);
      progress.row(tokens, seen);
    });
  } catch (error) {
    progress.close();
    await sayKept(progress.done, tasks.length, journal);
    throw error;
  } finally {
    progress.close();
  }
  return done;
}

const yieldEvery = 64;

/** Check and encode every prompt, and give each row its key. */
async function prepare(
  rows: readonly Row[],
  { data }: GenerateConfig,
  responder: Responder,
  signal: AbortSignal,
): Promise<Task[]> {
  const seen = new Map<string, number>();
  const tasks: Task[] = [];
  for (const [index, row] of rows.entries()) {
    if (index % yieldEvery === 0) {
      signal.throwIfAborted();
      status(`reading prompts · ${index}/${rows.length}`);
      await new Promise(setImmediate); // lets Ctrl-C through
    }
    const prompt = promptOf(row, data.prompt_key, columnOf(row, data.prompt_key, "data.prompt_key"));
    const digest = digestOf(prompt);
    const before = seen.get(digest) ?? 0;
    seen.set(digest, before + 1);
    try {
      tasks.push({ row, key: `${digest}.${before}`, prompt: responder.prepare(prompt) });
    } catch (error) {
      throw placed(row, error);
    }
  }
  return tasks;
}

/** Equal prompts have equal digests; a key adds how many equal prompts came before. */
function digestOf({ messages, text }: Prompt): string {
  return createHash("sha256").update(JSON.stringify({ messages, text })).digest("hex").slice(0, 32);
}

/** A seed of 31 bits, which every server accepts. */
function seedOf(seed: number, key: string): number {
  return new Random(seed, "generate", key).bits() >>> 1;
}

function placed(row: Row, error: unknown): unknown {
  return error instanceof UserError ? new UserError(`${placeOf(row)}: ${messageOf(error)}`, { cause: error }) : error;
}

/** Find at the beginning whatever would stop the rows from being written at the end. */
function checkOutput({ data }: GenerateConfig, rows: readonly Row[], output: string): void {
  const same = data.path.find((path) => resolve(expandHome(path)) === resolve(output));
  if (same !== undefined)
    throw new UserError(`\`data.output_path\` is ${output}, which \`data.path\` reads from. Choose another name.`);
  if (output.endsWith(".parquet"))
    parquetBytes(
      output,
      rows.map(({ values }) => ({ ...values, responses: [""] })),
    );
}

function sayStart(total: number, left: number, { path, entries }: Journal): void {
  const done = total - left;
  if (entries.size > 0 && done === 0) {
    throw new UserError(
      `${path} holds ${counted(entries.size, "finished row")}, and none of them has a prompt of this data. ` +
        "Give the data it was made with, delete that file to start over, or choose another `data.output_path`.",
    );
  }
  const others = entries.size - done;
  const unused = others > 0 ? ` (${counted(others, "other")} in ${path} will not be used)` : "";
  if (done > 0) info(`Going on: ${done} of ${counted(total, "row")} are done${unused}.`);
}

/** A journal without rows is removed: there is nothing to continue from. */
async function sayKept(done: number, total: number, journal: Journal): Promise<void> {
  if (done === 0) return journal.remove();
  info(
    `${done} of ${counted(total, "row")} ${done === 1 ? "is" : "are"} done and kept in ${journal.path}. ` +
      "The same command goes on from there.",
  );
}

function sayDone(entries: readonly JournalEntry[], output: string, longest: number): void {
  const responses = entries.reduce((total, entry) => total + entry.responses.length, 0);
  const cut = entries.reduce((total, entry) => total + entry.cut, 0);
  const tokens = entries.reduce((total, entry) => total + entry.tokens, 0);
  info(
    `Done: ${counted(responses, "response")} to ${counted(entries.length, "prompt")}, ${counted(tokens, "token")}, in ${output}.` +
      (cut === 0
        ? ""
        : ` ${counted(cut, "response")} ${cut === 1 ? "was" : "were"} cut at ${longest} tokens (\`rollout.response_length\`) or the model's context.`),
  );
}
