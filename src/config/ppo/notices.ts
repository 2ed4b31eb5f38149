/**
 * What is worth saying about a config that will run: keys that were given and mean nothing beside the others, and settings
 * that verl warns about. Nothing here changes the config.
 */
import { findAdvantage } from "../../algos/advantages/registry.ts";
import { isNamed } from "../hooks.ts";
import { rewardPoolKeys, whyNoPool } from "../ray/pool.ts";
import { offloadKeys, roundsCoarsely, vllmKeys, whyNotOffloaded } from "../ray/ray.ts";
import { isServed, type PartOf, type RewardPart, rewardTree, routedServers } from "./reward-tree.ts";
import type { PpoConfig } from "./tree.ts";

/** Keys that have no effect while `because` gives a reason; a key that ends in a dot stands for all below it. */
type Unused = { readonly keys: readonly string[]; because(config: PpoConfig): string | null };

const actor = "actor_rollout_ref.actor";
const rollout = "actor_rollout_ref.rollout";
const ref = "actor_rollout_ref.ref";

const asyncSaveKeys = [`${actor}.checkpoint.async_save`, "critic.checkpoint.async_save"];

const passes: readonly Unused[] = [
  pass(`${actor}.ppo_micro_batch_size`, `${actor}.ppo_max_token_len_per_gpu`, ({ actor_rollout_ref: all }) => [
    all.actor.use_dynamic_bsz,
    all.actor.ppo_micro_batch_size_per_gpu,
  ]),
  ...(["rollout", "ref"] as const).map((part) =>
    pass(
      `actor_rollout_ref.${part}.log_prob_micro_batch_size`,
      `actor_rollout_ref.${part}.log_prob_max_token_len_per_gpu`,
      ({ actor_rollout_ref: all }) => [all[part].log_prob_use_dynamic_bsz, all[part].log_prob_micro_batch_size_per_gpu],
    ),
  ),
  pass("critic.ppo_micro_batch_size", "critic.ppo_max_token_len_per_gpu", ({ critic }) => [
    critic.use_dynamic_bsz,
    critic.ppo_micro_batch_size_per_gpu,
  ]),
  pass("critic.forward_micro_batch_size", "critic.forward_max_token_len_per_gpu", ({ critic }) => [
    critic.use_dynamic_bsz,
    critic.forward_micro_batch_size_per_gpu,
  ]),
  pass("reward_model.micro_batch_size", "reward_model.forward_max_token_len_per_gpu", ({ reward_model: model }) => [
    model.use_dynamic_bsz,
    model.micro_batch_size_per_gpu,
  ]),
].flat();

/** A pass is cut by rows or by tokens, never by both. */
function pass(rowKey: string, tokenKey: string, read: (config: PpoConfig) => [boolean, number | null]): Unused[] {
  const byTokens = `passes are filled up to \`${tokenKey}\` tokens`;
  return [
    { keys: [rowKey, `${rowKey}_per_gpu`], because: (config) => (read(config)[0] ? byTokens : null) },
    {
      keys: [tokenKey],
      because: (config) => {
        const [isDynamic, rows] = read(config);
        return isDynamic || rows === null ? null : `passes hold \`${rowKey}_per_gpu\`=${rows} responses`;
      },
    },
  ];
}

