/**
 * The schema of `trainyard ppo`: verl's `ppo_trainer` tree in the spelling of 0.7, which is 0.9's but for the reward.
 *
 * `tree.ts` puts the keys together, one file for each subtree; the header of each says what differs from verl. verl's other
 * keys are in `verl.ts`, `inert.ts` and `refused.ts`. Here the values become one consistent config: what follows from
 * them is filled in, rules between them are checked, and keys without effect are named.
 */
import { isDeepStrictEqual } from "node:util";
import { findAdvantage, ownAdvantageFields } from "../../algos/advantages/registry.ts";
import { type CorrectionConfig, presetConfig } from "../../algos/correction/presets.ts";
import { ownPolicyLossFields } from "../../algos/losses/policy/registry.ts";
import { checkTrackers } from "../../track/open.ts";
import { UserError } from "../../util/errors.ts";
import type { Field } from "../../util/field.ts";
import { filesOfDataset } from "../hooks.ts";
import { isDict } from "../interpolate.ts";
import { settleOptim } from "../optim.ts";
import { checkRay, rayPpo, roundsCoarsely } from "../ray/ray.ts";
import { ppoOnRay } from "../ray/verl.ts";
import { fieldsOf, own, type Preset, type Schema, withRegistered } from "../schema.ts";
import { checkPpo, hasCritic, oneSize } from "./check.ts";
import { ppoInert } from "./inert.ts";
import { ppoNotices } from "./notices.ts";
import { ppoRefused } from "./refused.ts";
import { rewardFunctionFields, rewardModelFields } from "./reward.ts";
import { type PpoConfig, type PpoValues, ppoFields } from "./tree.ts";
import { ppoAliases, ppoGroups } from "./verl.ts";

export type { PpoConfig, PpoInput } from "./tree.ts";

/** The schema of `trainyard ppo`. */
export const ppoSchema: Schema<typeof ppoFields, PpoConfig> = {
  verb: "ppo",
  fields: ppoFields,
  aliases: ppoAliases,
  inert: ppoInert,
  refused: ppoRefused,
  groups: ppoGroups,
  engines: { ray: ppoOnRay({ inert: ppoInert, groups: ppoGroups }) },
  registered: [
    {
      branch: "algorithm.own",
      doc: "Keys of advantage estimators that the config file or the program registers: `registerAdvantage`.",
      fields: ownAdvantageFields,
    },
    {
      branch: "actor_rollout_ref.actor.policy_loss.own",
      doc: "Keys of policy losses that it registers: `registerPolicyLoss`.",
      fields: ownPolicyLossFields,
    },
  ],
  named: [
    {
      branch: "reward.models",
      doc: "Further reward models, judges and services, which `reward.sources` names: the keys of `reward_model` for models, judges and services.",
      fields: rewardModelFields,
    },
    {
      branch: "reward.functions",
      doc: "Further reward functions, which `reward.sources` names: path, name and reward_kwargs, as in `custom_reward_function`.",
      fields: rewardFunctionFields,
    },
  ],
  configs: { ppo_trainer: {}, ppo_megatron_trainer: {}, ppo_veomni_trainer: {}, ppo_torchtitan_trainer: {} },
  preset,
  finish,
};

const validation = "actor_rollout_ref.rollout.val_kwargs";

function preset(given: ReadonlySet<string>): Preset {
  return {
    defaults: {
      ...(given.has("data.train_files") ? { "data.val_files": null } : {}),
      ...filesOfDataset(given),
      ...(given.has(`${validation}.temperature`) ? { [`${validation}.do_sample`]: true } : {}),
    },
  };
}

const allKeys = () => new Map([...fieldsOf(withRegistered(ppoSchema).fields), ...fieldsOf(rayPpo)]);

function finish(values: PpoValues, given: ReadonlySet<string>): { config: PpoConfig; notices: string[] } {
  findAdvantage(values.algorithm.adv_estimator); // everything below asks what it needs
  const rollout_correction = { ...values.algorithm.rollout_correction, ...presetKeys(values, given) };
  const { names, notices } = checkTrackers(values.trainer.logger);
  const { max_actor_ckpt_to_keep: ofActor, max_critic_ckpt_to_keep: ofCritic } = values.trainer;
  const actorRates = settleOptim("actor_rollout_ref.actor.optim", values.actor_rollout_ref.actor.optim);
  const criticRates = settleOptim("critic.optim", values.critic.optim);
  const all = withPolicyLoss(withOneSize(values.actor_rollout_ref), values.algorithm.version, rollout_correction);
  const hasValues = hasCritic(values);
  const config: PpoConfig = {
    ...values,
    actor_rollout_ref: { ...all, actor: { ...all.actor, optim: actorRates.optim } },
    critic: { ...criticWithOneSize(values.critic), optim: criticRates.optim, enable: hasValues },
    reward_model: {
      ...values.reward_model,
      micro_batch_size_per_gpu: oneSize(
        "reward_model.micro_batch_size",
        values.reward_model.micro_batch_size,
        values.reward_model.micro_batch_size_per_gpu,
      ),
    },
    algorithm: { ...values.algorithm, rollout_correction, filter_groups: withColumn(values) },
    trainer: { ...values.trainer, logger: names },
  };
  checkPpo(config);
  checkRay(config);
  const kept = { max_actor_ckpt_to_keep: ofActor ?? ofCritic, max_critic_ckpt_to_keep: ofCritic ?? ofActor };
  const fields = allKeys();
  const set = new Set([...given].filter((key) => isChanged(fields.get(key), key, config)));
  return {
    config: { ...(roundsCoarsely(config) ? withOldLogprobs(config) : config), trainer: { ...config.trainer, ...kept } },
    notices: [...notices, ...actorRates.notices, ...(hasValues ? criticRates.notices : []), ...ppoNotices(config, set)],
  };
}

