/**
 * Losses against the collapse of entropy (arXiv:2505.22617). A few tokens cause it: those whose log-prob and advantage
 * are both far above the mean. `clip_cov` takes the gradient from some of them, `kl_cov` holds them back.
 *
 * Which tokens is a question about the whole batch: means and ranks over all its tokens. It is answered once per batch
 * by `prepare`, from the policy's log-probs before the update, and comes in as the mask `isSelected`; micro-batches
 * then add up. Departure: verl asks again in each micro-batch, so that its answer depends on how the batch is cut; on
 * one micro-batch the two agree. A trainer without fresh log-probs gives the old ones, which are the same in the first
 * update after sampling. A token that is clipped by its ratio by then has no gradient in any case. Log-ratios
 * past ±40 count as 40, where verl may overflow.
 */
import * as o from "../../../graph/ops.ts";
import { UserError } from "../../../util/errors.ts";
import { field, number, real } from "../../../util/field.ts";
import { checkFinite, checkRows, type FloatRows } from "../../batch.ts";
import {
  clipFields,
  clipped,
  clipRange,
  type PolicyBatch,
  type PolicySettings,
  policyLoss,
  wholeRatio,
} from "./policy-loss.ts";

const clipCovFields = {
  ...clipFields,
  policy_loss: {
    clip_cov_ratio: field(number(0, 1), 0.0002, "Share of the tokens that clip_cov leaves out."),
    clip_cov_lb: field(real, 1.0, "Lowest covariance of a token that clip_cov may leave out."),
    clip_cov_ub: field(real, 5.0, "Highest covariance of a token that clip_cov may leave out."),
  },
};
type ClipCovSettings = PolicySettings<typeof clipCovFields>;

const klCovFields = {
  policy_loss: {
    kl_cov_ratio: field(number(0, 1), 0.0002, "Share of the tokens that kl_cov holds back by a KL penalty."),
    ppo_kl_coef: field(real, 0.1, "Weight of kl_cov's penalty."),
  },
};

/** PPO's clip, and no gradient for a random few of the tokens whose covariance is high. */
export const clip_cov = policyLoss({
  name: "clip_cov",
  paper: "arXiv:2505.22617",
  fields: clipCovFields,
  extra: ["isSelected"],
  check(settings) {
    clipRange(settings);
    checkShare("clip_cov_ratio", settings.policy_loss.clip_cov_ratio);
  },
  prepare(batch, settings, random) {
    const tokens = covariances(batch);
    const candidates = clipCandidates(batch, settings, tokens);
    const quota = Math.max(Math.trunc(settings.policy_loss.clip_cov_ratio * tokens.values.length), 1);
    const drawn = random.permutation(candidates.length).subarray(0, quota);
    const chosen = Array.from(drawn, (i) => candidates[i]!);
    return { isSelected: marked(batch, chosen) };
  },
  build(tensors, settings) {
    const isSelected = tensors.read("isSelected");
    const losses = clipped(wholeRatio(tensors), tensors.advantages, settings);
    return {
      loss: tensors.total(o.mul(o.maximum(losses.plain, losses.clipped), o.sub(1, isSelected))),
      metrics: {
        "actor/pg_clipfrac": tensors.mean(isSelected),
        "actor/ppo_kl": tensors.mean(o.neg(tensors.logRatio)),
      },
    };
  },
});

/** No clip, and a penalty on moving for the tokens of highest covariance. */
export const kl_cov = policyLoss({
  name: "kl_cov",
  paper: "arXiv:2505.22617",
  fields: klCovFields,
  extra: ["isSelected"],
  check: ({ policy_loss }) => checkShare("kl_cov_ratio", policy_loss.kl_cov_ratio),
  prepare(batch, { policy_loss }) {
    const tokens = covariances(batch);
    const count = tokens.values.length;
    const quota = Math.min(Math.max(Math.trunc(policy_loss.kl_cov_ratio * count), 1), count);
    const chosen = largest(tokens.values, quota).map((i) => placeOf(tokens, i));
    return { isSelected: marked(batch, chosen) };
  },
  build(tensors, { policy_loss: { ppo_kl_coef: coef } }) {
    const moved = o.abs(tensors.logRatio);
    const gain = o.mul(tensors.advantages, wholeRatio(tensors));
    const penalty = o.mul(o.mul(moved, coef), tensors.read("isSelected"));
    return {
      loss: tensors.total(o.sub(penalty, gain)),
      metrics: { "actor/ppo_kl": tensors.mean(moved) },
    };
  },
});

