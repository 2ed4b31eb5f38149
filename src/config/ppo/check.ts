/**
 * Rules between the keys of `trainyard ppo`, as verl's validate_config has them and where it would fail later: each a
 * `UserError` that names the keys with their values and how to mend it.
 */

import { findAdvantage } from "../../algos/advantages/registry.ts";
import { klEstimate } from "../../algos/kl/estimates.ts";
import { actorLoss } from "../../algos/losses/actor-loss.ts";
import { valueLoss } from "../../algos/losses/value-loss.ts";
import { samplingWeights } from "../../algos/selection/pf-ppo.ts";
import { checkManagerFile } from "../../rewards/manager.ts";
import { UserError } from "../../util/errors.ts";
import { isNamed } from "../hooks.ts";
import { isServed, modelParts, type RewardPart, rewardTree } from "./reward-tree.ts";
import * as settings from "./settings.ts";
import type { PpoConfig, PpoValues } from "./tree.ts";

/** Stop at the first rule that does not hold. */
export function checkPpo(config: PpoConfig): void {
  for (const rule of rules) rule(config);
}

const rules: readonly ((config: PpoConfig) => void)[] = [
  checkBatches,
  checkPasses,
  checkLengths,
  checkAlgorithm,
  checkGroups,
  checkSampling,
  checkRewards,
  checkRun,
  checkConfigChanges,
];

/** A changed config.json is on this machine alone. */
function checkConfigChanges({ trainer, actor_rollout_ref: { model }, critic }: PpoConfig): void {
  if (trainer.engine !== "ray" || (trainer.nnodes ?? 1) === 1) return;
  for (const [key, { hf_config_path: path, override_config: fields }] of [
    ["actor_rollout_ref.model", model],
    ["critic.model", critic.model],
  ] as const) {
    if (path === null && Object.keys(fields).length === 0) continue;
    throw new UserError(
      `\`${key}.${path === null ? "override_config" : "hf_config_path"}\` changes config.json on this machine, and ` +
        `\`trainer.nnodes\` is ${trainer.nnodes}. Change the file in the model's folder instead.`,
    );
  }
}

/** Two spellings of one size: null where neither is given. */
export function oneSize(key: string, older: number | null, perGpu: number | null): number | null {
  if (older === null || perGpu === null || older === perGpu) return perGpu ?? older;
  throw new UserError(
    `\`${key}\` is ${older} and \`${key}_per_gpu\` is ${perGpu}, but on one device they are the same. Keep \`${key}_per_gpu\`.`,
  );
}

/** Whether a critic is trained. */
export function hasCritic({ critic, algorithm, trainer }: PpoValues): boolean {
  const isNeeded = findAdvantage(algorithm.adv_estimator).hasCritic;
  if (critic.enable === false && isNeeded) {
    throw new UserError(
      `\`algorithm.adv_estimator\` is ${algorithm.adv_estimator}, which needs a critic's values, and \`critic.enable\` is false. ` +
        "Set critic.enable=null, or an estimator without a critic, such as algorithm.adv_estimator=grpo.",
    );
  }
  const isTrained = critic.enable ?? isNeeded;
  if (!isTrained && trainer.critic_warmup > 1) {
    throw new UserError(
      `\`trainer.critic_warmup\` is ${trainer.critic_warmup}, and with \`algorithm.adv_estimator\`=${algorithm.adv_estimator} there is no critic: ` +
        "nothing would be learnt until then. Set trainer.critic_warmup=0.",
    );
  }
  return isTrained;
}

function checkBatches({ data, actor_rollout_ref: { actor }, critic, algorithm }: PpoConfig): void {
  const batch = data.train_batch_size;
  const minis: readonly (readonly [string, number])[] = [
    ["actor_rollout_ref.actor.ppo_mini_batch_size", actor.ppo_mini_batch_size],
    ...(critic.enable ? [["critic.ppo_mini_batch_size", critic.ppo_mini_batch_size] as const] : []),
  ];
  for (const [key, mini] of minis) {
    if (mini <= batch) continue;
    throw new UserError(
      `\`${key}\` is ${mini}, more than \`data.train_batch_size\`=${batch}. Both count prompts: set ${key}=${batch}, or another data.train_batch_size.`,
    );
  }
  if (data.gen_batch_size !== null && data.gen_batch_size !== batch && !algorithm.filter_groups.enable) {
    throw new UserError(
      `\`data.gen_batch_size\` is ${data.gen_batch_size} and \`data.train_batch_size\` is ${batch}. They may differ only while groups are filtered: ` +
        "set algorithm.filter_groups.enable=true, or leave data.gen_batch_size out.",
    );
  }
}

