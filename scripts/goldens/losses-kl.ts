/**
 * Golden cases of topic `losses_kl`: aggregation, value loss, entropy, KL kinds and controllers, KL in the reward and
 * PF-PPO's weights, with gradients where the case has them.
 *
 * Departures: the `+` kinds work for verl 0.7 too, whose refusal is not compared. Rows without a counted token are not
 * in our mean KL; they are put back into it before it is compared. verl 0.9 refuses `dp_size` without global counts;
 * there is no `dp_size` here to refuse. What PF-PPO drew is random; that its rows are those of the draw is compared.
 * Counts as in `policy-losses.ts`.
 */

import { z } from "zod";
import type { Version } from "../../src/algos/batch.ts";
import { adapt, klControl, klControlFields } from "../../src/algos/kl/control.ts";
import { klEstimate, klNames, klPenalty } from "../../src/algos/kl/estimates.ts";
import { penalizeRewards } from "../../src/algos/kl/reward-penalty.ts";
import { type AggregateMode, aggregate, batchScalars } from "../../src/algos/losses/aggregate.ts";
import type { LossParts, LossTensors } from "../../src/algos/losses/token-loss.ts";
import { valueLoss } from "../../src/algos/losses/value-loss.ts";
import { samplingWeights } from "../../src/algos/selection/pf-ppo.ts";
import * as o from "../../src/graph/ops.ts";
import { grad } from "../../src/graph/vjp.ts";
import { interpret } from "../../src/runtime/interpreter.ts";
import { defaultsOf } from "../../src/util/field.ts";
import { check, type GoldenCase } from "./compare.ts";
import { GlobalBatch, globalCounts, modeOf, ranksIn, versionOf } from "./policy-losses.ts";
import { runLoss, unflatten } from "./traced.ts";

const Rows = z.array(z.array(z.number()));

type Compute = (golden: GoldenCase, outputs: readonly string[]) => unknown;

const computes: Readonly<Record<string, Compute>> = {
  agg_loss: aggregated,
  compute_value_loss: valueLosses,
  compute_entropy_loss: entropies,
  compute_rewards: rewards,
  AdaptiveKLController: controlled,
  FixedKLController: controlled,
  kl_penalty: penalties,
  apply_kl_penalty: penalized,
  compute_pf_ppo_reweight_data: reweighted,
};

/** What differs from the golden outputs; empty when nothing does. */
export async function checkLossesKl(golden: GoldenCase): Promise<readonly string[]> {
  const compute = computes[golden.function ?? ""];
  if (compute === undefined) return [`${golden.name}: there is no check for this case`];
  const names = Object.keys(Object(golden.outputs));
  if (!names.includes("error")) return check(golden, () => compute(golden, names));
  const { dp_size = 1, batch_num_tokens, global_batch_size } = GlobalBatch.catch({}).parse(golden.inputs);
  if (dp_size > 1 && (batch_num_tokens === undefined || global_batch_size === undefined)) return [];
  const { kl_penalty: kind } = z.object({ kl_penalty: z.string().optional() }).parse(golden.inputs);
  return check(golden, () => compute(golden, [golden.function === "kl_penalty" ? (kind ?? "") : modeOf(golden)]));
}

// ---------------------------------------------------------------- losses

/** Something per aggregation mode. */
function perMode<T>(modes: readonly string[], compute: (mode: AggregateMode) => T): Record<string, T> {
  return Object.fromEntries(modes.map((mode) => [mode, compute(mode as AggregateMode)])); // unknown ones are refused
}

function optionsFor(mode: AggregateMode, info: GlobalBatch, version: Version) {
  return { loss_agg_mode: mode, loss_scale_factor: info.loss_scale_factor ?? null, version };
}

const times = (rows: readonly (readonly number[])[], factor: number) => rows.map((row) => row.map((x) => x * factor));

function aggregated(golden: GoldenCase, modes: readonly string[]): unknown {
  const { loss_mat: x, loss_mask: mask } = z.object({ loss_mat: Rows, loss_mask: Rows }).parse(golden.inputs);
  const info = GlobalBatch.parse(golden.inputs);
  const version = versionOf(golden);
  return perMode(modes, (mode) => {
    const build = (tensors: LossTensors): LossParts => ({
      loss: aggregate(tensors.x!, tensors, optionsFor(mode, info, version)),
      metrics: {},
    });
    const scalars = { ...batchScalars(mask, mask[0]!.length), ...globalCounts(info) };
    const { loss, gradients } = runLoss({ build, rows: { x, mask }, scalars, wrt: ["x"] });
    const ranks = ranksIn(info, mode, version);
    return { loss: loss * ranks, grad_loss_mat: times(gradients.x!, ranks) };
  });
}

