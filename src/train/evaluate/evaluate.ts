/**
 * Scores of the responses in a file (verl's main_eval): rows in, figures by data source out.
 *
 * `test_score/{source}` is verl's: the mean over rows of the mean over a row's responses. pass@k is added, by the
 * unbiased estimator, averaged over the rows that have k responses or more. A response whose reward went wrong has no
 * score and is left out of every figure; the report says how many there are.
 */
import { z } from "zod";
import { passAtK } from "../../algos/metrics/bootstrap.ts";
import type { EvalConfig } from "../../config/eval/schema.ts";
import { readRows } from "../../data/files.ts";
import { isObject } from "../../data/json-files.ts";
import { columnOf, parseColumn, type Row, rowError } from "../../data/row.ts";
import { describeFailure } from "../../rewards/outcome.ts";
import type { RewardInput, Score } from "../../rewards/reward.ts";
import { openRewards, type Rewards, type RewardsOptions, takesBatches } from "../../rewards/rewards.ts";
import { invariant } from "../../util/errors.ts";
import { counted } from "../../util/format.ts";
import { clearStatus, status, warn } from "../../util/log.ts";
import type { TrainContext } from "../context.ts";
import { inFlight } from "../generate/in-flight.ts";

/** A row with the scores of its responses; null where the reward went wrong. */
export type ScoredRow = {
  readonly file: string;
  readonly row: number;
  readonly dataSource: string;
  /** Its value of `data.group_key`. */
  readonly group: string | null;
  readonly scores: readonly (Score | null)[];
};

/** The figures of a data source, or of a group in it. */
export type Figures = {
  readonly dataSource: string;
  readonly group: string | null;
  readonly rows: number;
  readonly responses: number;
  readonly failed: number;
  /** Null when nothing could be scored. */
  readonly testScore: number | null;
  /** By k. */
  readonly pass: Readonly<Record<number, number>>;
};

export type EvalReport = {
  /** `test_score/{source}` and `test_pass@k/{source}`; for a group, `/{group}` is added. */
  readonly metrics: Readonly<Record<string, number>>;
  /** Each data source, followed by its groups. */
  readonly figures: readonly Figures[];
  readonly failures: readonly string[];
  readonly rows: readonly ScoredRow[];
};

const rowsAtOnce = 256;

/** Score every response of the files. */
export async function evaluate(config: EvalConfig, { signal }: TrainContext): Promise<EvalReport> {
  const { rows } = await readRows(config.data.path);
  const samples = rows.map((row) => samplesOf(row, config)); // every row is checked before the first is scored
  const options = rewardsOf(config);
  const rewards = await openRewards(options);
  try {
    const score = takesBatches(options.scorer) ? scoreTogether : scoreAll;
    const scored = await score(samples, rewards, signal);
    const { failed } = rewards.counts;
    const failures = rewards.failures.map(describeFailure);
    if (failed > 0)
      warn(
        `${counted(failed, "response")} could not be scored and ${failed === 1 ? "is" : "are"} left out of every figure: ${failures.slice(0, 3).join("; ")}`,
      );
    return { ...summarise(scored, config.eval.pass_score), failures, rows: scored };
  } finally {
    clearStatus();
    await rewards.close();
  }
}

/** A row, and what a reward function is given for each of its responses. */
export type Samples = Omit<ScoredRow, "scores"> & { readonly inputs: readonly RewardInput[] };

const Responses = z
  .array(z.string({ error: "text" }), { error: "a list of responses (texts)" })
  .min(1, { error: "a list of at least one response" });
const Truth = z.looseObject(
  { ground_truth: z.unknown().refine((value) => value !== undefined && value !== null, { error: "a ground truth" }) },
  { error: "an object with ground_truth" },
);

/** Check a row of responses. */
export function samplesOf(row: Row, { data, custom_reward_function: custom }: EvalConfig): Samples {
  const { response_key: responseKey, reward_model_key: truthKey, prompt_key: promptKey } = data;
  const responses = parseColumn(row, responseKey, Responses, columnOf(row, responseKey, "data.response_key"));
  const truth = parseColumn(row, truthKey, Truth, columnOf(row, truthKey, "data.reward_model_key"));
  const dataSource = sourceOf(row, data.data_source_key, custom.path !== null);
  const { extra_info: extraInfo } = row.values;
  const inputs = responses.map((response) => ({
    dataSource,
    prompt: promptText(row.values[promptKey]),
    response,
    groundTruth: truth.ground_truth,
    extraInfo: isObject(extraInfo) ? extraInfo : {},
    responseLength: 0, // the file holds text, not tokens
    row: row.row,
  }));
  return { file: row.file, row: row.row, dataSource, group: groupOf(row, data.group_key), inputs };
}

/** The figures of each data source and of each group in it. */
export function summarise(rows: readonly ScoredRow[], passScore: number): Pick<EvalReport, "metrics" | "figures"> {
  const metrics: Record<string, number> = {};
  const figures: Figures[] = [];
  for (const [dataSource, own] of byKey(rows, (row) => row.dataSource)) {
    const groups = byKey(own, (row) => row.group);
    const parts = [{ group: null, rows: own }, ...[...groups].map(([group, rows]) => ({ group, rows }))];
    for (const part of parts) {
      if (part.group === null && part.rows !== own) continue; // rows without a group count in the data source only
      const of = figuresOf(part.rows, passScore);
      figures.push({ dataSource, group: part.group, ...of });
      const name = part.group === null ? dataSource : `${dataSource}/${part.group}`;
      if (of.testScore !== null) metrics[`test_score/${name}`] = of.testScore;
      for (const [k, value] of Object.entries(of.pass)) metrics[`test_pass@${k}/${name}`] = value;
    }
  }
  return { metrics, figures };
}