const others: readonly Unused[] = [
  { keys: offloadKeys, because: whyNotOffloaded },
  {
    keys: asyncSaveKeys,
    because: ({ trainer, actor_rollout_ref: all, critic }) =>
      trainer.engine === "ray" && (all.actor.checkpoint.async_save || critic.checkpoint.async_save)
        ? "workers of `trainer.engine`=ray save before the next step begins"
        : null,
  },
  {
    keys: ["critic."],
    because: ({ critic, algorithm }) =>
      critic.enable ? null : `\`algorithm.adv_estimator\`=${algorithm.adv_estimator} has no critic`,
  },
  {
    keys: [`${ref}.`],
    because: ({ actor_rollout_ref: all, algorithm }) =>
      all.actor.use_kl_loss || algorithm.use_kl_in_reward
        ? null
        : `without \`${actor}.use_kl_loss\` and \`algorithm.use_kl_in_reward\` there is no reference model`,
  },
  {
    keys: ["algorithm.kl_penalty", "algorithm.kl_ctrl."],
    because: ({ algorithm }) => (algorithm.use_kl_in_reward ? null : "`algorithm.use_kl_in_reward` is false"),
  },
  {
    keys: [`${actor}.kl_loss_coef`, `${actor}.kl_loss_type`],
    because: ({ actor_rollout_ref: all }) => (all.actor.use_kl_loss ? null : `\`${actor}.use_kl_loss\` is false`),
  },
  {
    keys: ["trainer.console"],
    because: ({ trainer }) => (trainer.logger.includes("console") ? null : "`trainer.logger` does not name console"),
  },
  {
    keys: ["algorithm.pf_ppo."],
    because: ({ algorithm }) => (algorithm.use_pf_ppo ? null : "`algorithm.use_pf_ppo` is false"),
  },
  {
    keys: ["algorithm.use_pf_ppo", "algorithm.pf_ppo."],
    because: ({ algorithm }) =>
      algorithm.use_pf_ppo && algorithm.adv_estimator !== "gae"
        ? `responses are redrawn with \`algorithm.adv_estimator\`=gae only, and it is ${algorithm.adv_estimator}`
        : null,
  },
  {
    keys: ["algorithm.filter_groups.metric", "algorithm.filter_groups.max_num_gen_batches"],
    because: ({ algorithm }) => (algorithm.filter_groups.enable ? null : "`algorithm.filter_groups.enable` is false"),
  },
  {
    keys: ["algorithm.rollout_correction.loss_type"],
    because: ({ algorithm: { rollout_correction: correction } }) =>
      correction.bypass_mode ? null : "`algorithm.rollout_correction.bypass_mode` is false",
  },
  {
    keys: ["reward_model.model."],
    because: (config) =>
      routedServers(config) !== null || usesModel(config, (part) => part.use === "model" || isServed(part))
        ? null
        : noModel(config),
  },
  { keys: Object.keys(rewardPoolKeys).map((key) => `reward_model.${key}`), because: whyNoPool },
  {
    keys: ["reward_model.enable", "reward_model.max_length"],
    because: (config) => (usesModel(config, ({ use }) => use === "model") ? null : noModel(config)),
  },
  ...(["judge", "service"] as const).map(
    (way): Unused => ({
      keys: [`reward_model.${way}.`],
      because: (config) => {
        if (config.reward.sources === null || usesModel(config, ({ use }) => use === way)) return null;
        if (routedServers(config)?.use === way) return null;
        return noEntry(way);
      },
    }),
  ),
  {
    keys: ["custom_reward_function."],
    because: (config) =>
      rewardTree(config).parts.some(({ key }) => key === "custom_reward_function") || config.reward.sources === null
        ? null
        : noEntry("function"),
  },
  {
    keys: ["reward_model.max_concurrent", "reward_model.max_rpm", "reward_model.max_tpm"],
    because: ({ reward_manager: manager }) =>
      manager.name === "rate_limited" ? null : `\`reward_manager.name\` is ${manager.name}, not rate_limited`,
  },
  {
    keys: ["reward_manager.module.path"],
    because: ({ reward_manager: manager }) =>
      manager.source === "importlib" ? null : "`reward_manager.source` is register, not importlib",
  },
  {
    keys: ["reward.batch_size"],
    because: ({ reward_manager: manager }) =>
      manager.name === "batch" || manager.source === "importlib"
        ? null
        : `\`reward_manager.name\` is ${manager.name}, not batch`,
  },
  {
    keys: ["reward_model.reward_kwargs."],
    because: ({ reward_manager: manager }) =>
      manager.name === "dapo" ? null : `\`reward_manager.name\` is ${manager.name}, not dapo`,
  },
  {
    keys: ["custom_reward_function.name", "custom_reward_function.reward_kwargs"],
    because: ({ custom_reward_function: custom }) =>
      custom.path === null ? "`custom_reward_function.path` names no file" : null,
  },
  {
    keys: ["data.shuffle"],
    because: ({ data }) =>
      isNamed(data.sampler) ? "the sampler of `data.sampler` decides the order of the rows" : null,
  },
  {
    keys: ["data.sampler.class_name"],
    because: ({ data }) => (data.sampler.class_path === null ? "`data.sampler.class_path` names no file" : null),
  },
  ...(["custom_cls", "datagen"] as const).map((key) => ({
    keys: [`data.${key}.name`],
    because: ({ data }: PpoConfig) => (data[key].path === null ? `\`data.${key}.path\` names no file` : null),
  })),
  {
    keys: ["trainer.test_freq", "trainer.val_before_train"],
    because: ({ data, trainer }) =>
      data.val_files.length === 0 && !isNamed(data.custom_cls) && (trainer.test_freq !== -1 || trainer.val_before_train)
        ? "`data.val_files` names no file to validate on"
        : null,
  },
  {
    keys: [`${rollout}.val_kwargs.temperature`, `${rollout}.val_kwargs.top_k`, `${rollout}.val_kwargs.top_p`],
    because: ({ actor_rollout_ref: all }) =>
      all.rollout.val_kwargs.do_sample ? null : `\`${rollout}.val_kwargs.do_sample\` is false`,
  },
  {
    keys: [...Object.keys(vllmKeys).map((key) => `${rollout}.${key}`), `${rollout}.name`],
    because: ({ actor_rollout_ref: { rollout: sampler }, trainer }) => {
      if (trainer.engine !== "ray") return null;
      if (sampler.base_url.length > 0) return `\`${rollout}.base_url\` names servers that run already`;
      if (sampler.name === "vllm") return null;
      return sampler.name === "sglang"
        ? `the workers that train sample too, because SGLang is not started here: start it, and set \`${rollout}.base_url\` to its address`
        : `the workers that train sample too, unless \`${rollout}.name\` is vllm`;
    },
  },
];

type AnyModelPart = PartOf<"model" | "judge" | "service">;
const isModelled = (part: RewardPart): part is AnyModelPart => part.use !== "function" && part.use !== "scorer";

