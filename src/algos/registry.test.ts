/** The names that typed configs take are those of the tables. */
import { expect, test } from "vitest";
import { type AdvantageName, advantageNames } from "./advantages/registry.ts";
import { type KlName, klNames } from "./kl/estimates.ts";
import { type PolicyLossName, policyLossNames } from "./losses/policy/registry.ts";

const advantages: Record<AdvantageName, true> = {
  gae: true,
  reinforce_plus_plus: true,
  remax: true,
  grpo: true,
  grpo_vectorized: true,
  grpo_passk: true,
  reinforce_plus_plus_baseline: true,
  rloo: true,
  rloo_vectorized: true,
  opo: true,
  gpg: true,
  gdpo: true,
  optimal_token_baseline: true,
  tir_optimal_token_baseline: true,
};

const losses: Record<PolicyLossName, true> = {
  vanilla: true,
  gspo: true,
  sapo: true,
  gpg: true,
  clip_cov: true,
  kl_cov: true,
  geo_mean: true,
  cispo: true,
  bypass_mode: true,
  dppo_tv: true,
  dppo_kl: true,
  dro: true,
};

const kls: Record<Exclude<KlName, `${string}+`>, true> = {
  kl: true,
  k1: true,
  abs: true,
  mse: true,
  k2: true,
  low_var_kl: true,
  k3: true,
};

test.each([
  ["an estimator", Object.keys(advantages), advantageNames()],
  ["a policy loss", Object.keys(losses), policyLossNames()],
  ["a KL estimate", Object.keys(kls).flatMap((name) => [name, `${name}+`]), klNames()],
])("the compiler knows every name of %s, and no other", (_, typed, registered) => {
  expect(typed).toEqual(registered);
});
