/**
 * Golden cases of topic `policy_losses`: value, gradient with respect to log-probs, and metrics of every policy loss.
 *
 * verl divides metrics by the tokens of the micro-batch and losses by those of the global batch, ours divides both by
 * the counts it is given: so losses run with `global_batch_info` and metrics with the counts of the case itself. `dp_size` is
 * a factor on the loss, which we leave to engines. Which tokens `clip_cov` drops is random: the candidates are compared,
 * the number drawn is, and the loss is computed for the ones that verl drew.
 */

import { z } from "zod";
import type { Rows, Version } from "../../src/algos/batch.ts";
import { type BypassLoss, correctionOf } from "../../src/algos/correction/config.ts";
import { correctUpdate } from "../../src/algos/correction/correct.ts";
import type { ActorSettings } from "../../src/algos/losses/actor-loss.ts";
import { type AggregateMode, batchScalars } from "../../src/algos/losses/aggregate.ts";
import { clipCandidates } from "../../src/algos/losses/policy/covariance.ts";
import { reinforce } from "../../src/algos/losses/policy/gradient.ts";
import { type PolicyLoss, policyTensors } from "../../src/algos/losses/policy/policy-loss.ts";
import { findPolicyLoss } from "../../src/algos/losses/policy/registry.ts";
import { UserError } from "../../src/util/errors.ts";
import { Random } from "../../src/util/random.ts";
import { check, type GoldenCase } from "./compare.ts";
import { comparable, isDivisionByZero, slackOfCorrection } from "./rollout-correction.ts";
import { defaultSettings } from "./settings.ts";
import { runLoss } from "./traced.ts";

const Numbers = z.array(z.array(z.number()));
export const GlobalBatch = z.object({
  dp_size: z.number().optional(),
  batch_num_tokens: z.number().optional(),
  global_batch_size: z.number().optional(),
  loss_scale_factor: z.number().optional(),
});
export type GlobalBatch = z.infer<typeof GlobalBatch>;
const Correction = z.looseObject({ loss_type: z.string().optional() });
const Inputs = z.object({
  old_log_prob: Numbers,
  log_prob: Numbers,
  advantages: Numbers,
  response_mask: Numbers,
  rollout_is_weights: Numbers.optional(),
  config: z.looseObject({
    policy_loss: z.looseObject({ rollout_correction: Correction.optional() }).optional(),
    global_batch_info: GlobalBatch.optional(),
  }),
});
type Inputs = z.infer<typeof Inputs>;
const Places = z.array(z.tuple([z.number(), z.number()]));
const Metrics = z.record(z.string(), z.union([z.number(), z.literal("not finite")])).default({});
const Mode = z.object({ metrics: Metrics, candidates: Places.optional(), dropped: Places.optional() });
const Outputs = z.looseObject({ metrics: Metrics });

/** What differs from the golden outputs; empty when nothing does. */
export async function checkPolicyLosses(golden: GoldenCase): Promise<readonly string[]> {
  const name = golden.function ?? "";
  const find = () => (name.startsWith("reinforce") ? reinforce : findPolicyLoss(name));
  let surplus: readonly string[] = [];
  const misses = await check(
    name === "bypass_mode" ? comparableBypass(golden) : golden,
    () => {
      const found = lossOrRefusal(golden, find());
      surplus = found.surplus.map((metric) => `${golden.name}: verl has no metric ${metric}`);
      return found.outputs;
    },
    slackOfCorrection,
  );
  return misses.length > 0 ? misses : surplus;
}

/** What the loss gives; nothing if ours refuses keys that verl does not get to. */
function lossOrRefusal(golden: GoldenCase, loss: PolicyLoss): ReturnType<typeof lossOutputs> {
  try {
    return lossOutputs(golden, loss);
  } catch (error) {
    if (!(error instanceof UserError) || !isDivisionByZero(golden)) throw error;
    return { outputs: {}, surplus: [] };
  }
}

