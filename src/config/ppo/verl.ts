/**
 * Other spellings of the keys of `trainyard ppo`: older names of verl 0.7, 0.9's tree of rewards, Megatron's optimizer, and
 * the config groups that a defaults list may name.
 */
import type { GroupChoice } from "../schema.ts";

/** The same keys below another branch. */
function moved(from: string, to: string, keys: readonly string[]): Record<string, string> {
  return Object.fromEntries(keys.map((key) => [`${from}.${key}`, `${to}.${key}`]));
}

const optimizers = ["actor_rollout_ref.actor", "critic"].flatMap((part) => [
  [`${part}.optim.clip_grad`, `${part}.grad_clip`],
  [`${part}.optim.lr_min`, `${part}.optim.min_lr`],
  ...["lr_scheduler", "warmup_style", "lr_decay_style"].map((key) => [
    `${part}.optim.${key}`,
    `${part}.optim.lr_scheduler_type`,
  ]),
]);

const customKeys = ["path", "name", "reward_kwargs", "function"];
const bufferKeys = ["enable", "len", "penalty_factor", "log"];
const sandboxKeys = ["url", "max_concurrent", "memory_limit_mb"];
const modelKeys = ["enable", "rollout", "enable_resource_pool", "n_gpus_per_node", "nnodes"];
const limitKeys = ["num_workers", "max_concurrent", "max_rpm", "max_tpm", "estimated_tokens_per_request"];

/** Other spellings of a key. */
export const ppoAliases: Readonly<Record<string, string>> = {
  ...Object.fromEntries(optimizers),
  "actor_rollout_ref.actor.compute_sum_pi_squared": "actor_rollout_ref.actor.calculate_sum_pi_squared",
  // A function of a TypeScript config stands where its path and name would.
  custom_reward_function: "custom_reward_function.function",
  "reward.custom_reward_function": "custom_reward_function.function",
  ...moved("reward.custom_reward_function", "custom_reward_function", customKeys),
  ...moved("reward.reward_manager", "reward_manager", ["name", "source"]),
  ...moved("reward.reward_manager.module", "reward_manager.module", ["path", "name"]),
  ...moved("reward.reward_model", "reward_model", modelKeys),
  "reward.reward_model.model_path": "reward_model.model.path",
  "reward.reward_model.model.path": "reward_model.model.path",
  ...moved("reward", "reward_model", limitKeys),
  "reward_model.timeout": "reward.timeout",
  "trainer.val_generations_to_log_to_wandb": "trainer.log_val_generations",
  "reward.compute_score_timeout": "reward.timeout",
  ...moved("sandbox_fusion", "reward_model.sandbox_fusion", sandboxKeys),
  ...moved("reward.sandbox_fusion", "reward_model.sandbox_fusion", sandboxKeys),
  "reward.reward_kwargs.max_resp_len": "reward_model.reward_kwargs.max_resp_len",
  ...moved("reward.reward_kwargs.overlong_buffer_cfg", "reward_model.reward_kwargs.overlong_buffer_cfg", bufferKeys),
  ...moved("reward_model.overlong_buffer", "reward_model.reward_kwargs.overlong_buffer_cfg", bufferKeys),
  "critic.fsdp": "critic.model.fsdp_config",
  "critic.fsdp.qat.enable": "critic.model.fsdp_config.qat.enable",
};

const embedded: GroupChoice = { instead: "the embedded engine trains; see `trainer.engine`" };
const asIs: GroupChoice = {};

/** Config groups of verl that a defaults list may choose from. */
export const ppoGroups: Readonly<Record<string, Readonly<Record<string, GroupChoice>>>> = {
  data: { legacy_data: asIs },
  "actor_rollout_ref.model": { hf_model: asIs },
  "actor_rollout_ref.actor": { dp_actor: asIs, megatron_actor: embedded, veomni_actor: embedded },
  "actor_rollout_ref.ref": { dp_ref: asIs, megatron_ref: embedded, veomni_ref: embedded },
  "actor_rollout_ref.rollout": { rollout: asIs },
  critic: { dp_critic: asIs, megatron_critic: embedded, veomni_critic: embedded },
  reward: { reward: asIs },
  reward_model: {
    dp_reward_loop: asIs,
    dp_reward_model: asIs,
    megatron_reward_loop: embedded,
    megatron_reward_model: embedded,
  },
  "algorithm.rollout_correction": { rollout_correction: asIs },
};
