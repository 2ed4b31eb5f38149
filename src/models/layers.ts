/**
 * A layer of a model as a value that names its parts, and what follows from it: parameters, cache and cost. Its graph
 * is built in `transformer.ts`.
 *
 * Every layer here is a residual block: attention, then feed-forward, each with a norm before it and, in some families,
 * one after it.
 */
import {
  type CacheTensor,
  type Cost,
  type CostContext,
  type LayerType,
  type ParameterSpec,
  placed,
} from "./parts/part.ts";
import {
  type Attention,
  attentionPart,
  type FeedForward,
  feedForwardPart,
  type Norm,
  normPart,
  type Position,
} from "./parts/parts.ts";

export type Layer = {
  readonly attention: Attention;
  readonly mlp: FeedForward;
  readonly norms: {
    readonly attention: Norm;
    /** After attention, before its result is added. */
    readonly attentionOut: Norm | null;
    readonly mlp: Norm;
    readonly mlpOut: Norm | null;
  };
  /** How queries and keys are rotated. Layers that rotate alike have the same value. */
  readonly position: Position;
  /** Keys seen are those with position - window < key <= position; null = all before. */
  readonly window: number | null;
};

/** What transformers calls the type of a layer. */
export const typeOf = ({ window }: Pick<Layer, "window">): LayerType =>
  window === null ? "full_attention" : "sliding_attention";

/** The parameters of layer `index`, in transformers' order. */
export function layerParameters({ attention, mlp, norms }: Layer, index: number): ParameterSpec[] {
  const [key, name] = [`layers.${index}`, `model.layers.${index}.`];
  const ofNorm = (config: Norm | null, at: string, tensor: string) =>
    config === null ? [] : placed(normPart(config).parameters(config), `${key}.${at}`, `${name}${tensor}.`);
  // The norm called `post_attention` stands before the feed-forward, except where there are norms after it, too.
  const beforeMlp = norms.attentionOut === null ? "post_attention_layernorm" : "pre_feedforward_layernorm";
  return [
    ...placed(attentionPart(attention).parameters(attention), `${key}.attention`, name),
    ...placed(feedForwardPart(mlp).parameters(mlp), `${key}.mlp`, name),
    ...ofNorm(norms.attention, "attention.norm", "input_layernorm"),
    ...ofNorm(norms.attentionOut, "attention.outNorm", "post_attention_layernorm"),
    ...ofNorm(norms.mlp, "mlp.norm", beforeMlp),
    ...ofNorm(norms.mlpOut, "mlp.outNorm", "post_feedforward_layernorm"),
  ];
}

/** What decoding keeps per token of a layer. */
export function layerCache({ attention, mlp }: Layer): readonly CacheTensor[] {
  return [...attentionPart(attention).cache(attention), ...feedForwardPart(mlp).cache(mlp)];
}

/** What one token costs in a layer. */
export function layerCost({ attention, mlp, norms }: Layer, context: CostContext): Cost {
  const ofNorms = Object.values(norms).flatMap((norm) => (norm === null ? [] : [normPart(norm).cost(norm, context)]));
  return total([
    attentionPart(attention).cost(attention, context),
    feedForwardPart(mlp).cost(mlp, context),
    ...ofNorms,
  ]);
}

/** The sum of several costs. */
export function total(costs: readonly Cost[]): Cost {
  return {
    flops: costs.reduce((sum, { flops }) => sum + flops, 0),
    activationBytes: costs.reduce((sum, { activationBytes }) => sum + activationBytes, 0),
  };
}
