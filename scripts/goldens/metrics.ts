/**
 * Golden cases of topic `metrics`: data, timing and throughput metrics, bootstrap, majority vote, validation metrics,
 * reduction. Names are compared exactly; only `pass@k`, which verl does not have, may be more than verl gives, and a
 * metric that is NaN in verl may be absent.
 */
import { z } from "zod";
import { drawSamples, estimate, majority, type Reduce } from "../../src/algos/metrics/bootstrap.ts";
import { dataMetrics } from "../../src/algos/metrics/data-metrics.ts";
import { reduceMetrics } from "../../src/algos/metrics/metrics.ts";
import { throughputMetrics, timingMetrics } from "../../src/algos/metrics/timing-metrics.ts";
import { processValidationMetrics } from "../../src/algos/metrics/validation-metrics.ts";
import { check, type GoldenCase } from "./compare.ts";

const Numbers = z.array(z.number());
const Rows = z.array(Numbers);
const Seconds = z.record(z.string(), z.number());

const computes: Readonly<Record<string, (inputs: unknown) => unknown>> = {
  compute_data_metrics: ofData,
  compute_timing_metrics: ofTimes,
  compute_throughout_metrics: ofThroughput,
  bootstrap_metric: ofBootstrap,
  calc_maj_val: ofMajority,
  process_validation_metrics: ofValidation,
  "verl.utils.metric.reduce_metrics": (inputs) =>
    reduceMetrics(z.object({ metrics: z.record(z.string(), Numbers) }).parse(inputs).metrics),
};

/** What differs from the golden outputs; empty when nothing does. */
export async function checkMetrics(golden: GoldenCase): Promise<string[]> {
  const compute = computes[golden.function ?? ""];
  if (compute === undefined) return [`${golden.name}: there is no check for \`${golden.function}\``];
  if (isLeftOut(golden)) return check({ ...golden, outputs: {} }, () => compute(golden.inputs));
  const named = { ...golden, outputs: withNames(golden.outputs) };
  return check(named, () => withNames(compute(golden.inputs)));
}

/** verl 0.7 raises where there is nothing to take a mean of; ours leaves the metric out, as 0.9 does with NaN. */
function isLeftOut({ outputs, version, inputs }: GoldenCase): boolean {
  if (!version?.startsWith("0.7") || !Object.hasOwn(Object(outputs), "error")) return false;
  const given = z.object({ attention_mask: Rows, responses: Rows.optional(), response_length: z.number().optional() });
  const { data } = given.safeParse(inputs);
  if (data === undefined) return false;
  const width = data.response_length ?? data.responses?.[0]?.length ?? 0;
  return lengths(data.attention_mask, width).responseLengths.every((length) => length === 0);
}

/** The same with a list of all names, so that one too many is noticed. */
function withNames(outputs: unknown): unknown {
  const { error } = z.object({ error: z.string().optional() }).parse(outputs);
  return error === undefined ? { ...Object(outputs), names: namesIn(outputs, "").sort() } : outputs;
}

function namesIn(tree: unknown, path: string): string[] {
  if (tree === "not finite") return [];
  if (typeof tree !== "object" || tree === null || Array.isArray(tree)) return [path];
  const names = Object.entries(tree).flatMap(([name, branch]) => namesIn(branch, `${path}.${name}`));
  return names.filter((name) => !/\.pass@\d+$/.test(name));
}

function ofData(inputs: unknown): unknown {
  const Inputs = z.object({
    token_level_scores: Rows,
    token_level_rewards: Rows,
    advantages: Rows,
    returns: Rows,
    values: Rows.optional(),
    response_mask: Rows,
    responses: Rows,
    attention_mask: Rows,
    use_critic: z.boolean(),
    __num_turns__: Numbers.optional(),
    tool_call_counts: Numbers.optional(),
  });
  const given = Inputs.parse(inputs);
  const width = given.responses[0]?.length ?? 0;
  const batch = {
    mask: given.response_mask,
    scores: given.token_level_scores,
    rewards: given.token_level_rewards,
    advantages: given.advantages,
    returns: given.returns,
    ...(given.use_critic && given.values !== undefined ? { values: given.values } : {}),
    ...lengths(given.attention_mask, width),
    ...(given.__num_turns__ === undefined ? {} : { turns: given.__num_turns__ }),
    ...(given.tool_call_counts === undefined ? {} : { toolCalls: given.tool_call_counts }),
  };
  const maxPromptLength = (given.attention_mask[0]?.length ?? 0) - width;
  return dataMetrics(batch, { maxPromptLength, maxResponseLength: width });
}

