/**
 * Losses against the collapse of entropy (arXiv:2505.22617). Few tokens drive it: those whose log-prob and advantage
 * are both far above the mean. `clip_cov` takes the gradient from some of them, `kl_cov` holds them back.
 *
 * Which tokens is a question about the whole batch: means and ranks over all its tokens. It is answered once per batch
 * by `prepare`, from the policy's log-probs before the update, and comes in as the mask `isSelected`; micro-batches
 * then add up. Departure: verl asks anew in each micro-batch, so that its answer depends on how the batch is cut; on
 * one micro-batch the two agree. A trainer without fresh log-probs gives the old ones, which are the same in the first
 * update after sampling. A token that the ratio's clip silences in the meantime has no gradient either way. Log-ratios
 * past ±40 count as 40, where verl may overflow.
 */
import * as o from "../../../graph/ops.ts";
import { UserError } from "../../../util/errors.ts";
import { checkFinite, checkRows, type FloatRows } from "../../batch.ts";
import { clipped, clipRange, type PolicyBatch, type PolicyConfig, type PolicyLoss, wholeRatio } from "./policy-loss.ts";

/** PPO's clip, and no gradient for a random few of the tokens whose covariance is high. */
export const clip_cov: PolicyLoss = {
  name: "clip_cov",
  extra: ["isSelected"],
  prepare(batch, config, random) {
    const ratio = aboveZero("clip_cov_ratio", config);
    const tokens = covariances(batch);
    const candidates = candidatesOf(tokens, batch, config);
    const quota = Math.max(Math.trunc(ratio * tokens.values.length), 1);
    const drawn = random.permutation(candidates.length).subarray(0, quota);
    return {
      isSelected: marked(
        batch,
        tokens,
        Array.from(drawn, (i) => candidates[i]!),
      ),
    };
  },
  build(terms, config) {
    const isSelected = terms.read("isSelected");
    const losses = clipped(wholeRatio(terms), terms.advantages, config);
    return {
      loss: terms.total(o.mul(o.maximum(losses.plain, losses.clipped), o.sub(1, isSelected))),
      metrics: {
        "actor/pg_clipfrac": terms.mean(isSelected),
        "actor/ppo_kl": terms.mean(o.neg(terms.logRatio)),
      },
    };
  },
};

/** No clip, and a penalty on moving for the tokens of highest covariance. */
export const kl_cov: PolicyLoss = {
  name: "kl_cov",
  extra: ["isSelected"],
  prepare(batch, config) {
    const ratio = aboveZero("kl_cov_ratio", config);
    const tokens = covariances(batch);
    const count = tokens.values.length;
    const quota = Math.min(Math.max(Math.trunc(ratio * count), 1), count);
    return { isSelected: marked(batch, tokens, largest(tokens.values, quota)) };
  },
  build(terms, { policy_loss: { ppo_kl_coef: coef } }) {
    const moved = o.abs(terms.logRatio);
    const gain = o.mul(terms.advantages, wholeRatio(terms));
    const penalty = o.mul(o.mul(moved, coef), terms.read("isSelected"));
    return {
      loss: terms.total(o.sub(penalty, gain)),
      metrics: { "actor/ppo_kl": terms.mean(moved) },
    };
  },
};

// ---------------------------------------------------------------- which tokens

/** The counted tokens of a batch, each with its place and covariance. */
type Tokens = { readonly rows: Int32Array; readonly times: Int32Array; readonly values: Float64Array };

/** The places [row, token] that `clip_cov` draws from. */
export function clipCandidates(batch: PolicyBatch, config: PolicyConfig): [row: number, token: number][] {
  const tokens = covariances(batch);
  return candidatesOf(tokens, batch, config).map((i) => [tokens.rows[i]!, tokens.times[i]!]);
}

/** Tokens whose covariance is between the bounds and whose ratio is not clipped. */
function candidatesOf({ rows, times, values }: Tokens, batch: PolicyBatch, config: PolicyConfig): number[] {
  const { low, high } = clipRange(config);
  const { clip_cov_lb: least, clip_cov_ub: most } = config.policy_loss;
  const found: number[] = [];
  for (let i = 0; i < values.length; i++) {
    if (!(values[i]! > least && values[i]! < most)) continue;
    const [row, t] = [rows[i]!, times[i]!];
    const ratio = Math.exp(batch.logprobs[row]![t]! - batch.oldLogprobs[row]![t]!);
    const advantage = batch.advantages[row]![t]!;
    const isClipped = (advantage > 0 && ratio > 1 + high) || (advantage < 0 && ratio < 1 - low);
    if (!isClipped) found.push(i);
  }
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

function marked({ mask }: PolicyBatch, { rows, times }: Tokens, chosen: readonly number[]): FloatRows {
  const marks = mask.map(({ length }) => new Float64Array(length));
  for (const i of chosen) marks[rows[i]!]![times[i]!] = 1;
  return marks;
}

function aboveZero(key: "clip_cov_ratio" | "kl_cov_ratio", { policy_loss }: PolicyConfig): number {
  const value = policy_loss[key];
  if (value > 0) return value;
  throw new UserError(`\`policy_loss.${key}\` is ${value}. Give a number above 0; verl's is 0.0002.`);
}
