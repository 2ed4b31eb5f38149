/**
 * The parts of a transformer as functions that trace graphs. Parameters are nodes; nothing here knows a model family.
 *
 * Activations are rows [batch * time, width] throughout; attention alone sees [batch, heads, time, size].
 */
import type { Activation, Node } from "../graph/node.ts";
import * as o from "../graph/ops.ts";
import { type Dim, times } from "../graph/shape.ts";

export type LinearParams = { readonly weight: Node; readonly bias?: Node | undefined };

export const linear = (x: Node, p: LinearParams): Node => o.linear(x, p.weight, p.bias);

export type NormParams = { readonly weight: Node; readonly eps: number; readonly offset: 0 | 1 };

/** RMSNorm; with offset 1 the stored weight is the distance from one (Gemma). */
export function norm(x: Node, p: NormParams): Node {
  return o.rmsNorm(x, p.offset === 0 ? p.weight : o.add(p.weight, p.offset), p.eps);
}

export type MlpParams = { readonly gate: LinearParams; readonly up: LinearParams; readonly down: LinearParams };

/** Gated feed-forward: `down(activation(gate(x)) * up(x))`. */
export function mlp(x: Node, p: MlpParams, activation: Activation): Node {
  return linear(o.gated(linear(x, p.gate), linear(x, p.up), activation), p.down);
}

export type AttentionParams = {
  readonly q: LinearParams;
  readonly k: LinearParams;
  readonly v: LinearParams;
  readonly o: LinearParams;
  readonly qNorm?: NormParams | undefined;
  readonly kNorm?: NormParams | undefined;
};

export type AttentionShape = {
  readonly batch: Dim;
  readonly time: Dim;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly scale: number;
  readonly softcap: number | null;
  readonly window: number | null;
};

export type Rotation = { readonly cos: Node; readonly sin: Node };

/** Causal self-attention with rotary positions; queries and keys are normed per head where the model has such norms. */
export function attention(x: Node, p: AttentionParams, shape: AttentionShape, rotation: Rotation): Node {
  const { batch, time, headDim, heads, kvHeads } = shape;
  const rows = times(batch, time);
  const split = (y: Node, count: number, headNorm?: NormParams) => {
    const normed = headNorm ? norm(o.reshape(y, [times(rows, count), headDim]), headNorm) : y;
    return o.transpose(o.reshape(normed, [batch, time, count, headDim]), [0, 2, 1, 3]);
  };
  const query = o.rope(split(linear(x, p.q), heads, p.qNorm), rotation.cos, rotation.sin);
  const key = o.rope(split(linear(x, p.k), kvHeads, p.kNorm), rotation.cos, rotation.sin);
  const value = split(linear(x, p.v), kvHeads);
  const { scale, softcap, window } = shape;
  const mixed = o.attention(query, key, value, { scale, softcap, window });
  return linear(o.reshape(o.transpose(mixed, [0, 2, 1, 3]), [rows, heads * headDim]), p.o);
}
