/**
 * Golden cases of topic `advantages`: every estimator's advantages and returns.
 *
 * Two departures stand between verl's numbers and ours. Positions outside the response mask are undefined in verl (gae,
 * remax and others leave numbers there) and 0 in ours, so 0 is expected. And where a batch of fewer than two tokens
 * should be whitened verl raises; ours leaves it unwhitened, so that only finite numbers are asked for. Whitening takes
 * the mean, which verl divides by the count plus 1e-8; where all advantages are equal this is all that is left of them.
 */
import { z } from "zod";
import type { AdvantageInput, AdvantageSettings } from "../../src/algos/advantages/estimator.ts";
import { advantageNames, findAdvantage } from "../../src/algos/advantages/registry.ts";
import type { Tree } from "../../src/util/field.ts";
import { check, type GoldenCase } from "./compare.ts";
import { defaultSettings } from "./settings.ts";

const Rows = z.array(z.array(z.number()));
const Config = z.object({
  gamma: z.number().optional(),
  lam: z.number().optional(),
  norm_adv_by_std_in_grpo: z.boolean().optional(),
  gdpo_reward_keys: z.array(z.string()).nullish(),
  gdpo_reward_weights: z.array(z.number()).nullish(),
});
const Inputs = Config.extend({
  token_level_rewards: Rows,
  response_mask: Rows,
  index: z.array(z.union([z.string(), z.number()])).default([]),
  values: Rows.nullish(),
  reward_baselines: z.array(z.number()).nullish(),
  reward_components: z.record(z.string(), z.array(z.number())).nullish(),
  old_log_probs: Rows.nullish(),
  sum_pi_squared: Rows.nullish(),
  rollout_is_weights: Rows.nullish(),
  handle_zero_tail: z.boolean().optional(),
  config: Config.nullish(),
});
type Inputs = z.infer<typeof Inputs>;
const AnyRows = z.array(z.array(z.union([z.number(), z.literal("not finite")])));
const Outputs = z.object({ advantages: AnyRows, returns: AnyRows });
/** Estimators that whiten over the batch. */
const whitening = ["gae", "reinforce_plus_plus", "reinforce_plus_plus_baseline", "gdpo"];

/** What differs from the golden outputs; empty when nothing does. */
export async function checkAdvantages(golden: GoldenCase): Promise<string[]> {
  const name = golden.function ?? golden.name.replace(/\/.*/, "");
  if (!advantageNames().includes(name)) return [`${golden.name}: there is no check for this case`];
  const inputs = Inputs.parse(golden.inputs);
  const compute = () => findAdvantage(name).compute(inputOf(inputs), settingsOf(inputs, golden.version));
  const outputs = expected(golden, name, inputs.response_mask);
  return check({ ...golden, outputs }, compute, () => (whitening.includes(name) && isFlat(outputs) ? 0.02 : 0));
}

function inputOf(inputs: Inputs): AdvantageInput {
  return {
    rewards: inputs.token_level_rewards,
    mask: inputs.response_mask,
    groups: inputs.index.map((label) => JSON.stringify(label)), // 1 and "1" are two groups
    ...(inputs.values && { values: inputs.values }),
    ...(inputs.reward_baselines && { baselines: inputs.reward_baselines }),
    ...(inputs.reward_components && { components: inputs.reward_components }),
    ...(inputs.old_log_probs && { oldLogprobs: inputs.old_log_probs }),
    ...(inputs.sum_pi_squared && { sumPiSquared: inputs.sum_pi_squared }),
    ...(inputs.rollout_is_weights && { rolloutWeights: inputs.rollout_is_weights }),
  };
}

function settingsOf(inputs: Inputs, version = ""): AdvantageSettings<Tree> {
  const { advantage: defaults } = defaultSettings;
  const { gamma, lam, norm_adv_by_std_in_grpo, gdpo_reward_keys, gdpo_reward_weights } = {
    ...inputs,
    ...inputs.config,
  };
  return {
    ...defaults,
    gamma: gamma ?? defaults.gamma,
    lam: lam ?? defaults.lam,
    norm_adv_by_std_in_grpo: norm_adv_by_std_in_grpo ?? defaults.norm_adv_by_std_in_grpo,
    version: /^0\.[0-8]\b/.test(version) ? "0.7" : "0.9",
    ...(gdpo_reward_keys && { gdpo_reward_keys }),
    ...(gdpo_reward_weights && { gdpo_reward_weights }),
    ...(inputs.handle_zero_tail !== undefined && { handle_zero_tail: inputs.handle_zero_tail }),
  };
}

/** verl's outputs without what it leaves at masked positions; nothing where it cannot whiten. */
function expected({ outputs }: GoldenCase, name: string, mask: number[][]): unknown {
  const given = Outputs.safeParse(outputs);
  const count = mask.flat().filter((counts) => counts !== 0).length;
  if (!given.success) return whitening.includes(name) && count < 2 ? {} : outputs;
  const unmasked = (rows: (number | string)[][]) =>
    rows.map((row, i) => row.map((value, t) => (mask[i]![t] === 0 ? 0 : value)));
  return { advantages: unmasked(given.data.advantages), returns: unmasked(given.data.returns) };
}

/** Whether the advantages hardly differ, where whitening makes them numbers near 0. */
function isFlat(outputs: unknown): boolean {
  const { data } = Outputs.safeParse(outputs);
  const values = data?.advantages.flat().filter((value) => typeof value === "number") ?? [];
  return Math.max(...values) - Math.min(...values) < 0.1;
}