/** Whether `reward_model` describes a part of the reward that `some` holds for. */
const usesModel = (config: PpoConfig, some: (part: AnyModelPart) => boolean): boolean =>
  rewardTree(config).parts.some((part) => isModelled(part) && part.key === "reward_model" && some(part));

const noEntry = (use: string): string => `no entry of \`reward.sources\` has use=${use} without a name`;

const noModel = ({ reward }: PpoConfig): string =>
  reward.sources === null ? "`reward_model.enable` is false" : noEntry("model");

/** Everything worth saying; `given` holds the keys that were set, by their own names. */
export function ppoNotices(config: PpoConfig, given: ReadonlySet<string>): string[] {
  return [...unused(config, given), ...remarks(config, given)];
}

function unused(config: PpoConfig, given: ReadonlySet<string>): string[] {
  const named = new Set<string>();
  return [...others, ...ownKeys(config), ...passes].flatMap(({ keys, because }) => {
    const why = because(config);
    const found = [...given].filter((key) => !named.has(key) && keys.some((it) => covers(it, key)));
    if (why === null || found.length === 0) return [];
    for (const key of found) named.add(key);
    return [`${found.map((key) => `\`${key}\``).join(", ")} ${found.length === 1 ? "has" : "have"} no effect: ${why}.`];
  });
}

/** Keys of registered algorithms that the run does not use. */
function ownKeys({ algorithm, actor_rollout_ref: { actor: all } }: PpoConfig): Unused[] {
  const branches = [
    { own: algorithm.own, path: "algorithm.own", key: "algorithm.adv_estimator", used: algorithm.adv_estimator },
    {
      own: all.policy_loss.own,
      path: `${actor}.policy_loss.own`,
      key: `${actor}.policy_loss.loss_mode`,
      used: all.policy_loss.loss_mode,
    },
  ];
  return branches.flatMap(({ own = {}, path, key, used }) =>
    Object.keys(own)
      .filter((name) => name !== used)
      .map((name) => ({ keys: [`${path}.${name}.`], because: () => `\`${key}\` is ${used}` })),
  );
}

/** Reward models and functions that the config names and no data source uses. */
function unusedNames(config: PpoConfig): string[] {
  const used = new Set(rewardTree(config).parts.map(({ key }) => key));
  const { models = {}, functions = {} } = config.reward;
  const keys = Object.entries({ models, functions }).flatMap(([branch, named]) =>
    Object.keys(named).map((name) => `reward.${branch}.${name}`),
  );
  return keys
    .filter((key) => !used.has(key))
    .map((key) => `\`${key}\` has no effect: no entry of \`reward.sources\` names it.`);
}

function covers(key: string, other: string): boolean {
  return key.endsWith(".") ? other.startsWith(key) : key === other;
}

function remarks(config: PpoConfig, given: ReadonlySet<string>): string[] {
  const { actor_rollout_ref: all, algorithm, critic } = config;
  const name = algorithm.adv_estimator;
  const { hasCritic, needs } = findAdvantage(name);
  const notes: string[] = unusedNames(config);
  if (needs.includes("groups") && all.rollout.n === 1) {
    notes.push(
      `\`algorithm.adv_estimator\`=${name} compares the responses to one prompt, and \`${rollout}.n\` is 1: each is compared with nothing. Groups of 4 to 16 are usual.`,
    );
  }
  if (all.actor.use_kl_loss && algorithm.use_kl_in_reward) {
    notes.push(
      `The KL to the reference counts twice: in the reward (\`algorithm.use_kl_in_reward\`) and in the loss (\`${actor}.use_kl_loss\`).`,
    );
  }
  if (critic.enable && !hasCritic) {
    notes.push(
      `A critic is trained (\`critic.enable\`), and \`algorithm.adv_estimator\`=${name} does not use its values.`,
    );
  }
  if (roundsCoarsely(config) && !algorithm.rollout_correction.bypass_mode) {
    notes.push(
      `Old log-probs are computed again in every step: with \`${actor}.fsdp_config.dtype\`=bfloat16 sampling and training round differently.`,
    );
  }
  if (config.trainer.engine === "ray" && all.actor.ulysses_sequence_parallel_size > 1) {
    notes.push(
      `No sequence is divided among workers: \`${actor}.ulysses_sequence_parallel_size\`=${all.actor.ulysses_sequence_parallel_size} makes each worker's passes that many times longer.`,
    );
  }
  const { loss_mode: mode } = all.actor.policy_loss;
  if (algorithm.rollout_correction.bypass_mode && given.has(`${actor}.policy_loss.loss_mode`)) {
    notes.push(
      mode === "bypass_mode"
        ? `\`algorithm.rollout_correction.bypass_mode\` is true, so the policy loss is that of \`rollout_correction.loss_type\`=${algorithm.rollout_correction.loss_type}, whatever \`policy_loss.loss_mode\` says.`
        : `\`${actor}.policy_loss.loss_mode\`=${mode} takes the sampler's log-probs as the old ones (\`algorithm.rollout_correction.bypass_mode\`), as in verl 0.9; \`rollout_correction.loss_type\` is not used.`,
    );
  }
  return notes;
}
