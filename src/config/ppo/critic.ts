/**
 * The keys of `critic.`: the model that estimates values, and how it is updated.
 *
 * Defaults are verl's, except that the critic starts from the actor's model unless it is given another, where verl names
 * one of its own.
 */
import { aggregateFields } from "../../algos/losses/aggregate.ts";
import { valueLossFields } from "../../algos/losses/value-loss.ts";
import { bool, field, int, nullable, number, path } from "../../util/field.ts";
import { configChanges, optimOf } from "./actor.ts";
import { checkpointOf } from "./checkpoint.ts";

const actor = "actor_rollout_ref.actor";

export const critic = {
  enable: field(nullable(bool), null, "Train a critic; null for whether algorithm.adv_estimator needs one."),
  model: {
    path: field(
      path,
      "${actor_rollout_ref.model.path}",
      "Hugging Face folder or hub id; a language model gets a new value head.",
    ),
    tokenizer_path: field(
      nullable(path),
      "${actor_rollout_ref.model.path}",
      "Folder or hub id of the tokenizer that is saved with it; null for the model's own.",
    ),
    ...configChanges,
  },
  ppo_mini_batch_size: field(int(1), `\${${actor}.ppo_mini_batch_size}`, "Prompts per update of the critic."),
  ppo_micro_batch_size: field(nullable(int(1)), null, "Older spelling of ppo_micro_batch_size_per_gpu."),
  ppo_micro_batch_size_per_gpu: field(
    nullable(int(1)),
    "${critic.ppo_micro_batch_size}",
    "Responses per forward and backward pass; null fills passes by ppo_max_token_len_per_gpu.",
  ),
  use_dynamic_bsz: field(
    bool,
    `\${${actor}.use_dynamic_bsz}`,
    "Fill each pass up to ppo_max_token_len_per_gpu tokens.",
  ),
  ppo_max_token_len_per_gpu: field(int(1), 32768, "Tokens per forward and backward pass."),
  forward_micro_batch_size: field(
    nullable(int(1)),
    "${critic.ppo_micro_batch_size}",
    "Older spelling of forward_micro_batch_size_per_gpu.",
  ),
  forward_micro_batch_size_per_gpu: field(
    nullable(int(1)),
    "${critic.ppo_micro_batch_size_per_gpu}",
    "Responses per pass when values are computed.",
  ),
  forward_max_token_len_per_gpu: field(
    int(1),
    "${critic.ppo_max_token_len_per_gpu}",
    "Tokens per pass when values are computed.",
  ),
  ulysses_sequence_parallel_size: field(int(1), 1, "Multiplies the tokens per pass, as for the actor."),
  ppo_epochs: field(int(1), `\${${actor}.ppo_epochs}`, "Passes over the responses of a step."),
  shuffle: field(bool, `\${${actor}.shuffle}`, "Cut mini-batches from the responses in random order."),
  data_loader_seed: field(
    nullable(int(0)),
    `\${${actor}.data_loader_seed}`,
    "Seed of that order; null for trainer.seed.",
  ),
  ...valueLossFields,
  loss_agg_mode: { ...aggregateFields.loss_agg_mode, default: `\${${actor}.loss_agg_mode}` as const },
  loss_scale_factor: { ...aggregateFields.loss_scale_factor, default: `\${${actor}.loss_scale_factor}` as const },
  grad_clip: field(number(0), 1.0, "Largest norm of the gradient; a longer one is scaled down to it."),
  optim: optimOf(1e-5),
  checkpoint: checkpointOf("critic"),
};
