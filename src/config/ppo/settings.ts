/**
 * What other rooms take from a resolved config: the settings of losses, advantages, correction, sampler, passes and rewards,
 * and the values that algorithms are looked up by: which rows and groups are trained on, which reward columns are read.
 *
 * Pure selections. They are also made before anything starts, to find mistakes in their keys.
 */
import type { AdvantageSettings, RewardColumns } from "../../algos/advantages/estimator.ts";
import { advantageFields, findAdvantage } from "../../algos/advantages/registry.ts";
import { type Correction, correctionOf } from "../../algos/correction/config.ts";
import { type KlControl, klControl } from "../../algos/kl/control.ts";
import type { ActorSettings } from "../../algos/losses/actor-loss.ts";
import { aggregateFields } from "../../algos/losses/aggregate.ts";
import { entropyFields } from "../../algos/losses/entropy-term.ts";
import { klTermFields } from "../../algos/losses/kl-term.ts";
import { policyLossFields } from "../../algos/losses/policy/registry.ts";
import { type CriticSettings, valueLossFields } from "../../algos/losses/value-loss.ts";
import { differingGroups, type GroupFilter } from "../../algos/selection/group-filter.ts";
import { pfPpo } from "../../algos/selection/pf-ppo.ts";
import { allRows, type RowSelection } from "../../algos/selection/row-selection.ts";
import type { MicroBatching } from "../../engine/contract.ts";
import { type ManagerRule, managerRule } from "../../rewards/placement.ts";
import type { Sampling } from "../../rollout/request.ts";
import { valuesOf } from "../../util/field.ts";
import type { PartOf } from "./reward-tree.ts";
import type { PpoConfig } from "./tree.ts";

/** The actor's loss: keys of the actor, with those that its policy loss brings along. */
export function actorSettings({ actor_rollout_ref: { actor }, algorithm }: PpoConfig): ActorSettings {
  const { policy_loss, ...policy } = valuesOf(policyLossFields, actor);
  const { loss_mode, own } = actor.policy_loss;
  return {
    ...valuesOf(aggregateFields, actor),
    version: algorithm.version,
    ...policy,
    policy_loss: { ...policy_loss, loss_mode },
    rollout_correction: { loss_type: algorithm.rollout_correction.loss_type },
    ...valuesOf(entropyFields, actor),
    ...valuesOf(klTermFields, actor),
    ...own?.[loss_mode],
  };
}

/** The critic's loss. */
export function criticSettings({ critic, algorithm }: PpoConfig): CriticSettings {
  return {
    ...valuesOf(aggregateFields, critic),
    version: algorithm.version,
    ...valuesOf(valueLossFields, critic),
  };
}

/** Settings of the advantage estimator, with the keys that it brings along. */
export function advantageSettings({ algorithm }: PpoConfig): AdvantageSettings<typeof advantageFields> {
  return {
    ...valuesOf(advantageFields, algorithm),
    version: algorithm.version,
    ...algorithm.own?.[algorithm.adv_estimator],
  };
}

/** The columns of the reward that the advantage estimator reads beside the score. */
export function rewardColumns(config: PpoConfig): RewardColumns {
  const { rewardColumns: read } = findAdvantage(config.algorithm.adv_estimator);
  return read?.(advantageSettings(config)) ?? { columns: [], key: "algorithm.adv_estimator" };
}

/** Which rows of a batch are trained on. PF-PPO acts with gae only, as in verl. */
export function rowSelection({ algorithm }: PpoConfig): RowSelection {
  return algorithm.use_pf_ppo && algorithm.adv_estimator === "gae" ? pfPpo(algorithm.pf_ppo) : allRows;
}

/** Which groups are trained on; null for all of them. */
export function groupFilter({ algorithm: { filter_groups: filter } }: PpoConfig): GroupFilter | null {
  return filter.enable ? differingGroups(filter) : null;
}

/** The rollout correction. */
export function correctionSettings({ algorithm }: PpoConfig): Correction {
  return correctionOf(algorithm.rollout_correction);
}

/** The first state of the KL controller. */
export function klSettings({ algorithm }: PpoConfig): KlControl {
  return klControl(algorithm.kl_ctrl);
}

