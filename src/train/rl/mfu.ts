/**
 * Model FLOPs utilisation: the operations that a pass needs, per second, as a share of the machine's peak. The peak is
 * that of a plain product of matrices, measured once per run; verl takes it from a table of GPUs.
 *
 * Operations are counted as verl counts them: every sequence in full, even where a common prompt is computed once, half of
 * all pairs for attention, and three times a forward pass for a gradient. Departure: the head counts for response tokens
 * only, since it is computed for no others.
 */
import type { PpoConfig } from "../../config/ppo/schema.ts";
import type { Model } from "../../engine/contract.ts";
import type { AnyModelConfig, ModelConfig } from "../../models/config.ts";
import { modelCost } from "../../models/cost.ts";
import type { RlContext } from "./context.ts";
import { type Episode, responseLength } from "./episode.ts";

const GRADIENT = 3;

/** `perf/mfu/*` of the passes that a step made; nothing where the peak or the cost of the model is not known. */
export function mfuMetrics(
  { config, roles, peak }: Pick<RlContext, "config" | "roles" | "peak">,
  episodes: readonly Episode[],
  seconds: Readonly<Record<string, number>>,
): Record<string, number> {
  if (peak === null) return {};
  const metrics: Record<string, number> = {};
  for (const { name, section, model, times } of passesOf(config, roles)) {
    const duration = seconds[section];
    if (model === undefined || duration === undefined || !(duration > 0) || !hasCost(model.config)) continue;
    metrics[`perf/mfu/${name}`] = (times * forwardOperations(model.config, episodes)) / duration / peak;
  }
  return metrics;
}

type Pass = {
  readonly name: string;
  readonly section: string;
  readonly model: Model | undefined;
  readonly times: number;
};

const passesOf = (config: PpoConfig, { actor, critic }: RlContext["roles"]): readonly Pass[] => [
  { name: "actor_infer", section: "old_log_prob", model: actor, times: 1 },
  {
    name: "critic",
    section: "update_critic",
    model: critic,
    times: GRADIENT * config.critic.ppo_epochs,
  },
  {
    name: "actor",
    section: "update_actor",
    model: actor,
    times: GRADIENT * config.actor_rollout_ref.actor.ppo_epochs,
  },
];

/** A family that loads here states what it costs; one that only other engines know does not. */
const hasCost = (config: AnyModelConfig): config is ModelConfig => "layers" in config;

function forwardOperations(config: ModelConfig, episodes: readonly Episode[]): number {
  let total = 0;
  for (const episode of episodes) {
    let head = 0;
    for (const { ids } of episode.ledgers) {
      const cost = modelCost(config, { use: "forward", length: ids.length, keys: ids.length / 2 });
      total += ids.length * cost.layers.flops;
      head = cost.head.flops;
    }
    total += responseLength(episode) * head;
  }
  return total;
}
