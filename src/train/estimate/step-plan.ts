/**
 * What one step of a run does with models, by its config: the roles, the passes with their tokens, and what is sampled.
 * No model is opened and nothing is computed; `estimate.ts` estimates what the step costs.
 *
 * The length of responses is unknown before a run, so they are taken to be as long as the config allows.
 */
import { findAdvantage } from "../../algos/advantages/registry.ts";
import type { PartOf } from "../../config/ppo/reward-tree.ts";
import type { PpoConfig } from "../../config/ppo/schema.ts";
import { microBatching, needsReference } from "../../config/ppo/settings.ts";
import type { RewardConfig } from "../../config/reward/schema.ts";
import type { SftConfig } from "../../config/sft/schema.ts";
import type { TokenRow } from "../../engine/contract.ts";
import { type ModelConfig, withHead } from "../../models/config.ts";
import { microOf } from "../micro-batching.ts";
import { lastToken } from "../reward-scorer.ts";
import { CHECKED, isSamplerTrusted } from "../rl/measure.ts";
import type { Pass, Role, Sampling, StepPlan } from "./estimate.ts";

/** The configs of the models that a run of reinforcement learning opens. */
export type RlModels = {
  readonly actor: ModelConfig;
  readonly critic: ModelConfig | null;
  readonly rewardModels: readonly { readonly part: PartOf<"model">; readonly config: ModelConfig }[];
};

/** A step of `trainyard ppo`; `batches` are the prompts of a few steps. */
export function rlPlan(config: PpoConfig, models: RlModels, batches: readonly (readonly Int32Array[])[]): StepPlan {
  const { rollout, actor } = config.actor_rollout_ref;
  const limit = rollout.max_model_len ?? Number.POSITIVE_INFINITY;
  const episode = (prompt: Int32Array): TokenRow => {
    const response = Math.max(1, Math.min(rollout.response_length, limit - prompt.length));
    const ids = new Int32Array(prompt.length + response);
    ids.set(prompt);
    return { ids, mask: new Uint8Array(ids.length).fill(1, prompt.length) };
  };
  const steps = batches.map((prompts) => prompts.flatMap((prompt) => Array<TokenRow>(rollout.n).fill(episode(prompt))));
  const forward = (timer: string, role: string, name: Parameters<typeof microBatching>[1], rows = steps): Pass => ({
    timer,
    role,
    kind: "forward",
    batches: rows,
    times: 1,
    micro: microBatching(config, name),
  });
  const update = (role: "actor" | "critic", settings: { ppo_mini_batch_size: number; ppo_epochs: number }): Pass => {
    const parts = steps.flatMap((step) => chunks(step, settings.ppo_mini_batch_size * rollout.n));
    const times = (settings.ppo_epochs * parts.length) / steps.length;
    return { timer: `update_${role}`, role, kind: "train", batches: parts, times, micro: microBatching(config, role) };
  };
  const hasReference = needsReference(config);
  const isActor = (rollout.base_url ?? []).length === 0;
  const isTrusted = isSamplerTrusted(config, { isActor });
  const checked = steps.map((step) => step.slice(0, CHECKED));
  const roles: (Role | null)[] = [
    { name: "actor", config: models.actor, isTrained: true },
    hasReference ? { name: "reference", config: models.actor, isTrained: false } : null,
    models.critic && { name: "critic", config: withHead(models.critic, "value"), isTrained: true },
    ...models.rewardModels.map(({ part, config: model }) => ({
      name: roleName(part),
      config: scoring(model),
      isTrained: false,
    })),
  ];
  const passes: (Pass | null)[] = [
    ...models.rewardModels.map(({ part }) => forward("gen", roleName(part), part)),
    isTrusted ? forward("check", "actor", "old_log_prob", checked) : forward("old_log_prob", "actor", "old_log_prob"),
    hasReference ? forward("ref", "reference", "ref") : null,
    models.critic && forward("values", "critic", "values"),
    models.critic && update("critic", config.critic),
    update("actor", actor),
  ];
  return {
    roles: roles.filter((role) => role !== null),
    passes: passes.filter((pass) => pass !== null),
    sampling: isActor
      ? samplingOf(
          config,
          (batches[0] ?? []).map(({ length }) => length),
        )
      : [],
  };
}

/** The responses of a step, and the greedy ones that some estimators use as a baseline. */
function samplingOf(
  { actor_rollout_ref: { rollout }, algorithm }: PpoConfig,
  promptTokens: readonly number[],
): Sampling[] {
  const common = { promptTokens, responseTokens: rollout.response_length, maxSequences: rollout.max_num_seqs };
  const hasGreedy = findAdvantage(algorithm.adv_estimator).needs.includes("baselines");
  return [{ timer: "gen", ...common, n: rollout.n }, ...(hasGreedy ? [{ timer: "gen_max", ...common, n: 1 }] : [])];
}

/** A step of `trainyard sft`; `batches` are the rows of a few steps. */
export function sftPlan({ data }: SftConfig, model: ModelConfig, batches: readonly (readonly TokenRow[])[]): StepPlan {
  return {
    roles: [{ name: "model", config: model, isTrained: true }],
    passes: [{ timer: "train", role: "model", kind: "train", batches, times: 1, micro: microOf(data) }],
    sampling: [],
  };
}

/** `reward model`, or with its name where the config gives it one. */
const roleName = ({ key }: PartOf<"model">): string => ["reward model", ...key.split(".").slice(2)].join(" ");

/** A language model gets a score head. */
const scoring = (config: ModelConfig): ModelConfig => (config.head === "lm" ? withHead(config, "score") : config);

/** A step of `trainyard reward`; `batches` are both sides of the pairs of a few steps. */
export function rewardPlan(
  { data }: RewardConfig,
  model: ModelConfig,
  batches: readonly (readonly Int32Array[])[],
): StepPlan {
  const rows = batches.map((batch) => batch.map((ids): TokenRow => ({ ids, mask: lastToken(ids) })));
  const pass = { role: "model", batches: rows, times: 1, micro: microOf(data) };
  return {
    roles: [{ name: "model", config: withHead(model, "score"), isTrained: true }],
    passes: [
      { timer: "score", kind: "forward", ...pass },
      { timer: "train", kind: "train", ...pass },
    ],
    sampling: [],
  };
}

function chunks<T>(items: readonly T[], size: number): T[][] {
  const count = Math.ceil(items.length / size);
  return Array.from({ length: count }, (_, i) => items.slice(i * size, (i + 1) * size));
}