/** Whether anything compares the actor with a reference. */
export function needsReference({ actor_rollout_ref: { actor }, algorithm }: PpoConfig): boolean {
  return actor.use_kl_loss || algorithm.use_kl_in_reward;
}

/** How tokens are drawn in training or in validation; a seed per request is the loop's to add. */
export function samplingSettings({ actor_rollout_ref: { rollout } }: PpoConfig, phase: "train" | "val"): Sampling {
  const { do_sample, temperature, top_k, top_p } = phase === "train" ? rollout : rollout.val_kwargs;
  return {
    maxNewTokens: rollout.response_length,
    temperature: do_sample ? temperature : 0,
    topK: top_k,
    topP: top_p,
    ignoreEos: rollout.ignore_eos,
  };
}

/** Which passes over responses there are. */
export type Pass = "actor" | "old_log_prob" | "ref" | "critic" | "values";

/** The keys of a pass, and how it is cut. */
export type PassSettings = {
  readonly isDynamic: boolean;
  readonly rows: number | null;
  readonly maxTokens: number;
  /** The key that `maxTokens` was read from. */
  readonly key: string;
};

/** The settings of each kind of pass. */
export function passSettings(config: PpoConfig): Readonly<Record<Pass, PassSettings>> {
  const { actor_rollout_ref: all, critic } = config;
  const logProbs = (part: "rollout" | "ref", parallel: number): PassSettings => ({
    isDynamic: all[part].log_prob_use_dynamic_bsz,
    rows: all[part].log_prob_micro_batch_size_per_gpu,
    maxTokens: all[part].log_prob_max_token_len_per_gpu * parallel,
    key: `actor_rollout_ref.${part}.log_prob_max_token_len_per_gpu`,
  });
  const { actor, ref } = all;
  return {
    actor: {
      isDynamic: actor.use_dynamic_bsz,
      rows: actor.ppo_micro_batch_size_per_gpu,
      maxTokens: actor.ppo_max_token_len_per_gpu * actor.ulysses_sequence_parallel_size,
      key: "actor_rollout_ref.actor.ppo_max_token_len_per_gpu",
    },
    old_log_prob: logProbs("rollout", actor.ulysses_sequence_parallel_size),
    ref: logProbs("ref", ref.ulysses_sequence_parallel_size),
    critic: {
      isDynamic: critic.use_dynamic_bsz,
      rows: critic.ppo_micro_batch_size_per_gpu,
      maxTokens: critic.ppo_max_token_len_per_gpu * critic.ulysses_sequence_parallel_size,
      key: "critic.ppo_max_token_len_per_gpu",
    },
    values: {
      isDynamic: critic.use_dynamic_bsz,
      rows: critic.forward_micro_batch_size_per_gpu,
      maxTokens: critic.forward_max_token_len_per_gpu * critic.ulysses_sequence_parallel_size,
      key: "critic.forward_max_token_len_per_gpu",
    },
  };
}

/** The settings of the pass of a reward model. */
export function rewardPassSettings({ key, model }: PartOf<"model">): PassSettings {
  return {
    isDynamic: model.use_dynamic_bsz,
    rows: model.micro_batch_size_per_gpu,
    maxTokens: model.forward_max_token_len_per_gpu,
    key: `${key}.forward_max_token_len_per_gpu`,
  };
}

/** How the engine cuts a pass: by rows where their number is fixed, else by tokens, with room for the longest response. */
export function microBatching(config: PpoConfig, pass: Pass | PartOf<"model">): MicroBatching {
  const settings = typeof pass === "string" ? passSettings(config)[pass] : rewardPassSettings(pass);
  const { isDynamic, rows, maxTokens } = settings;
  const { prompt_length: prompt, response_length: response } = config.actor_rollout_ref.rollout;
  return isDynamic || rows === null ? { maxTokens: Math.max(maxTokens, prompt + response) } : { rows };
}

/** The file of a manager of the user's own; null for ours. */
export function managerFile({ reward_manager: manager }: PpoConfig): string | null {
  return manager.source === "importlib" ? manager.module.path : null;
}

/** What the manager `reward_manager.name` of ours makes of scores. */
export function managerSettings({ reward_manager: manager, reward_model: model }: PpoConfig): ManagerRule {
  return managerRule(manager.name, model.reward_kwargs);
}
