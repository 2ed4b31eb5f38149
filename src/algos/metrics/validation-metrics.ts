/**
 * Validation metrics under verl's names: by data source, by variable (`reward`, `acc`, …), over prompts with one or
 * several answers (`process_validation_metrics`).
 *
 * A prompt with N answers gives mean@N and, for N > 1, std@N (population), best@k, worst@k and, where there are
 * predictions to vote on (`pred`), maj@k, each with mean and std of a bootstrap, for k = 2, 4, 8, … below N and N itself.
 * Each is averaged over the prompts of the data source that have it. Texts are no variables.
 *
 * Departures: answers of right and wrong (0 and 1) have pass@k too, without the bias of best@k. A value that is null,
 * from a scorer that did not report it, is left out with its vote, and a data source without any has no such metric.
 */
import { UserError } from "../../util/errors.ts";
import { groupRows } from "../batch.ts";
import {
  type BootstrapOptions,
  best,
  drawSamples,
  estimate,
  majority,
  passAtK,
  type Reduce,
  worst,
} from "./bootstrap.ts";
import { type Metrics, meanOf, summary } from "./metrics.ts";

/** What a scorer may return for an answer. */
export type Info = number | boolean | string | null;

/** One entry per answer in every list. */
export type ValidationAnswers = {
  readonly dataSources: readonly string[];
  /** Answers with the same uid are answers to the same prompt. */
  readonly uids: readonly string[];
  readonly infos: Readonly<Record<string, readonly Info[]>>;
  /** Turns of each conversation, where there are any. */
  readonly turns?: readonly number[];
};

/** Data source -> variable -> metric such as `mean@4` -> value. */
export type ValidationTable = Readonly<Record<string, Readonly<Record<string, Metrics>>>>;

/** `val-core/…` for what to watch (mean, maj and best of all answers, of `acc` or else `reward`), `val-aux/…` for the rest. */
export function validationMetrics(answers: ValidationAnswers, options: BootstrapOptions = {}): Metrics {
  const metrics: Record<string, number> = {};
  for (const [source, variables] of Object.entries(processValidationMetrics(answers, options))) {
    const core = Object.hasOwn(variables, "acc") ? "acc" : "reward";
    for (const [variable, values] of Object.entries(variables)) {
      const most = Object.keys(values).reduce((n, name) => Math.max(n, answersIn(name)), 0);
      for (const [name, value] of Object.entries(values)) {
        const isCore = variable === core && /^(mean|maj|best)@/.test(name) && answersIn(name) === most;
        metrics[`${isCore ? "val-core" : "val-aux"}/${source}/${variable}/${name}`] = value;
      }
    }
  }
  return { ...metrics, ...summary("val-aux/num_turns", answers.turns ?? []) };
}

/** The metrics by data source and variable. */
export function processValidationMetrics(answers: ValidationAnswers, options: BootstrapOptions = {}): ValidationTable {
  check(answers);
  const samplesOf = sampler(options);
  const bySource = [...groupRows(answers.dataSources)].map(([source, rows]) => {
    const prompts = [...groupRows(rows.map((row) => answers.uids[row]!)).values()].map((members) =>
      members.map((i) => rows[i]!),
    );
    const variables = Object.entries(answers.infos).flatMap(([variable, infos]) => {
      const values = ofVariable(infos, prompts, answers.infos.pred);
      return values === null ? [] : [[variable, averaged(values, samplesOf)] as const];
    });
    return [source, Object.fromEntries(variables)] as const;
  });
  return Object.fromEntries(bySource);
}

/** The answers to one prompt: their values and, if all have one, their votes. */
type PromptValues = { readonly values: readonly number[]; readonly votes: readonly Info[] | null };
type SamplesOf = (count: number, size: number) => readonly Uint32Array[];

/** The numbers of a variable by prompt, without those that are not known; null if it is a text or nowhere known. */
function ofVariable(
  infos: readonly Info[],
  prompts: readonly number[][],
  preds?: readonly Info[],
): PromptValues[] | null {
  if (prompts.flat().some((row) => typeof infos[row] === "string")) return null;
  const known = prompts.flatMap((prompt) => {
    const rows = prompt.filter((row) => infos[row] !== null);
    if (rows.length === 0) return [];
    const votes = preds === undefined ? null : rows.map((row) => preds[row]!);
    return [
      { values: rows.map((row) => Number(infos[row])), votes: votes?.some((vote) => vote === null) ? null : votes },
    ];
  });
  return known.length === 0 ? null : known;
}

/** Each metric's mean over the prompts that have it. */
function averaged(prompts: readonly PromptValues[], samplesOf: SamplesOf): Metrics {
  const isBinary = prompts.every(({ values }) => values.every((value) => value === 0 || value === 1));
  const lists = new Map<string, number[]>();
  for (const prompt of prompts) {
    for (const [name, value] of Object.entries(promptMetrics(prompt, isBinary, samplesOf))) {
      const list = lists.get(name);
      if (list === undefined) lists.set(name, [value]);
      else list.push(value);
    }
  }
  return Object.fromEntries([...lists].map(([name, list]) => [name, meanOf(list)!]));
}

function promptMetrics({ values, votes }: PromptValues, isBinary: boolean, samplesOf: SamplesOf): Metrics {
  const n = values.length;
  const all = estimate(values);
  const metrics: Record<string, number> = { [`mean@${n}`]: all.mean };
  if (n === 1) return metrics;
  metrics[`std@${n}`] = all.std;
  const reduces: Record<string, Reduce> = { best: best(values), worst: worst(values) };
  if (votes !== null) reduces.maj = majority(values, votes);
  for (const k of sizesUpTo(n)) {
    for (const [name, reduce] of Object.entries(reduces)) {
      const { mean, std } = estimate(samplesOf(n, k).map(reduce));
      metrics[`${name}@${k}/mean`] = mean;
      metrics[`${name}@${k}/std`] = std;
    }
    if (isBinary) metrics[`pass@${k}`] = passAtK(n, values.filter((value) => value === 1).length, k);
  }
  return metrics;
}

/** 2, 4, 8, … below n, and n. */
function sizesUpTo(n: number): number[] {
  const sizes: number[] = [];
  for (let size = 2; size < n; size *= 2) sizes.push(size);
  return [...sizes, n];
}

/** verl seeds every bootstrap again, so the draws for the same numbers are the same: they are made once. */
function sampler(options: BootstrapOptions): SamplesOf {
  const kept = new Map<string, readonly Uint32Array[]>();
  return (count, size) => {
    const key = `${size} of ${count}`;
    const samples = kept.get(key) ?? drawSamples(count, size, options);
    kept.set(key, samples);
    return samples;
  };
}

/** `best@8/mean` -> 8. */
function answersIn(name: string): number {
  return Number(/@(\d+)/.exec(name)?.[1] ?? 0);
}

function check({ dataSources, uids, infos, turns }: ValidationAnswers): void {
  const lists: (readonly [string, readonly unknown[]])[] = [["uids", uids], ...Object.entries(infos)];
  if (turns !== undefined) lists.push(["turns", turns]);
  for (const [name, list] of lists) {
    if (list.length === dataSources.length) continue;
    throw new UserError(
      `\`${name}\` has ${list.length} entries where there are ${dataSources.length} answers. ` +
        "Give one for each answer, null where there is none.",
    );
  }
  for (const [name, list] of Object.entries(infos)) {
    const row = list.findIndex((value) => typeof value === "number" && !Number.isFinite(value));
    if (row < 0) continue;
    throw new UserError(`\`${name}\` of answer ${row} is ${list[row]}. Scorers must return finite numbers.`);
  }
}
