/**
 * The keys of `actor_rollout_ref.model`, `.actor` and `.ref`: the policy, how it is updated, and its reference.
 *
 * Defaults are verl's (its dp_actor and dp_ref), except: the model must be named; `clip_ratio_low` and `_high` follow
 * `clip_ratio`, which in verl has no effect alone; without any micro-batch size, passes are filled by tokens, where
 * verl stops. Losses declare their own keys (`algos/losses/`). `recompute_old_log_prob` is ours.
 */
import { aggregateFields } from "../../algos/losses/aggregate.ts";
import { entropyFields } from "../../algos/losses/entropy-term.ts";
import { klTermFields } from "../../algos/losses/kl-term.ts";
import { type PolicyLossName, policyLossFields, policyLossNames } from "../../algos/losses/policy/registry.ts";
import { bool, dict, field, int, mandatory, nameOf, nullable, number, path, text } from "../../util/field.ts";
import { optim } from "../optim.ts";
import { checkpointOf } from "./checkpoint.ts";

/** verl's keys for another config.json than that of the model's folder. */
export const configChanges = {
  hf_config_path: field(nullable(path), null, "Folder or hub id whose config.json is used; null for the model's own."),
  override_config: field(
    dict,
    {},
    "Fields of config.json to set, such as max_position_embeddings; a dict such as rope_scaling is merged.",
  ),
};

export const model = {
  path: field(path, mandatory, "Hugging Face folder or hub id of the model to train."),
  ...configChanges,
  tokenizer_path: field(nullable(path), null, "Folder or hub id of the tokenizer; null for the model's own."),
  custom_chat_template: field(nullable(text), null, "Jinja chat template to use instead of the tokenizer's own."),
};

/** AdamW and its schedule: as in supervised fine-tuning, but for the rate, and the clip, which is `grad_clip` here. */
export function optimOf(lr: number) {
  const { clip_grad: _, ...rest } = optim;
  return { ...rest, lr: field(number(0), lr, rest.lr.doc) };
}

const { policy_loss, ...policyFields } = policyLossFields;

export const actor = {
  ppo_mini_batch_size: field(
    int(1),
    256,
    "Prompts per update of the weights; their rollout.n responses go together. The last update of a step gets the rest.",
  ),
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
  ...policyFields,
  policy_loss: {
    loss_mode: field(
      nameOf<PolicyLossName>("a policy loss", policyLossNames()),
      "vanilla",
      "Policy loss; vanilla is PPO with dual clip.",
    ),
    ...policy_loss,
  },
  ...aggregateFields,
  ...entropyFields,
  calculate_entropy: field(bool, false, "Measure the entropy in updates even where entropy_coeff is 0."),
  calculate_sum_pi_squared: field(
    bool,
    false,
    "Measure the sums of squared probabilities: the optimal token baselines need them, and `variance_proxy/*` is made of them.",
  ),
  ...klTermFields,
  grad_clip: field(number(0), 1.0, "Largest norm of the gradient; a longer one is scaled down to it."),
  recompute_old_log_prob: field(
    bool,
    false,
    "Compute log-probs again before an update even where the sampler's equal the trainer's.",
  ),
  optim: optimOf(1e-6),
  checkpoint: checkpointOf("actor_rollout_ref.actor"),
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