function valueLosses(golden: GoldenCase, modes: readonly string[]): unknown {
  const Inputs = z.object({
    vpreds: Rows,
    returns: Rows,
    values: Rows,
    response_mask: Rows,
    cliprange_value: z.number(),
  });
  const { vpreds, returns, values, response_mask: mask, cliprange_value } = Inputs.parse(golden.inputs);
  const info = GlobalBatch.parse(golden.inputs);
  const version = versionOf(golden);
  const local = batchScalars(mask, mask[0]!.length);
  return perMode(modes, (mode) => {
    const { build } = valueLoss({ ...optionsFor(mode, info, version), cliprange_value });
    const run = { build, rows: { values: vpreds, oldValues: values, returns, mask }, wrt: ["values"] };
    const { loss, gradients } = runLoss({ ...run, scalars: { ...local, ...globalCounts(info) } });
    const { metrics } = runLoss({ ...run, scalars: local });
    const ranks = ranksIn(info, mode, version);
    return {
      vf_loss: loss * ranks,
      vf_clipfrac: metrics["critic/vf_clipfrac"],
      grad_vpreds: times(gradients.values!, ranks),
    };
  });
}

/** The logits are the hidden states of a head whose matrix is the identity. */
function entropies(golden: GoldenCase, modes: readonly string[]): unknown {
  const Inputs = z.object({ logits: z.array(Rows), response_mask: Rows });
  const { logits, response_mask: mask } = Inputs.parse(golden.inputs);
  const [rows, time, size] = [logits.length, logits[0]!.length, logits[0]![0]!.length];
  const hidden = o.input("hidden", [rows * time, size]);
  const weight = o.input("weight", [size, size]);
  const entropy = o.tokenEntropy(hidden, weight, { softcap: null, temperature: 1 });
  const scalars = batchScalars(mask, time);
  const tensors = {
    mask: o.input("mask", [rows, time]),
    ...Object.fromEntries(Object.entries(scalars).map(([name, value]) => [name, o.constant(value)])),
  };
  return perMode(modes, (mode) => {
    const loss = aggregate(o.reshape(entropy, [rows, time]), tensors, optionsFor(mode, {}, versionOf(golden)));
    const found = interpret(
      { loss, slope: grad(loss, [hidden])[0]! },
      {
        hidden: logits.flat(2),
        weight: Array.from({ length: size * size }, (_, i) => Number(i % (size + 1) === 0)),
        mask: mask.flat(),
      },
    );
    const slopes = unflatten(found.slope!.data, size);
    return {
      loss: found.loss!.data[0],
      grad_logits: Array.from({ length: rows }, (_, row) => slopes.slice(row * time, (row + 1) * time)),
    };
  });
}

// ---------------------------------------------------------------- KL

/** The kinds in both forms: the traced one with its gradient, and the plain one. */
function penalties(golden: GoldenCase, kinds: readonly string[]): unknown {
  const { logprob, ref_logprob } = z.object({ logprob: Rows, ref_logprob: Rows }).parse(golden.inputs);
  const expected = z.record(z.string(), z.unknown()).parse(golden.outputs);
  const mask = logprob.map((row) => row.map(() => 1));
  return Object.fromEntries(
    kinds.map((kind) => {
      const isRefused = typeof expected[kind] === "string";
      if (isRefused) return [kind, klNames().includes(kind) ? expected[kind] : refusal(kind, String(expected[kind]))];
      const shape = [logprob.length, logprob[0]!.length];
      const [logprobs, reference] = [o.input("logprobs", shape), o.input("ref", shape)];
      const kl = klPenalty(logprobs, reference, kind);
      const [slope] = grad(o.sum(kl), [logprobs]);
      const found = interpret({ kl, slope: slope! }, { logprobs: logprob.flat(), ref: ref_logprob.flat() });
      const traced = unflatten(found.kl!.data, mask[0]!.length);
      const plain = logprob.map((row, i) => row.map((value, t) => klEstimate(kind)(value, ref_logprob[i]![t]!)));
      const isSame = traced.flat().every((value, i) => Math.abs(value - plain.flat()[i]!) < 1e-9);
      return [
        kind,
        {
          kl: isSame ? traced : `traced ${traced} and plain ${plain}`,
          grad_logprob_of_sum: unflatten(found.slope!.data, mask[0]!.length),
        },
      ];
    }),
  );
}

