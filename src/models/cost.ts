/**
 * What a model costs per token, summed up from its parts (`parts/part.ts` says what is counted, and for what).
 */
import type { ModelConfig } from "./config.ts";
import { layerCost, total } from "./layers.ts";
import { heads } from "./parts/heads.ts";
import type { Cost, CostContext } from "./parts/part.ts";

export type ModelCost = {
  /** All layers together. */
  readonly layers: Cost;
  /** The layer that takes the most memory. */
  readonly largestLayer: Cost;
  /** The head, for a token that it reads. */
  readonly head: Cost;
};

export function modelCost({ layers, head, headConfig }: ModelConfig, context: CostContext): ModelCost {
  const costs = layers.map((layer) => layerCost(layer, context));
  return {
    layers: total(costs),
    largestLayer: costs.reduce((most, cost) => (cost.activationBytes > most.activationBytes ? cost : most)),
    head: heads[head].cost(headConfig, context),
  };
}
