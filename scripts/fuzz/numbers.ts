/** Random inputs of what computes with numbers: estimators, losses, KL, rollout correction, metrics, balancing. */
import { advantageNames } from "../../src/algos/advantages/registry.ts";
import { policyLossNames } from "../../src/algos/losses/policy/registry.ts";
import type { Random } from "../../src/util/random.ts";
import {
  chance,
  exact,
  groupsOf,
  logprobsOf,
  maskOf,
  moved,
  type Numbers,
  number,
  pick,
  rewardsOf,
  rowsLike,
  times,
} from "./dice.ts";

type Inputs = Readonly<Record<string, unknown>>;
/** How cases of one function of verl are made; `only` names the release that alone has the function. */
export type Generator = {
  readonly topic: string;
  readonly function: string;
  readonly only?: "0.7.0" | "0.9.1";
  /** How many of its cases there are to one of another function's. */
  readonly share?: number;
  inputs(random: Random, version: string): Inputs;
};

const modesOf = (version: string): string[] => [
  "token-mean",
  "seq-mean-token-sum",
  "seq-mean-token-mean",
  "seq-mean-token-sum-norm",
  ...(version.startsWith("0.7") ? [] : ["token-sum"]),
];

/** Counts of a global batch, in one case of four. */
function globalOf(random: Random, mask: Numbers): Inputs {
  if (!chance(random, 0.25)) return {};
  return {
    dp_size: 1 + random.int(3),
    batch_num_tokens: 1 + mask.flat().length + random.int(50),
    global_batch_size: mask.length + random.int(8),
    ...(chance(random, 0.5) ? { loss_scale_factor: 1 + random.int(64) } : {}),
  };
}

// ---------------------------------------------------------------- advantages

const newEstimators = ["gdpo", "optimal_token_baseline", "tir_optimal_token_baseline"];

const estimators: Generator[] = advantageNames().map((name) => ({
  topic: "advantages",
  function: name,
  ...(newEstimators.includes(name) ? { only: "0.9.1" as const } : {}),
  inputs: (random) => estimatorInputs(name, random),
}));

function estimatorInputs(name: string, random: Random): Inputs {
  const mask = maskOf(random);
  const common = { token_level_rewards: rewardsOf(random, mask), response_mask: mask };
  const norm = { norm_adv_by_std_in_grpo: chance(random, 0.5) };
  const gamma = pick(random, [0, 0.5, 0.99, 1]);
  const index = groupsOf(random, mask.length);
  const probabilities = rowsLike(mask, () => exact(random.uniform()));
  const byName: Readonly<Record<string, () => Inputs>> = {
    gae: () => ({ values: rowsLike(mask, () => number(random)), gamma, lam: pick(random, [0, 0.5, 0.95, 1]) }),
    reinforce_plus_plus: () => ({ config: { gamma } }),
    remax: () => ({ reward_baselines: mask.map(() => number(random)) }),
    grpo: () => ({ index, ...norm }),
    grpo_vectorized: () => ({ index, ...norm }),
    grpo_passk: () => ({ index, config: norm }),
    gdpo: () => ({ index, ...norm, ...components(random, mask) }),
    optimal_token_baseline: () => tokenBaseline(),
    tir_optimal_token_baseline: () => tokenBaseline(),
  };
  const tokenBaseline = (): Inputs => ({
    index,
    old_log_probs: logprobsOf(random, mask),
    sum_pi_squared: probabilities,
    handle_zero_tail: chance(random, 0.5),
    ...(chance(random, 0.5) ? { rollout_is_weights: rowsLike(mask, () => exact(random.uniform() * 2)) } : {}),
  });
  return { ...common, ...(byName[name]?.() ?? { index }) };
}

function components(random: Random, mask: Numbers): Inputs {
  if (chance(random, 0.3)) return {};
  const keys = ["format", "accuracy", "length"].slice(0, 1 + random.int(3));
  const weights = chance(random, 0.5) ? { gdpo_reward_weights: keys.map(() => exact(random.uniform() * 2)) } : {};
  return {
    reward_components: Object.fromEntries(keys.map((key) => [key, mask.map(() => pick(random, [0, 0, 1, 0.5, -1]))])),
    config: { gdpo_reward_keys: keys, ...weights },
  };
}

// ---------------------------------------------------------------- losses

const newLosses = ["dppo_tv", "dppo_kl", "dro"];

const policyLosses: Generator[] = [...policyLossNames(), "reinforce(compute_policy_loss_reinforce)"].map((name) => ({
  topic: "policy_losses",
  function: name,
  ...(newLosses.includes(name) ? { only: "0.9.1" as const } : {}),
  share: 2,
  inputs: (random, version) => policyInputs(name, random, version),
}));