/** What verl raises, if the kind is refused here too. */
function refusal(kind: string, error: string): string {
  try {
    klEstimate(kind);
    return "accepted";
  } catch {
    return error;
  }
}

const controlDefaults = defaultsOf(klControlFields);
const Control = z.object({
  type: z.enum(["fixed", "adaptive"]).optional(),
  kl_coef: z.number(),
  target_kl: z.number().optional(),
  horizon: z.number().optional(),
});

function controlled({ inputs }: GoldenCase): unknown {
  const Inputs = z.object({
    init_kl_coef: z.number().optional(),
    kl_coef: z.number().optional(),
    target_kl: z.number().optional(),
    horizon: z.number().optional(),
    current_kl: z.array(z.number()),
    n_steps: z.array(z.number()),
  });
  const { init_kl_coef, kl_coef, target_kl, horizon, current_kl, n_steps } = Inputs.parse(inputs);
  const isAdaptive = target_kl !== undefined && horizon !== undefined;
  let control = klControl({
    ...controlDefaults,
    kl_coef: init_kl_coef ?? kl_coef ?? Number.NaN,
    ...(isAdaptive ? { type: "adaptive" as const, target_kl, horizon } : {}),
  });
  const values = current_kl.map((kl, i) => {
    control = adapt(control, kl, n_steps[i]!);
    return control.kl_coef;
  });
  return { value_after_each_update: values };
}

function penalized({ inputs }: GoldenCase): unknown {
  const Inputs = z.object({
    response_mask: Rows,
    token_level_scores: Rows,
    old_log_probs: Rows,
    ref_log_prob: Rows,
    kl_penalty: z.string(),
    kl_ctrl: Control,
  });
  const given = Inputs.parse(inputs);
  const { type, kl_coef, target_kl, horizon } = given.kl_ctrl;
  const before = klControl({
    ...controlDefaults,
    kl_coef,
    ...(type === undefined ? {} : { type }),
    ...(target_kl === undefined ? {} : { target_kl }),
    ...(horizon === undefined ? {} : { horizon }),
  });
  const { rewards, control, metrics } = penalizeRewards(
    {
      scores: given.token_level_scores,
      oldLogprobs: given.old_log_probs,
      refLogprobs: given.ref_log_prob,
      mask: given.response_mask,
    },
    { kind: given.kl_penalty, control: before },
  );
  const rows = given.response_mask.length;
  const { batch_rows } = batchScalars(given.response_mask, 1);
  const kl = metrics["actor/reward_kl_penalty"] * (batch_rows / rows);
  return {
    token_level_rewards: rewards,
    metrics: { ...metrics, "actor/reward_kl_penalty": kl },
    kl_coef_after: batch_rows === rows ? control.kl_coef : adapt(before, kl, rows).kl_coef,
  };
}

/** `compute_rewards` is the penalty of kind k1 on every token. */
function rewards({ inputs }: GoldenCase): unknown {
  const Inputs = z.object({
    token_level_scores: Rows,
    old_log_prob: Rows,
    ref_log_prob: Rows,
    kl_ratio: z.number(),
  });
  const { token_level_scores: scores, old_log_prob, ref_log_prob, kl_ratio } = Inputs.parse(inputs);
  const mask = scores.map((row) => row.map(() => 1));
  const batch = { scores, oldLogprobs: old_log_prob, refLogprobs: ref_log_prob, mask };
  return {
    rewards: penalizeRewards(batch, { kind: "kl", control: klControl({ ...controlDefaults, kl_coef: kl_ratio }) })
      .rewards,
  };
}

// ---------------------------------------------------------------- PF-PPO

function reweighted({ inputs, outputs }: GoldenCase): unknown {
  const Inputs = z.object({
    token_level_scores: Rows,
    uid: z.array(z.string()),
    reweight_method: z.string(),
    weight_pow: z.number(),
  });
  const { token_level_scores, uid, reweight_method, weight_pow } = Inputs.parse(inputs);
  const draw = z.object({ example_draw: z.array(z.number()).optional() }).parse(outputs).example_draw ?? [];
  const scores = token_level_scores.map((row) => row.reduce((a, b) => a + b, 0));
  return {
    sampling_weights: samplingWeights(scores, { reweight_method, weight_pow }),
    example_draw: draw,
    resampled_uid_for_example_draw: draw.map((row) => uid[row]),
  };
}