function checkPasses(config: PpoConfig): void {
  const { rollout } = config.actor_rollout_ref;
  const longest = rollout.prompt_length + rollout.response_length;
  const passes = settings.passSettings(config);
  const used: readonly settings.PassSettings[] = [
    passes.actor,
    passes.old_log_prob,
    ...(settings.needsReference(config) ? [passes.ref] : []),
    ...(config.critic.enable ? [passes.critic, passes.values] : []),
    ...modelParts(config).map(settings.rewardPassSettings),
  ];
  for (const { isDynamic, maxTokens, key } of used) {
    if (!isDynamic || maxTokens >= longest) continue;
    throw new UserError(
      `\`${key}\` allows ${maxTokens} tokens per pass, less than one prompt of \`actor_rollout_ref.rollout.prompt_length\`=${rollout.prompt_length} ` +
        `with a response of \`response_length\`=${rollout.response_length}. Set ${key} to at least ${longest}.`,
    );
  }
}

function checkLengths({ actor_rollout_ref: { rollout } }: PpoConfig): void {
  const { max_model_len: limit, prompt_length: prompt, response_length: response } = rollout;
  if (limit === null || limit >= prompt + response) return;
  throw new UserError(
    `\`actor_rollout_ref.rollout.max_model_len\` is ${limit}, less than a prompt of ${prompt} and a response of ${response} tokens together. ` +
      `Set it to at least ${prompt + response}, or lower data.max_prompt_length or data.max_response_length.`,
  );
}

/** The algorithms' own checks, so that a wrong name or bound is refused now and not in the first step. */
function checkAlgorithm(config: PpoConfig): void {
  const { actor_rollout_ref: all, algorithm } = config;
  const correction = settings.correctionSettings(config);
  const { loss_mode: mode } = all.actor.policy_loss;
  actorLoss(settings.actorSettings(config));
  if (config.critic.enable) valueLoss(settings.criticSettings(config));
  settings.klSettings(config);
  if (algorithm.use_kl_in_reward) klEstimate(algorithm.kl_penalty);
  samplingWeights([], algorithm.pf_ppo);
  if (mode === "bypass_mode" && !correction.isBypass) {
    throw new UserError(
      "`actor_rollout_ref.actor.policy_loss.loss_mode` is bypass_mode, and `algorithm.rollout_correction.bypass_mode` is false. " +
        "Set the latter, which chooses the loss.",
    );
  }
  if (correction.isBypass && all.actor.recompute_old_log_prob) {
    throw new UserError(
      "`algorithm.rollout_correction.bypass_mode` takes the sampler's log-probs as the old ones, and `actor_rollout_ref.actor.recompute_old_log_prob` computes them again. Switch one of them off.",
    );
  }
}

function checkGroups(config: PpoConfig): void {
  const { actor, rollout } = config.actor_rollout_ref;
  const { adv_estimator: name, filter_groups: filter } = config.algorithm;
  const estimator = findAdvantage(name);
  if (estimator.needs.includes("sumPiSquared") && !actor.calculate_sum_pi_squared) {
    throw new UserError(
      `\`algorithm.adv_estimator\` is ${name}, which needs the sum of squared probabilities. Set actor_rollout_ref.actor.calculate_sum_pi_squared=true.`,
    );
  }
  estimator.check?.(settings.advantageSettings(config), { groupSize: rollout.n });
  if (filter.enable && rollout.n < 2) {
    throw new UserError(
      "`algorithm.filter_groups.enable` drops groups whose responses score alike, and with `actor_rollout_ref.rollout.n`=1 that is every group. Set actor_rollout_ref.rollout.n to at least 2.",
    );
  }
}

function checkSampling({ actor_rollout_ref: { rollout } }: PpoConfig): void {
  const key = "actor_rollout_ref.rollout";
  if (rollout.temperature === 0 || !rollout.do_sample) {
    const why = rollout.do_sample ? `\`${key}.temperature\` is 0` : `\`${key}.do_sample\` is false`;
    throw new UserError(
      `${why}: every response would be the likeliest one, and there is nothing to learn from it. ` +
        `Set ${key}.do_sample=true and a ${key}.temperature above 0. Validation has its own under ${key}.val_kwargs.`,
    );
  }
  const { n, do_sample: isDrawn, temperature } = rollout.val_kwargs;
  if (n > 1 && (!isDrawn || temperature === 0)) {
    const why = isDrawn ? `\`${key}.val_kwargs.temperature\` is 0` : `\`${key}.val_kwargs.do_sample\` is false`;
    throw new UserError(
      `\`${key}.val_kwargs.n\` is ${n}, and ${why}: all ${n} responses to a prompt would be the same. ` +
        `Set ${key}.val_kwargs.n=1, or do_sample=true and a temperature above 0.`,
    );
  }
}

