/**
 * Golden cases of topic `rollout_correction`: weights, rejection masks, off-policy metrics, presets, of both versions.
 *
 * The verl function and version that a case names decide what is computed. Where a row has no token that counts,
 * verl puts it into means over rows and ours leaves it out, so that metrics over rows are not compared there; and where
 * every weight is out of bounds, verl 0.9 raises ZeroDivisionError and ours reports a sample size of 0. Where weights are
 * extreme, two metrics are not compared: see `isExtreme`.
 */

import { z } from "zod";
import type { Version } from "../../src/algos/batch.ts";
import { correctionOf } from "../../src/algos/correction/config.ts";
import { correct, correctionMetrics } from "../../src/algos/correction/correct.ts";
import { logRatios, SAFETY_BOUND } from "../../src/algos/correction/log-ratios.ts";
import { presetConfig } from "../../src/algos/correction/presets.ts";
import { offPolicyMetrics } from "../../src/algos/metrics/off-policy-metrics.ts";
import { UserError } from "../../src/util/errors.ts";
import { check, type GoldenCase } from "./compare.ts";

const Rows = z.array(z.array(z.number()));
const Threshold = z.union([z.number(), z.string(), z.boolean()]).nullish();
const Batch = z.looseObject({
  old_log_prob: Rows.optional(),
  log_prob: Rows.optional(),
  rollout_log_prob: Rows.nullish(),
  response_mask: Rows,
});
/** The keys that make a correction; anything in them is for `correctionOf` to judge. */
const Keys = z.object({
  rollout_is: z.string().nullish(),
  rollout_is_threshold: Threshold,
  rollout_is_batch_normalize: z.boolean().nullish(),
  rollout_rs: z.string().nullish(),
  rollout_rs_threshold: Threshold,
  rollout_rs_threshold_lower: Threshold,
  rollout_token_veto_threshold: Threshold,
});

/** Metrics that are means, spreads or extremes over rows. */
const overRows = /_seq_|_seq$|chi2_seq|ppl|veto_fraction|(is|rs)_(max|min|ratio_fraction_\w+)$|seq_\w+_fraction/;
/**
 * Differences of nearly equal numbers; and verl's means divide by the count plus 1e-8, of which a square root makes 1e-4.
 */
export const slackOfCorrection = (path: string): number => (/_std$|chi2_\w+$|k3_kl$/.test(path) ? 1e-3 : 0);

/** The misses of one case. */
export async function checkRolloutCorrection(golden: GoldenCase): Promise<readonly string[]> {
  const compute = computations[golden.function?.split(".")[0] ?? ""];
  if (compute === undefined) return [`${golden.name}: there is no check for this case`];
  let found: unknown;
  const compared = () => {
    try {
      found = compute(golden);
    } catch (error) {
      if (!(error instanceof UserError) || !isDivisionByZero(golden)) throw error;
      return divided;
    }
    return found;
  };
  const misses = await check(comparable(golden), compared, slackOfCorrection);
  return [...misses, ...namesOfOurs(found, golden)];
}

/** Names of metrics are exact: one that verl does not have is a miss too. */
function namesOfOurs(found: unknown, { name, outputs }: GoldenCase): string[] {
  const Logged = z.object({ metrics: z.record(z.string(), z.unknown()) });
  const [ours, theirs] = [Logged.safeParse(found), Logged.safeParse(outputs)];
  if (!ours.success || !theirs.success) return [];
  const more = Object.keys(ours.data.metrics).filter((metric) => !Object.hasOwn(theirs.data.metrics, metric));
  return more.map((metric) => `${name}: verl has no metric ${metric}`);
}

type Compute = (golden: GoldenCase) => unknown;

const computations: Readonly<Record<string, Compute>> = {
  RolloutCorrectionConfig: (golden) => ({ config: presetConfig(golden.name.split("/")[1] ?? "", versionOf(golden)) }),

  compute_offpolicy_metrics: ({ inputs }) => {
    const { old_log_prob, rollout_log_prob, response_mask } = Batch.parse(inputs);
    if (rollout_log_prob != null) return offPolicyMetrics(logRatios(mismatchOf(inputs)));
    // Without log-probs of a sampler verl gives the perplexity of the trainer alone. No run here is without them.
    const logprobs = old_log_prob ?? [];
    const alone = { trainingLogprobs: logprobs, rolloutLogprobs: logprobs, mask: response_mask };
    const metrics = Object.entries(offPolicyMetrics(logRatios(alone)));
    return Object.fromEntries(metrics.filter(([name]) => name.startsWith("training_")));
  },

  compute_rollout_corr_metrics_from_logprobs: ({ inputs }) => correctionMetrics(mismatchOf(inputs)),

  compute_rollout_correction_and_rejection_mask: (golden) => {
    const given = Keys.parse(golden.inputs);
    // A bound cannot be a boolean; the type of the config refuses it, and the parser must too.
    const config = { ...given, version: versionOf(golden) } as Parameters<typeof correctionOf>[0];
    const { mask, weights, metrics } = correct(mismatchOf(golden.inputs), correctionOf(config));
    return {
      modified_response_mask: mask,
      metrics,
      ...(weights === null ? {} : { rollout_is_weights: weights }),
    };
  },
};

const versionOf = ({ version }: GoldenCase): Version => (version?.startsWith("0.7") ? "0.7" : "0.9");

function mismatchOf(inputs: unknown) {
  const { old_log_prob, log_prob, rollout_log_prob, response_mask } = Batch.parse(inputs);
  return {
    trainingLogprobs: old_log_prob ?? log_prob ?? [],
    rolloutLogprobs: rollout_log_prob ?? [],
    mask: response_mask,
  };
}

/** verl 0.9 raises this where every weight is out of bounds, before it looks at other keys. */
export const isDivisionByZero = ({ outputs }: GoldenCase): boolean =>
  z.object({ error: z.literal("ZeroDivisionError") }).safeParse(outputs).success;
const divided = { metrics: { "rollout_corr/rollout_is_eff_sample_size": 0 } };

/** The case without what ours does otherwise on purpose. */
export function comparable(golden: GoldenCase): GoldenCase {
  const { outputs } = golden;
  if (isDivisionByZero(golden)) return { ...golden, outputs: divided };
  return withoutEmptyRows({ ...golden, outputs: without(outputs, isExtreme) });
}

/** Row weights past the safety bound, which ours keeps for the smallest too; and the 1e-8 that verl adds to a mean. */
function isExtreme(key: string, value: number, siblings: Readonly<Record<string, unknown>>): boolean {
  if (/_(is|rs)_min$/.test(key)) return value > Math.exp(SAFETY_BOUND);
  if (!key.endsWith("_eff_sample_size")) return false;
  const mean = siblings[key.replace("eff_sample_size", "mean")];
  return typeof mean === "number" && mean < 1e-3;
}

/** The outputs without the numbers that `isLeft` names. */
function without(
  outputs: unknown,
  isLeft: (key: string, value: number, siblings: Readonly<Record<string, unknown>>) => boolean,
): unknown {
  return JSON.parse(JSON.stringify(outputs), function (this: Record<string, unknown>, key: string, value: unknown) {
    return typeof value === "number" && isLeft(key, value, this) ? undefined : value;
  });
}

function withoutEmptyRows(golden: GoldenCase): GoldenCase {
  const mask = Batch.safeParse(golden.inputs).data?.response_mask ?? [];
  if (!mask.some((row) => row.every((counts) => counts === 0))) return golden;
  return { ...golden, outputs: without(golden.outputs, (key) => overRows.test(key)) };
}