function policyInputs(name: string, random: Random, version: string): Inputs {
  const mask = maskOf(random);
  const old = logprobsOf(random, mask);
  const clip = () => pick(random, [0, 0.1, 0.2, 0.28, 1]);
  const config = {
    clip_ratio: clip(),
    clip_ratio_low: clip(),
    clip_ratio_high: clip(),
    ...(chance(random, 0.4) ? { clip_ratio_c: pick(random, [1, 1.05, 1.5, 3, 10]) } : {}),
    ...(name === "sapo" ? { tau_pos: pick(random, [0.5, 1, 3]), tau_neg: pick(random, [0.5, 1.05, 3]) } : {}),
    policy_loss: policyConfig(name, random, version),
    global_batch_info: globalOf(random, mask),
  };
  const hasWeights = name !== "bypass_mode" && chance(random, 0.3);
  return {
    old_log_prob: old,
    log_prob: moved(random, old),
    advantages: rowsLike(mask, () => number(random)),
    response_mask: mask,
    ...(hasWeights ? { rollout_is_weights: rowsLike(mask, () => exact(random.uniform() * 3)) } : {}),
    config,
    modes: modesOf(version),
  };
}

function policyConfig(name: string, random: Random, version: string): Inputs {
  const byName: Readonly<Record<string, () => Inputs>> = {
    clip_cov: () => ({
      clip_cov_ratio: pick(random, [0.0002, 0.1, 0.5, 1]),
      clip_cov_lb: pick(random, [-1, 0.05, 0.5]),
      clip_cov_ub: pick(random, [1, 5]),
    }),
    kl_cov: () => ({ kl_cov_ratio: pick(random, [0.0002, 0.2, 1]), ppo_kl_coef: pick(random, [0, 0.1, 1]) }),
    dro: () => ({ dro_beta: pick(random, [0, 0.1, 1, 5]) }),
    bypass_mode: () => ({
      rollout_correction: { loss_type: pick(random, ["ppo_clip", "reinforce"]), ...correctionKeys(random, version) },
    }),
  };
  return byName[name]?.() ?? {};
}

const losses: Generator[] = [
  {
    topic: "losses_kl",
    function: "agg_loss",
    share: 2,
    inputs: (random, version) => {
      const mask = maskOf(random);
      const loss_mat = rowsLike(mask, () => number(random));
      return { loss_mat, loss_mask: mask, ...globalOf(random, mask), modes: modesOf(version) };
    },
  },
  {
    topic: "losses_kl",
    function: "compute_value_loss",
    share: 3,
    inputs: (random, version) => {
      const mask = maskOf(random);
      const values = rowsLike(mask, () => number(random));
      return {
        values,
        vpreds: rowsLike(mask, (i, t) => exact(values[i]![t]! + pick(random, [0, random.normal(0, 0.5), 0.5]))),
        returns: rowsLike(mask, (i, t) => (chance(random, 0.1) ? values[i]![t]! : number(random))),
        response_mask: mask,
        cliprange_value: pick(random, [0, 0.125, 0.5, 100]),
        ...(version.startsWith("0.7") ? {} : globalOf(random, mask)),
        modes: modesOf(version),
      };
    },
  },
  {
    topic: "losses_kl",
    function: "compute_entropy_loss",
    inputs: (random, version) => {
      const mask = maskOf(random, 1 + random.int(3), 1 + random.int(3));
      const scale = pick(random, [0, 1, 10]);
      const logits = mask.map((row) => row.map(() => times(5, () => exact(random.normal(0, scale)))));
      return { logits, response_mask: mask, modes: modesOf(version) };
    },
  },
];

// ---------------------------------------------------------------- KL

const kinds = ["kl", "k1", "abs", "mse", "k2", "low_var_kl", "k3", "full", "other"];

const kl: Generator[] = [
  {
    topic: "losses_kl",
    function: "kl_penalty",
    share: 2,
    inputs: (random, version) => {
      const logprob = logprobsOf(random, maskOf(random));
      const straight = version.startsWith("0.7") ? [] : ["k1+", "k3+", "low_var_kl+", "k2+", "abs+"];
      return { logprob, ref_logprob: moved(random, logprob), kinds: [...kinds, ...straight] };
    },
  },
  {
    topic: "losses_kl",
    function: "AdaptiveKLController",
    inputs: (random) => {
      const count = 1 + random.int(6);
      return {
        init_kl_coef: pick(random, [0, 0.001, 0.2]),
        target_kl: pick(random, [0.01, 0.1, 6]),
        horizon: pick(random, [1, 100, 10000]),
        current_kl: times(count, () => number(random, 3)),
        n_steps: times(count, () => random.int(64)),
      };
    },
  },
  {
    topic: "losses_kl",
    function: "apply_kl_penalty",
    share: 2,
    inputs: (random) => {
      const mask = maskOf(random);
      const old = logprobsOf(random, mask);
      const adaptive = { type: "adaptive", target_kl: pick(random, [0.1, 6]), horizon: pick(random, [10, 10000]) };
      return {
        response_mask: mask,
        token_level_scores: rewardsOf(random, mask),
        old_log_probs: old,
        ref_log_prob: moved(random, old),
        kl_penalty: pick(random, ["kl", "k1", "abs", "mse", "k2", "low_var_kl", "k3"]),
        kl_ctrl: {
          ...(chance(random, 0.5) ? adaptive : { type: "fixed" }),
          kl_coef: pick(random, [0, 0.001, 0.2]),
        },
      };
    },
  },
  {
    topic: "losses_kl",
    function: "compute_pf_ppo_reweight_data",
    inputs: (random) => {
      const mask = maskOf(random);
      return {
        token_level_scores: rewardsOf(random, mask),
        uid: mask.map((_, i) => `row-${i}`),
        reweight_method: pick(random, ["pow", "max_min", "max_random", "other"]),
        weight_pow: pick(random, [0, 0.5, 1, 2]),
      };
    },
  },
];