function withOldLogprobs({ actor_rollout_ref: all, ...config }: PpoConfig): PpoConfig {
  return { ...config, actor_rollout_ref: { ...all, actor: { ...all.actor, recompute_old_log_prob: true } } };
}

/** Whether a key is one of ours and holds something else than its default. */
function isChanged(field: Field<unknown, unknown> | undefined, key: string, config: PpoConfig): boolean {
  const value = key.split(".").reduce<unknown>((inner, part) => (isDict(inner) ? own(inner, part) : undefined), config);
  return field !== undefined && !isDeepStrictEqual(value, field.default);
}

/** The keys that a preset of rollout correction sets, without those that are given beside it. */
function presetKeys(
  { algorithm }: PpoValues,
  given: ReadonlySet<string>,
): Partial<PpoValues["algorithm"]["rollout_correction"]> {
  const { preset: name, version } = algorithm.rollout_correction;
  if (name === null) return {};
  const keys: CorrectionConfig = presetConfig(name, version);
  const free = Object.entries(keys).filter(([key]) => !given.has(`algorithm.rollout_correction.${key}`));
  return Object.fromEntries(free);
}

/** What groups are compared by: verl's two names for the score itself are no columns. */
function withColumn({ algorithm: { filter_groups: filter, use_kl_in_reward: hasPenalty } }: PpoValues) {
  if (filter.enable && filter.metric === "seq_final_reward" && hasPenalty) {
    throw new UserError(
      "`algorithm.filter_groups.metric` is seq_final_reward, and `algorithm.use_kl_in_reward` is true: groups are filtered before the KL is taken off. " +
        "Set algorithm.filter_groups.metric=score.",
    );
  }
  return filter.metric === "seq_reward" || filter.metric === "seq_final_reward" ? { ...filter, metric: null } : filter;
}

type ActorRolloutRef = PpoValues["actor_rollout_ref"];

/**
 * The policy loss that bypass mode brings. verl 0.7 puts it in the place of any other; 0.9's trainer keeps a loss that is
 * not PPO's own, with the sampler's log-probs as the old ones.
 */
function withPolicyLoss(
  all: ActorRolloutRef,
  version: PpoValues["algorithm"]["version"],
  { bypass_mode: isBypass }: PpoValues["algorithm"]["rollout_correction"],
): ActorRolloutRef {
  const { policy_loss: loss } = all.actor;
  if (!isBypass || (version === "0.9" && loss.loss_mode !== "vanilla")) return all;
  return { ...all, actor: { ...all.actor, policy_loss: { ...loss, loss_mode: "bypass_mode" } } };
}

/** Micro-batch sizes in one place. */
function withOneSize(all: ActorRolloutRef): ActorRolloutRef {
  const { actor, rollout, ref } = all;
  const logProbs = (part: "rollout" | "ref") =>
    oneSize(
      `actor_rollout_ref.${part}.log_prob_micro_batch_size`,
      all[part].log_prob_micro_batch_size,
      all[part].log_prob_micro_batch_size_per_gpu,
    );
  return {
    ...all,
    actor: {
      ...actor,
      ppo_micro_batch_size_per_gpu: oneSize(
        "actor_rollout_ref.actor.ppo_micro_batch_size",
        actor.ppo_micro_batch_size,
        actor.ppo_micro_batch_size_per_gpu,
      ),
    },
    rollout: { ...rollout, log_prob_micro_batch_size_per_gpu: logProbs("rollout") },
    ref: { ...ref, log_prob_micro_batch_size_per_gpu: logProbs("ref") },
  };
}

function criticWithOneSize(critic: PpoValues["critic"]): PpoValues["critic"] {
  return {
    ...critic,
    ppo_micro_batch_size_per_gpu: oneSize(
      "critic.ppo_micro_batch_size",
      critic.ppo_micro_batch_size,
      critic.ppo_micro_batch_size_per_gpu,
    ),
    // The older key follows the training passes by default, so that it has no effect once the newer one is given.
    forward_micro_batch_size_per_gpu: critic.forward_micro_batch_size_per_gpu ?? critic.forward_micro_batch_size,
  };
}
