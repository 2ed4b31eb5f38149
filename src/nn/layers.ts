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

/** Rows of all heads side by side: query [rows, heads * headDim], key and value [rows, kvHeads * headDim]. */
export type Projected = { readonly query: Node; readonly key: Node; readonly value: Node };
/** How a query's heads mix the values it may see: the result is like the query. */
export type Mix = (projected: Projected, shape: AttentionShape) => Node;

/** Self-attention; queries and keys are normed per head where the model has such norms. */
export function attention(x: Node, p: AttentionParams, shape: AttentionShape, mix: Mix): Node {
  const query = normHeads(linear(x, p.q), shape.headDim, p.qNorm);
  const key = normHeads(linear(x, p.k), shape.headDim, p.kNorm);
  return linear(mix({ query, key, value: linear(x, p.v) }, shape), p.o);
}

function normHeads(x: Node, headDim: number, p: NormParams | undefined): Node {
  if (p === undefined) return x;
  const [rows, columns] = x.shape as [Dim, number]; // made by `linear` from a weight of known width
  return o.reshape(norm(o.reshape(x, [times(rows, columns / headDim), headDim]), p), x.shape);
}

export type Rotation = { readonly cos: Node; readonly sin: Node };

/** Causal attention within rows that begin at position 0, with rotary positions. */
export function causal(rotation: Rotation): Mix {
  return ({ query, key, value }, shape) => {
    const { batch, time, headDim, heads, kvHeads, scale, softcap, window } = shape;
    const split = (y: Node, count: number) => o.transpose(o.reshape(y, [batch, time, count, headDim]), [0, 2, 1, 3]);
    const turned = (y: Node, count: number) => o.rope(split(y, count), rotation.cos, rotation.sin);
    const attrs = { scale, softcap, window };
    const mixed = o.attention(turned(query, heads), turned(key, kvHeads), split(value, kvHeads), attrs);
    return o.reshape(o.transpose(mixed, [0, 2, 1, 3]), query.shape);
  };
}

/** The size of a head in a cache: the kernel wants whole sixteens. */
export const cachedHeadDim = (headDim: number): number => Math.ceil(headDim / 16) * 16;

/**
 * Causal attention over a cache. `onAttended` gets the `cachedAttention` node, from which the new cache comes. Heads
 * that are not whole sixteens get zeros behind each half, which add nothing to a product and stay pairs for the
 * rotation.
 */
export function cached(cache: o.Cache, onAttended: (attended: Node) => void): Mix {
  return ({ query, key, value }, { batch, time, heads, kvHeads, headDim, scale, softcap, window }) => {
    const half = headDim / 2;
    const wide = cachedHeadDim(headDim) / 2;
    const widen = (x: Node, count: number) => {
      const halves = o.reshape(x, [times(batch, time), 2 * count, half]);
      return o.reshape(o.pad(halves, 2, 0, wide), [batch, time, 2 * count * wide]);
    };
    const attrs = { scale, softcap, window, heads, kvHeads, cache };
    const attended = o.cachedAttention(widen(query, heads), widen(key, kvHeads), widen(value, kvHeads), attrs);
    onAttended(attended);
    const halves = o.reshape(attended, [times(batch, time), 2 * heads, wide]);
    return o.reshape(o.slice(halves, 2, 0, half), query.shape);
  };
}