function checkRewards(config: PpoConfig): void {
  const { custom_reward_function: custom, reward_manager: manager } = config;
  if (custom.path !== null && custom.function !== null) {
    throw new UserError(
      `\`custom_reward_function.path\` is ${custom.path}, and the config file holds a function besides. Keep one of them.`,
    );
  }
  if (manager.name === "batch" && custom.function !== null) {
    throw new UserError(
      "`reward_manager.name` is batch, and the reward function is in the config file, where it takes one sample. " +
        "Put a function that takes a list of samples into a file: custom_reward_function.path=….",
    );
  }
  checkManager(config);
  for (const part of rewardTree(config).parts) checkPart(part, config.reward.sources !== null);
}

/** A manager of ours has a name that exists, one of the user's a file. */
function checkManager(config: PpoConfig): void {
  const { source, module } = config.reward_manager;
  if (source === "register") settings.managerSettings(config);
  else if (module.path !== null) checkManagerFile(module.path);
  else {
    throw new UserError(
      "`reward_manager.source` is importlib, and `reward_manager.module.path` names no file. Set it to the file with the manager.",
    );
  }
}

/** A reward model has a path, a judge what it is asked. */
function checkPart(part: RewardPart, hasTree: boolean): void {
  if (part.use === "function" || part.use === "scorer") return;
  const { key, use, model } = part;
  const { judge, service } = model;
  if (use === "model" && model.model.path === null) {
    const why = hasTree ? "`reward.sources` has an entry for a reward model" : "`reward_model.enable` is true";
    throw new UserError(
      `${why}, and \`${key}.model.path\` is missing. Set it to a folder or hub id of a reward model.`,
    );
  }
  if (isServed(part) && model.model.path === null) {
    throw new UserError(
      `\`${key}.service.url\` is ${service.url.join(", ")}, and \`${key}.model.path\` is missing. By the protocol ${service.protocol} a ` +
        "served model gets the conversation in its own chat template: set the path to the folder or hub id of that " +
        "model. Only its tokenizer is read.",
    );
  }
  if (use === "model") return;
  if (model[use].url.length === 0)
    throw new UserError(
      `\`reward.sources\` has an entry with \`use\`=${use}, and \`${key}.${use}.url\` is missing. Set it.`,
    );
  for (const [name, value] of Object.entries({ model: judge.model, template: judge.template })) {
    if (use !== "judge" || value !== null) continue;
    throw new UserError(
      `\`${key}.judge.url\` is ${judge.url.join(", ")}, and \`${key}.judge.${name}\` is missing. A judge needs it.`,
    );
  }
}

function checkRun({ data, trainer }: PpoConfig): void {
  const hasDataset = isNamed(data.custom_cls);
  if (data.train_files.length === 0 && !hasDataset)
    throw new UserError("`data.train_files` names no file. Give the file with the prompts.");
  if (trainer.val_only && data.val_files.length === 0 && !hasDataset) {
    throw new UserError(
      "`trainer.val_only` is true, and `data.val_files` names no file. Give the file with the validation prompts.",
    );
  }
  if (trainer.val_only && !trainer.val_before_train) {
    throw new UserError(
      "`trainer.val_only` is true and `trainer.val_before_train` is false, so nothing would be done. Set trainer.val_before_train=true.",
    );
  }
  if (trainer.resume_mode === "resume_path" && trainer.resume_from_path === null) {
    throw new UserError(
      "`trainer.resume_mode` is resume_path, and `trainer.resume_from_path` is missing. Set it to a global_step_N folder, or use trainer.resume_mode=auto.",
    );
  }
  if (trainer.resume_mode === "disable" && trainer.resume_from_path !== null) {
    throw new UserError(
      `\`trainer.resume_from_path\` is ${trainer.resume_from_path}, but \`trainer.resume_mode\` is disable. Use trainer.resume_mode=resume_path, or drop the path.`,
    );
  }
}