/** Tokens of each prompt and response: what verl reads off the attention mask of padded rows. */
function lengths(attention: readonly (readonly number[])[], responseWidth: number) {
  const total = (row: readonly number[]) => row.reduce((sum, bit) => sum + bit, 0);
  return {
    promptLengths: attention.map((row) => total(row.slice(0, row.length - responseWidth))),
    responseLengths: attention.map((row) => total(row.slice(row.length - responseWidth))),
  };
}

function ofTimes(inputs: unknown): unknown {
  const Inputs = z.object({ attention_mask: Rows, response_length: z.number(), timing_raw: Seconds });
  const given = Inputs.parse(inputs);
  const { promptLengths, responseLengths } = lengths(given.attention_mask, given.response_length);
  const total = (list: readonly number[]) => list.reduce((sum, length) => sum + length, 0);
  return timingMetrics(given.timing_raw, {
    promptTokens: total(promptLengths),
    responseTokens: total(responseLengths),
  });
}

function ofThroughput(inputs: unknown): unknown {
  const Inputs = z.object({ global_token_num: Numbers, timing_raw: Seconds, n_gpus: z.number() });
  const given = Inputs.parse(inputs);
  const tokens = given.global_token_num.reduce((sum, count) => sum + count, 0);
  return throughputMetrics({ tokens, stepSeconds: given.timing_raw.step!, workers: given.n_gpus });
}

function ofBootstrap(inputs: unknown): unknown {
  const Inputs = z.object({
    data: Numbers,
    subset_size: z.number(),
    reduce_fns: z.array(z.enum(["mean", "max", "min"])),
    n_bootstrap: z.number(),
    seed: z.number(),
  });
  const { data, subset_size: size, reduce_fns, n_bootstrap: draws, seed } = Inputs.parse(inputs);
  const statistics = {
    mean: (values: number[]) => estimate(values).mean,
    max: (values: number[]) => Math.max(...values),
    min: (values: number[]) => Math.min(...values),
  };
  const reduces = reduce_fns.map(
    (name): Reduce =>
      (drawn) =>
        statistics[name](Array.from(drawn, (i) => data[i]!)),
  );
  const samples = drawSamples(data.length, size, { draws, seed });
  return {
    mean_std_per_fn: reduces.map((reduce) => {
      const { mean, std } = estimate(samples.map(reduce));
      return [mean, std];
    }),
    first_5_index_draws: drawSamples(data.length, size, { draws: 5, seed }),
  };
}

function ofMajority(inputs: unknown): unknown {
  const Inputs = z.object({
    data: z.array(z.record(z.string(), z.unknown())),
    vote_key: z.string(),
    val_key: z.string(),
  });
  const { data, vote_key, val_key } = Inputs.parse(inputs);
  const values = data.map((answer) => z.number().parse(answer[val_key]));
  const votes = data.map((answer) => answer[vote_key]);
  return { maj_val: majority(values, votes)(Uint32Array.from(data.keys())) };
}

function ofValidation(inputs: unknown): unknown {
  const Inputs = z.object({
    data_sources: z.array(z.string()),
    sample_uids: z.array(z.string()),
    infos_dict: z.record(z.string(), z.array(z.union([z.number(), z.boolean(), z.string(), z.null()]))),
    seed: z.number().optional(),
  });
  const { data_sources: dataSources, sample_uids: uids, infos_dict: infos, seed = 42 } = Inputs.parse(inputs);
  return processValidationMetrics({ dataSources, uids, infos }, { seed });
}
