/**
 * The keys of `algorithm.`: advantages, KL in the reward, PF-PPO, group filtering and rollout correction.
 *
 * Defaults are verl's. Algorithms declare their own keys, and check them too (`algos/`); they are put together here.
 * `version`, `rollout_correction.preset` and `.version` are ours.
 */
import { type AdvantageName, advantageFields, advantageNames } from "../../algos/advantages/registry.ts";
import { correctionFields } from "../../algos/correction/fields.ts";
import { klControlFields } from "../../algos/kl/control.ts";
import { type KlName, klNames } from "../../algos/kl/estimates.ts";
import { filterGroupsFields } from "../../algos/selection/group-filter.ts";
import { pfPpoFields } from "../../algos/selection/pf-ppo.ts";
import { bool, choice, field, nameOf } from "../../util/field.ts";

export const algorithm = {
  adv_estimator: field(nameOf<AdvantageName>("an estimator", advantageNames()), "gae", "Advantage estimator."),
  ...advantageFields,
  use_kl_in_reward: field(
    bool,
    false,
    "Take the KL to the reference off the rewards; a reference model is kept for it.",
  ),
  kl_penalty: field(nameOf<KlName>("a KL estimate", klNames()), "kl", "How that KL is estimated."),
  kl_ctrl: klControlFields,
  ...pfPpoFields,
  filter_groups: filterGroupsFields,
  rollout_correction: correctionFields,
  version: field(choice("0.9", "0.7"), "0.9", "Whose formulas where verl's releases differ; 0.9 fixed defects of 0.7."),
};