// ---------------------------------------------------------------- rollout correction

/** Keys of a correction: valid ones, and some that must be refused. */
function correctionKeys(random: Random, version: string): Inputs {
  const isOld = version.startsWith("0.7");
  const isLevel = pick(random, [null, "token", "sequence", ...(chance(random, 0.1) ? ["group"] : [])]);
  const bounds = isOld ? [0.5, 1.1, 2, 5] : [0.5, 1.1, 2, 5, "2", "0.5_2.0", "0.9_1.1"];
  const badBounds = isOld ? [] : [0, -1, "", "x", "2_1", "0_2"];
  return {
    ...(isLevel === null
      ? {}
      : {
          rollout_is: isLevel,
          rollout_is_threshold: pick(random, chance(random, 0.05) && !isOld ? badBounds : bounds),
          rollout_is_batch_normalize: chance(random, 0.3),
        }),
    ...(isOld ? oldRejection(random) : newRejection(random)),
  };
}

function oldRejection(random: Random): Inputs {
  const level = pick(random, [null, "token", "sequence", "geometric", ...(chance(random, 0.1) ? ["group"] : [])]);
  const veto = chance(random, 0.3) ? { rollout_token_veto_threshold: pick(random, [1e-4, 0.05, 0.5]) } : {};
  if (level === null) return veto;
  const lower = chance(random, 0.4) ? { rollout_rs_threshold_lower: pick(random, [0.5, 0.8, 0.99]) } : {};
  return { rollout_rs: level, rollout_rs_threshold: pick(random, [1.01, 1.2, 2, 5]), ...lower, ...veto };
}

const k1 = ["token_k1", "seq_sum_k1", "seq_mean_k1"];
const others = ["token_k2", "token_k3", "seq_sum_k2", "seq_sum_k3", "seq_mean_k2", "seq_mean_k3", "seq_max_k2"];

function newRejection(random: Random): Inputs {
  const count = pick(random, [0, 1, 1, 2, 3]);
  if (count === 0) return {};
  const options = times(count, () => pick(random, [...k1, ...others, "seq_max_k3"]));
  if (chance(random, 0.03)) options.push("seq_max_k1");
  const bound = (option: string) =>
    option.endsWith("k1") ? pick(random, ["0.5_2.0", "0.9_1.1", "1.5", "2"]) : pick(random, ["0.01", "0.5", "2.0"]);
  const isShared = chance(random, 0.15);
  const thresholds = isShared ? "2.0" : options.map(bound).join(",");
  return {
    rollout_rs: options.join(","),
    rollout_rs_threshold: chance(random, 0.03) ? pick(random, ["", "x", "0", "2_1", null]) : thresholds,
  };
}

const mismatch = (random: Random) => {
  const response_mask = maskOf(random);
  const rollout_log_prob = logprobsOf(random, response_mask);
  return { rollout_log_prob, response_mask, training: moved(random, rollout_log_prob) };
};

const correction: Generator[] = [
  {
    topic: "rollout_correction",
    function: "compute_rollout_correction_and_rejection_mask",
    share: 10,
    inputs: (random, version) => {
      const { training: old_log_prob, ...rest } = mismatch(random);
      return { old_log_prob, ...rest, ...correctionKeys(random, version) };
    },
  },
  {
    topic: "rollout_correction",
    function: "compute_offpolicy_metrics",
    share: 2,
    inputs: (random) => {
      const { training: old_log_prob, ...rest } = mismatch(random);
      return { old_log_prob, ...rest };
    },
  },
  {
    topic: "rollout_correction",
    function: "compute_rollout_corr_metrics_from_logprobs",
    inputs: (random) => {
      const { training: log_prob, ...rest } = mismatch(random);
      return { log_prob, ...rest };
    },
  },
];

export const numberGenerators: readonly Generator[] = [...estimators, ...policyLosses, ...losses, ...kl, ...correction];
