/**
 * Reward models with workers of their own on Ray: the keys of their pool, in verl's places, and what is read from them.
 *
 * As in verl, the pool is separate from the workers that train, and `nnodes` has to be set. The default of
 * `n_gpus_per_node` is that of the trainer, where verl has 8.
 */
import type { RayEngineOptions } from "../../engine/ray/engine.ts";
import { UserError } from "../../util/errors.ts";
import { bool, field, int, orNull } from "../../util/field.ts";

/** Keys of the pool, below `reward_model`. In 0.9's files these are null. */
export const rewardPoolKeys = {
  enable_resource_pool: field(
    orNull(bool, false),
    false,
    "Give reward models workers of their own, beside those that train.",
  ),
  nnodes: field(orNull(int(0), 0), 0, "Nodes with such workers."),
  n_gpus_per_node: field(
    orNull(int(1), 1),
    "${trainer.n_gpus_per_node}",
    "Such workers on each node: GPUs, or with trainer.device=cpu processes.",
  ),
};

type Config = {
  readonly reward_model?:
    | {
        readonly enable?: boolean | undefined;
        readonly enable_resource_pool?: boolean | undefined;
        readonly nnodes?: number | undefined;
        readonly n_gpus_per_node?: number | undefined;
      }
    | undefined;
  readonly reward?:
    | { readonly sources?: Readonly<Record<string, readonly { readonly use: string }[]>> | null | undefined }
    | undefined;
};

/** The name of the pool, as messages have it: `workers of the reward model`. */
const REWARD_POOL = "reward model";

/** Whether a run opens a reward model. */
function hasRewardModel({ reward_model: model, reward }: Config): boolean {
  const entries = reward?.sources && Object.values(reward.sources).flat();
  return entries ? entries.some(({ use }) => use === "model") : (model?.enable ?? false);
}

/** The pools beside the workers that train. */
export function poolsOf(config: Config): NonNullable<RayEngineOptions["pools"]> {
  const { enable_resource_pool: isApart, nnodes: nodes = 0, n_gpus_per_node: perNode = 1 } = config.reward_model ?? {};
  return isApart && hasRewardModel(config) ? { [REWARD_POOL]: { nodes, perNode } } : {};
}

/** How many workers these have in all. */
export function poolWorkers(config: Config): number {
  return Object.values(poolsOf(config)).reduce((sum, { nodes, perNode }) => sum + nodes * perNode, 0);
}

/** The part of a reward model's spec that says whose workers hold it; all reward models share a pool. */
export function rewardPlace(config: Config): { readonly pool?: string } {
  return REWARD_POOL in poolsOf(config) ? { pool: REWARD_POOL } : {};
}

/** Why the keys of the pool mean nothing in a run; null where they do. */
export function whyNoPool(config: Config): string | null {
  const isApart = config.reward_model?.enable_resource_pool;
  if (isApart === undefined) return null; // another engine, which has its own message
  if (!hasRewardModel(config))
    return "no reward model scores (`reward_model.enable`, or `use: model` in `reward.sources`)";
  return isApart ? null : "`reward_model.enable_resource_pool` is false";
}

/** Refuse a pool without nodes, as verl does. */
export function checkPools(config: Config): void {
  if (poolsOf(config)[REWARD_POOL]?.nodes !== 0) return;
  throw new UserError(
    "`reward_model.enable_resource_pool` is true, and `reward_model.nnodes` is 0: the reward model would have no worker. " +
      "Set reward_model.nnodes to the number of nodes, for example 1, and reward_model.n_gpus_per_node to the workers on each.",
  );
}