function figuresOf(rows: readonly ScoredRow[], passScore: number): Omit<Figures, "dataSource" | "group"> {
  const scored = rows.map(({ scores }) => scores.filter((score) => score !== null)).filter(({ length }) => length > 0);
  const responses = rows.reduce((total, { scores }) => total + scores.length, 0);
  const kept = scored.reduce((total, { length }) => total + length, 0);
  const most = scored.reduce((n, { length }) => Math.max(n, length), 0);
  const pass: Record<number, number> = {};
  for (const k of passCounts(most)) {
    const enough = scored.filter(({ length }) => length >= k);
    pass[k] = mean(
      enough.map((scores) => passAtK(scores.length, scores.filter((it) => passes(it, passScore)).length, k)),
    );
  }
  const testScore = scored.length === 0 ? null : mean(scored.map((scores) => mean(scores.map(({ score }) => score))));
  return { rows: rows.length, responses, failed: responses - kept, testScore, pass };
}

/** 1, 2, 4, 8, … below `most`, and `most` itself. */
function passCounts(most: number): number[] {
  const counts: number[] = [];
  for (let k = 1; k < most; k *= 2) counts.push(k);
  return most === 0 ? [] : [...counts, most];
}

function passes({ score, extra: { acc } }: Score, passScore: number): boolean {
  return Number(typeof acc === "boolean" || typeof acc === "number" ? acc : score) >= passScore;
}

async function scoreAll(samples: readonly Samples[], rewards: Rewards, signal: AbortSignal): Promise<ScoredRow[]> {
  const scored: ScoredRow[] = [];
  let done = 0;
  await inFlight([...samples.entries()], { limit: rowsAtOnce, signal }, async ([index, { inputs, ...row }], stop) => {
    const outcomes = await rewards.scoreBatch(inputs, stop);
    scored[index] = { ...row, scores: outcomes.map(({ score }) => score ?? null) };
    status(`scoring · ${++done}/${samples.length} rows`);
  });
  return scored;
}

/** The responses of all rows in the same calls, as the manager `batch` has it. */
async function scoreTogether(samples: readonly Samples[], rewards: Rewards, signal: AbortSignal): Promise<ScoredRow[]> {
  const all = samples.flatMap(({ inputs }) => inputs);
  status(`scoring · ${counted(all.length, "response")}`);
  const scores = (await rewards.scoreBatch(all, signal)).map(({ score }) => score ?? null);
  let end = 0;
  return samples.map(({ inputs, ...row }) => {
    end += inputs.length;
    return { ...row, scores: scores.slice(end - inputs.length, end) };
  });
}

function rewardsOf({ custom_reward_function: custom, reward, reward_manager: manager }: EvalConfig): RewardsOptions {
  const { path, name, reward_kwargs: kwargs } = custom;
  const { sandbox_fusion: fusion } = reward;
  return {
    scorer:
      path === null ? { kind: "builtin" } : { kind: "file", path, name, kwargs, isBatch: manager.name === "batch" },
    ...(reward.batch_size === null ? {} : { batchSize: reward.batch_size }),
    timeoutMs: reward.timeout * 1000,
    errorBudget: reward.error_budget,
    ...(reward.num_workers === null ? {} : { workers: reward.num_workers }),
    ...(fusion.url === null ? {} : { code: fusionOf(fusion) }),
  };
}

function fusionOf({
  url,
  max_concurrent: maxConcurrent,
  memory_limit_mb: memoryMb,
}: EvalConfig["reward"]["sandbox_fusion"]) {
  return { fusionUrl: url, maxConcurrent, memoryMb };
}

/** The built-in scorers are chosen by the data source; the user's own reward function does not need one. */
function sourceOf(row: Row, column: string, isCustom: boolean): string {
  const value = isCustom ? row.values[column] : columnOf(row, column, "data.data_source_key");
  if (typeof value === "string") return value;
  if (isCustom && (value === undefined || value === null)) return "unknown"; // verl's name for rows without one
  throw rowError(row, column, "text", value);
}

/** The value of `data.group_key`; `extra_info.level` is a key inside a struct. */
function groupOf(row: Row, key: string | null): string | null {
  if (key === null) return null;
  const [first = "", ...rest] = Object.hasOwn(row.values, key) ? [key] : key.split(".");
  let value = columnOf(row, first, "data.group_key");
  for (const part of rest) value = isObject(value) ? value[part] : undefined;
  if (value === undefined || value === null) return null;
  if (typeof value === "object") throw rowError(row, key, "a text, a number or null", value);
  return String(value);
}

function promptText(prompt: unknown): string {
  if (typeof prompt === "string") return prompt;
  if (!Array.isArray(prompt)) return "";
  const texts = prompt.map((message: unknown) => (isObject(message) ? message.content : null));
  return texts.filter((text) => typeof text === "string").join("\n");
}

function byKey<K>(rows: readonly ScoredRow[], keyOf: (row: ScoredRow) => K): Map<K, ScoredRow[]> {
  return Map.groupBy(rows, keyOf);
}

function mean(values: readonly number[]): number {
  invariant(values.length > 0, "the mean of nothing");
  return values.reduce((total, value) => total + value, 0) / values.length;
}
