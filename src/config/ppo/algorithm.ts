/**
 * The keys of `algorithm.`: advantages, KL in the reward, PF-PPO, group filtering and rollout correction.
 *
 * Defaults are verl's. What the values mean is decided where they are used (`algos/`), which also names mistakes in them.
 * `version`, `rollout_correction.preset` and `.version` are ours.
 */
import { advantageNames } from "../../algos/advantages/registry.ts";
import { klKinds } from "../../algos/kl/estimates.ts";
import { bool, choice, either, field, int, name, names, nullable, number, text } from "../../util/field.ts";
import { nameOf, positive, real, reals } from "./values.ts";

const bound = nullable(either(positive, text));

const rollout_correction = {
  preset: field(nullable(name), null, "A correction by verl's name for it; keys given beside it win."),
  rollout_is: field(nullable(name), null, "Importance weights per token or per sequence; null for none."),
  rollout_is_threshold: field(bound, 2.0, "Largest weight, or 'lower_upper' outside of which weights become 0."),
  rollout_is_batch_normalize: field(bool, false, "Divide the weights by their mean over the batch."),
  rollout_rs: field(
    nullable(text),
    null,
    "What is rejected: options such as seq_mean_k1, comma separated; null for nothing.",
  ),
  rollout_rs_threshold: field(bound, null, "Bounds of rejection: one for all options, or one per option."),
  rollout_rs_threshold_lower: field(
    bound,
    null,
    "Lower bound of a level of verl 0.7; null for the inverse of the upper.",
  ),
  rollout_token_veto_threshold: field(bound, null, "Reject rows with a token whose ratio is below this; verl 0.7."),
  bypass_mode: field(bool, false, "Take the sampler's log-probs as the old ones and correct inside each update."),
  loss_type: field(choice("ppo_clip", "reinforce"), "ppo_clip", "The loss in bypass mode."),
  version: field(choice("0.9", "0.7"), "${algorithm.version}", "Whose presets and weight metrics."),
};

export const algorithm = {
  adv_estimator: field(nameOf("an estimator", advantageNames()), "gae", "Advantage estimator."),
  gamma: field(number(0, 1), 1.0, "Discount per token."),
  lam: field(number(0, 1), 1.0, "How far gae looks beyond the critic's next value."),
  norm_adv_by_std_in_grpo: field(bool, true, "Divide a group's advantages by their spread; false is Dr. GRPO."),
  gdpo_reward_keys: field(names, null, "Reward columns that gdpo normalises one by one."),
  gdpo_reward_weights: field(nullable(reals), null, "Their weights; null for 1 each."),
  use_kl_in_reward: field(
    bool,
    false,
    "Take the KL to the reference off the rewards; a reference model is kept for it.",
  ),
  kl_penalty: field(nameOf("a KL estimate", klKinds), "kl", "How that KL is estimated."),
  kl_ctrl: {
    type: field(choice("fixed", "adaptive"), "fixed", "Whether the weight of that KL changes."),
    kl_coef: field(real, 0.001, "Its weight, at the start."),
    horizon: field(positive, 10000, "Responses in which an adaptive weight changes by at most a fifth."),
    target_kl: field(positive, 0.1, "The KL that an adaptive weight aims at."),
  },
  use_pf_ppo: field(bool, false, "Redraw each batch from itself by reward before the update, with gae."),
  pf_ppo: {
    reweight_method: field(choice("pow", "max_min", "max_random"), "pow", "How rewards become chances of being drawn."),
    weight_pow: field(real, 2.0, "Exponent of pow."),
  },
  filter_groups: {
    enable: field(bool, false, "Drop groups whose responses all score alike and sample others in their place."),
    metric: field(nullable(name), null, "Reward column that is compared, such as acc; null for the score itself."),
    max_num_gen_batches: field(int(0), 0, "Stop after so many rounds of sampling for one step; 0 for no limit."),
  },
  rollout_correction,
  version: field(
    choice("0.9", "0.7"),
    "0.9",
    "Whose formulas where verl's releases differ; 0.9 mended defects of 0.7.",
  ),
};