/** What the loss gives, and names of its metrics that the case does not have: names are exact. */
function lossOutputs(golden: GoldenCase, loss: PolicyLoss): { outputs: unknown; surplus: string[] } {
  const given = Inputs.parse(golden.inputs);
  const { metrics: common, ...perMode } = Outputs.parse(golden.outputs);
  const version = versionOf(golden);
  const modes = Object.hasOwn(perMode, "error") ? { [modeOf(golden)]: {} } : perMode;
  const corrected = correctionFor(given, loss, version);
  const batch = {
    logprobs: given.log_prob,
    oldLogprobs: given.old_log_prob,
    advantages: given.advantages,
    mask: corrected?.mask ?? given.response_mask,
  };
  const weights = corrected === null ? (given.rollout_is_weights ?? null) : corrected.weights;
  const rows = { ...batch, ...(weights === null ? {} : { rolloutWeights: weights }) };
  const counts = batchScalars(batch.mask, batch.mask[0]!.length);
  // verl's geo_mean has rows without tokens in its mean.
  const local = loss.name === "geo_mean" ? { ...counts, batch_rows: batch.mask.length } : counts;

  const found: Record<string, unknown> = {};
  const surplus = new Set<string>();
  for (const [mode, value] of Object.entries(modes)) {
    const { metrics: own, candidates, dropped } = Mode.parse(value);
    const config = configOf(given, mode as AggregateMode, version); // an unknown one is refused by the loss
    loss.check?.(config);
    const prepared = loss.prepare?.(batch, config, new Random(1)) ?? {};
    if (dropped !== undefined) checkDraw(prepared.isSelected!, dropped);
    const extra = dropped === undefined ? prepared : { isSelected: marked(batch.mask, dropped) };
    const run = {
      build: (tensors: Parameters<typeof policyTensors>[0]) => loss.build(policyTensors(tensors, config), config),
      rows: { ...rows, ...extra },
      wrt: ["logprobs"],
    };
    const info = loss.name === "geo_mean" ? {} : (given.config.global_batch_info ?? {}); // its mean is a local one
    const { loss: total, gradients } = runLoss({ ...run, scalars: { ...local, ...globalCounts(info) } });
    const scale = ranksIn(info, effectiveMode(loss, config), version);
    const metrics = { ...runLoss({ ...run, scalars: local }).metrics, ...corrected?.metrics };
    found[mode] = {
      loss: total * scale,
      grad_log_prob: gradients.logprobs!.map((row) => row.map((slope) => slope * scale)),
      metrics,
      ...(candidates === undefined ? {} : { candidates: clipCandidates(batch, config), dropped }),
    };
    found.metrics = metrics;
    for (const name of Object.keys(metrics)) {
      if (!Object.hasOwn({ ...common, ...own }, name) && !Object.hasOwn(perMode, "error")) surplus.add(name);
    }
  }
  return { outputs: found, surplus: [...surplus] };
}

/** In bypass mode the outputs hold metrics of the correction; where verl divides by zero nothing is compared. */
const comparableBypass = (golden: GoldenCase): GoldenCase =>
  isDivisionByZero(golden) ? { ...golden, outputs: {} } : comparable(golden);

// ---------------------------------------------------------------- verl's counts

export const versionOf = ({ version }: GoldenCase): Version => (version?.startsWith("0.7") ? "0.7" : "0.9");

/** The mode of a case that has no outputs by mode, because it is refused. */
export const modeOf = ({ inputs }: GoldenCase): string =>
  z.object({ loss_agg_mode: z.string().default("token-mean") }).parse(inputs).loss_agg_mode;

/** The scalars that the global batch gives. */
export function globalCounts({ batch_num_tokens, global_batch_size }: GlobalBatch): Record<string, number> {
  return {
    ...(batch_num_tokens === undefined ? {} : { batch_tokens: batch_num_tokens }),
    ...(global_batch_size === undefined ? {} : { batch_rows: global_batch_size }),
  };
}

/** verl multiplies by the number of ranks, whose gradients it averages; 0.7 forgets to in one mode. */
export function ranksIn({ dp_size = 1 }: GlobalBatch, mode: string, version: Version): number {
  return version === "0.7" && mode === "seq-mean-token-sum-norm" ? 1 : dp_size;
}

function effectiveMode(loss: PolicyLoss, { loss_agg_mode, version }: ActorSettings): AggregateMode {
  const isFixed = loss.name === "sapo" || (loss.name === "gspo" && version === "0.7");
  return isFixed ? "seq-mean-token-mean" : loss_agg_mode;
}

function configOf({ config }: Inputs, mode: AggregateMode, version: Version): ActorSettings {
  const { policy_loss, global_batch_info, ...rest } = config;
  const { rollout_correction, ...given } = policy_loss ?? {};
  const { actor: defaults } = defaultSettings;
  const { loss_type = "ppo_clip" } = rollout_correction ?? {};
  return {
    ...defaults,
    ...rest,
    policy_loss: { ...defaults.policy_loss, ...given },
    rollout_correction: { loss_type: loss_type as BypassLoss }, // an unknown one is refused by the loss
    loss_agg_mode: mode,
    loss_scale_factor: global_batch_info?.loss_scale_factor ?? null,
    version,
  };
}

// ---------------------------------------------------------------- what is given to losses

/** Bypass mode computes weights and mask from the current log-probs against the sampler's. */
function correctionFor(given: Inputs, loss: PolicyLoss, version: Version) {
  if (loss.name !== "bypass_mode") return null;
  const keys = given.config.policy_loss?.rollout_correction ?? {};
  const config = { ...keys, version } as Parameters<typeof correctionOf>[0]; // which judges names and values itself
  const { log_prob: trainingLogprobs, old_log_prob: rolloutLogprobs, response_mask: mask } = given;
  return correctUpdate({ trainingLogprobs, rolloutLogprobs, mask }, correctionOf(config));
}

function marked(mask: Rows, places: z.infer<typeof Places>): Rows {
  const rows = mask.map(({ length }) => new Float64Array(length));
  for (const [row, t] of places) rows[row]![t] = 1;
  return rows;
}

/** Our draw differs from verl's, but takes as many. */
function checkDraw(drawn: readonly Float64Array[], dropped: z.infer<typeof Places>): void {
  const count = drawn.reduce((total, row) => total + row.reduce((a, b) => a + b, 0), 0);
  if (count !== dropped.length) throw new Error(`${count} tokens were drawn, and verl drops ${dropped.length}`);
}
