/**
 * The keys of `actor_rollout_ref.model`, `.actor` and `.ref`: the policy, how it is updated, and what it is held against.
 *
 * Defaults are verl's (its dp_actor and dp_ref), except: the model must be named; `clip_ratio_low` and `_high` follow
 * `clip_ratio`, which in verl has no effect by itself; without any micro-batch size, passes are filled by tokens, where
 * verl stops. `recompute_old_log_prob` is ours.
 */
import { klKinds } from "../../algos/kl/estimates.ts";
import { policyLossNames } from "../../algos/losses/policy/registry.ts";
import { bool, choice, field, int, mandatory, nullable, number, path, text } from "../../util/field.ts";
import { optim } from "../optim.ts";
import { above, nameOf, positive, real } from "./values.ts";

/** The modes of `loss_agg_mode`. */
export const lossAggMode = choice(
  "token-mean",
  "seq-mean-token-sum",
  "seq-mean-token-mean",
  "seq-mean-token-sum-norm",
  "token-sum",
);

export const model = {
  path: field(path, mandatory, "Hugging Face folder or hub id of the model to train."),
  tokenizer_path: field(nullable(path), null, "Folder or hub id of the tokenizer; null for the model's own."),
  custom_chat_template: field(nullable(text), null, "Jinja chat template to use instead of the tokenizer's own."),
};

/** AdamW and its schedule: as in supervised fine-tuning, but for the rate, and the clip, which is `grad_clip` here. */
export function optimOf(lr: number) {
  const { clip_grad: _, ...rest } = optim;
  return { ...rest, lr: field(number(0), lr, rest.lr.doc) };
}

const policy_loss = {
  loss_mode: field(
    nameOf("a policy loss", policyLossNames()),
    "vanilla",
    "Policy loss; vanilla is PPO with dual clip.",
  ),
  clip_cov_ratio: field(number(0, 1), 0.0002, "Share of the tokens that clip_cov leaves out."),
  clip_cov_lb: field(real, 1.0, "Lowest covariance of a token that clip_cov may leave out."),
  clip_cov_ub: field(real, 5.0, "Highest covariance of a token that clip_cov may leave out."),
  kl_cov_ratio: field(number(0, 1), 0.0002, "Share of the tokens that kl_cov holds back by a KL penalty."),
  ppo_kl_coef: field(real, 0.1, "Weight of kl_cov's penalty."),
  dro_beta: field(nullable(positive), null, "Weight of dro's quadratic term, which must be given for it."),
};

export const actor = {
  ppo_mini_batch_size: field(int(1), 256, "Prompts per update of the weights; their rollout.n responses go together."),
  ppo_micro_batch_size: field(nullable(int(1)), null, "Older spelling of ppo_micro_batch_size_per_gpu."),
  ppo_micro_batch_size_per_gpu: field(
    nullable(int(1)),
    null,
    "Responses per forward and backward pass; null fills passes by ppo_max_token_len_per_gpu. Results do not depend on it.",
  ),
  use_dynamic_bsz: field(
    bool,
    false,
    "Fill each pass up to ppo_max_token_len_per_gpu tokens instead of a fixed number of responses.",
  ),
  ppo_max_token_len_per_gpu: field(int(1), 16384, "Tokens per forward and backward pass, prompts included."),
  ulysses_sequence_parallel_size: field(
    int(1),
    1,
    "Multiplies the tokens per pass, as sequence parallelism does in verl; one device computes them all.",
  ),
  ppo_epochs: field(int(1), 1, "Passes over the responses of a step."),
  shuffle: field(bool, false, "Cut mini-batches from the responses in random order."),
  data_loader_seed: field(nullable(int(0)), 42, "Seed of that order; null for trainer.seed."),
  clip_ratio: field(number(0), 0.2, "How far the ratio of new to old probability may move from 1 and still count."),
  clip_ratio_low: field(
    nullable(number(0)),
    "${actor_rollout_ref.actor.clip_ratio}",
    "The same downwards; null for clip_ratio.",
  ),
  clip_ratio_high: field(
    nullable(number(0)),
    "${actor_rollout_ref.actor.clip_ratio}",
    "The same upwards; null for clip_ratio.",
  ),
  clip_ratio_c: field(above(1), 3.0, "Dual clip: the largest ratio that counts where the advantage is negative."),
  tau_pos: field(positive, 1.0, "Temperature of sapo's gate where the advantage is positive."),
  tau_neg: field(positive, 1.05, "Temperature of sapo's gate where it is negative."),
  policy_loss,
  loss_agg_mode: field(lossAggMode, "token-mean", "How per-token losses become one number."),
  loss_scale_factor: field(
    nullable(positive),
    null,
    "What seq-mean-token-sum-norm divides by; null for the longest response.",
  ),
  entropy_coeff: field(real, 0, "Weight of the entropy bonus."),
  calculate_entropy: field(bool, false, "Measure the entropy in updates even where entropy_coeff is 0."),
  calculate_sum_pi_squared: field(bool, false, "Measure what the optimal token baselines need."),
  use_kl_loss: field(bool, false, "Add the KL to the reference to the loss; a reference model is kept for it."),
  kl_loss_coef: field(real, 0.001, "Weight of that KL."),
  kl_loss_type: field(nameOf("a KL estimate", klKinds), "low_var_kl", "How that KL is estimated."),
  grad_clip: field(number(0), 1.0, "Largest norm of the gradient; a longer one is scaled down to it."),
  recompute_old_log_prob: field(
    bool,
    false,
    "Compute log-probs before an update anew even where the sampler's equal the trainer's.",
  ),
  optim: optimOf(1e-6),
};

/** Passes that only compute log-probs. */
export function logProbPasses(whose: string) {
  return {
    log_prob_micro_batch_size: field(nullable(int(1)), null, "Older spelling of log_prob_micro_batch_size_per_gpu."),
    log_prob_micro_batch_size_per_gpu: field(
      nullable(int(1)),
      null,
      `Responses per pass when ${whose} log-probs are computed; null fills passes by log_prob_max_token_len_per_gpu.`,
    ),
    log_prob_use_dynamic_bsz: field(
      bool,
      "${actor_rollout_ref.actor.use_dynamic_bsz}",
      "Fill those passes up to log_prob_max_token_len_per_gpu tokens.",
    ),
    log_prob_max_token_len_per_gpu: field(
      int(1),
      "${actor_rollout_ref.actor.ppo_max_token_len_per_gpu}",
      "Tokens per such pass.",
    ),
  };
}

export const ref = {
  ...logProbPasses("the reference's"),
  ulysses_sequence_parallel_size: field(
    int(1),
    "${actor_rollout_ref.actor.ulysses_sequence_parallel_size}",
    "Multiplies the tokens per pass, as for the actor.",
  ),
};