// ---------------------------------------------------------------- which tokens

/** The counted tokens of a batch, each with its place and covariance. */
type Tokens = { readonly rows: Int32Array; readonly times: Int32Array; readonly values: Float64Array };

/** The row and the position of a token. */
type Place = readonly [row: number, token: number];

const placeOf = ({ rows, times }: Tokens, i: number): Place => [rows[i]!, times[i]!];

/** What `clip_cov` draws from: tokens whose covariance is between the bounds and whose ratio is not clipped. */
export function clipCandidates(
  batch: PolicyBatch,
  settings: ClipCovSettings,
  tokens: Tokens = covariances(batch),
): Place[] {
  const { low, high } = clipRange(settings);
  const { clip_cov_lb: least, clip_cov_ub: most } = settings.policy_loss;
  const found: Place[] = [];
  tokens.values.forEach((covariance, i) => {
    if (!(covariance > least && covariance < most)) return;
    const [row, t] = placeOf(tokens, i);
    const ratio = Math.exp(batch.logprobs[row]![t]! - batch.oldLogprobs[row]![t]!);
    const advantage = batch.advantages[row]![t]!;
    const isClipped = (advantage > 0 && ratio > 1 + high) || (advantage < 0 && ratio < 1 - low);
    if (!isClipped) found.push([row, t]);
  });
  return found;
}

/** (advantage - mean)(log-prob - mean) of every counted token. */
function covariances(batch: PolicyBatch): Tokens {
  const { mask, logprobs, advantages } = batch;
  for (const name of ["logprobs", "oldLogprobs", "advantages"] as const) {
    checkRows(name, batch[name], mask);
    checkFinite(name, batch[name], mask);
  }
  const size = mask.reduce((total, { length }) => total + length, 0);
  const [rows, times, values] = [new Int32Array(size), new Int32Array(size), new Float64Array(size)];
  let [count, totalLogprob, totalAdvantage] = [0, 0, 0];
  for (const [row, counts] of mask.entries()) {
    for (let t = 0; t < counts.length; t++) {
      if (counts[t] === 0) continue;
      rows[count] = row;
      times[count++] = t;
      totalLogprob += logprobs[row]![t]!;
      totalAdvantage += advantages[row]![t]!;
    }
  }
  const [meanLogprob, meanAdvantage] = [totalLogprob / count, totalAdvantage / count];
  for (let i = 0; i < count; i++) {
    const [row, t] = [rows[i]!, times[i]!];
    values[i] = (advantages[row]![t]! - meanAdvantage) * (logprobs[row]![t]! - meanLogprob);
  }
  return { rows, times, values: values.subarray(0, count) };
}

/** The indices of the `count` largest values; among equal ones, the first. */
function largest(values: Float64Array, count: number): number[] {
  if (count === 0) return [];
  const bound = values.toSorted()[values.length - count]!;
  const above: number[] = [];
  const equal: number[] = [];
  values.forEach((value, i) => {
    if (value > bound) above.push(i);
    else if (value === bound) equal.push(i);
  });
  return [...above, ...equal.slice(0, count - above.length)];
}

function marked({ mask }: PolicyBatch, places: readonly Place[]): FloatRows {
  const marks = mask.map(({ length }) => new Float64Array(length));
  for (const [row, t] of places) marks[row]![t] = 1;
  return marks;
}

function checkShare(key: string, value: number): void {
  if (value > 0) return;
  throw new UserError(`\`policy_loss.${key}\` is ${value}. Give a number above 0; verl's is 0.0002.`);
}
