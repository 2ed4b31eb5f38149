/** All keys of `trainyard ppo` in one tree, with the types of the resolved config and of a config file. */
import type { CustomReward } from "../../rewards/reward.ts";
import type { Input, Resolved } from "../../util/field.ts";
import type { WithHooks } from "../hooks.ts";
import type { Further, rayPpo } from "../ray/ray.ts";
import { actor, model, ref } from "./actor.ts";
import { algorithm } from "./algorithm.ts";
import { critic } from "./critic.ts";
import { data } from "./data.ts";
import {
  custom_reward_function,
  reward,
  reward_manager,
  reward_model,
  type rewardFunctionFields,
  type rewardModelFields,
} from "./reward.ts";
import { rollout } from "./rollout.ts";
import { trainer } from "./trainer.ts";

export const ppoFields = {
  data,
  actor_rollout_ref: { model, actor, ref, rollout },
  critic,
  reward_model,
  reward_manager,
  custom_reward_function,
  reward,
  algorithm,
  trainer,
};

/** Values of the keys that registered algorithms bring, below their names. */
export type OwnValues = Readonly<Record<string, Readonly<Record<string, unknown>>>>;
/** Where they are in the tree. */
type OwnBranches<Own> = {
  readonly algorithm: { readonly own?: Own };
  readonly actor_rollout_ref: { readonly actor: { readonly policy_loss: { readonly own?: Own } } };
};

/** What `reward_model` and `reward.models.NAME` hold. */
export type RewardModelValues = Resolved<typeof rewardModelFields>;

/** What the config names itself: reward models and reward functions. */
type NamedBranches = {
  readonly reward: {
    readonly models?: Readonly<Record<string, RewardModelValues>>;
    readonly functions?: Readonly<Record<string, Resolved<typeof rewardFunctionFields>>>;
  };
};

/** Every key with its value, before the rules between keys. */
export type PpoValues = Resolved<typeof ppoFields> & OwnBranches<OwnValues> & NamedBranches;

/**
 * The resolved config of a reinforcement-learning run. Beyond the values themselves: `critic.enable` is decided, older
 * spellings of micro-batch sizes have moved to `_per_gpu`, `rollout_correction` holds the keys of its preset, and in
 * bypass mode the policy loss is `bypass_mode` unless another than PPO's was chosen.
 */
export type PpoConfig = Omit<PpoValues, "critic"> & {
  readonly critic: Omit<PpoValues["critic"], "enable"> & { readonly enable: boolean };
} & Further<typeof rayPpo>;

type Parts = Input<typeof ppoFields> & Input<typeof rayPpo> & OwnInput & NamedInput;
type OwnInput = {
  readonly algorithm?: { readonly own?: OwnValues };
  readonly actor_rollout_ref?: { readonly actor?: { readonly policy_loss?: { readonly own?: OwnValues } } };
};

type NamedInput = {
  readonly reward?: {
    readonly models?: Readonly<Record<string, Input<typeof rewardModelFields>>>;
    readonly functions?: Readonly<Record<string, Input<typeof rewardFunctionFields>>>;
  };
};

/** What a config file may hold for such a run; a reward function and the hooks of the data may be there themselves. */
export type PpoInput = WithHooks<Omit<Parts, "custom_reward_function">, "sampler" | "custom_cls" | "datagen"> & {
  readonly custom_reward_function?: CustomReward | NonNullable<Parts["custom_reward_function"]>;
};
