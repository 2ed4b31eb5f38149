/**
 * The parts of a transformer as functions that trace graphs. Parameters are nodes; nothing here knows a model family.
 *
 * Activations are rows [batch * time, width] throughout; attention alone sees [batch, heads, time, size].
 */
import type { Activation, Node } from "../graph/node.ts";
import * as o from "../graph/ops.ts";
import { type Dim, factorOf, over, plus, times } from "../graph/shape.ts";

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

/**
 * Groups of sequences that begin alike, each token computed once. Tokens are packed rows without padding; attention
 * sees them in two grids that do have padding: trunks [groups, trunk] hold what a group shares, branches [groups,
 * members, branch] how its members go on.
 */
export type Branches = {
  readonly groups: Dim;
  readonly members: Dim;
  readonly trunk: Dim;
  readonly branch: Dim;
  /** Tables of each token's own position, [tokens, size / 2]. */
  readonly rotation: Rotation;
  /** The token in each cell of the grids, trunks first: [cells]. Where none is, any. */
  readonly cells: Node;
  /** Where each token's cell is, [tokens]. */
  readonly places: Node;
  /** 1 where a cell holds a token, else 0: [cells, 1]. */
  readonly isCell: Node;
  /** 0 where a trunk has a token, else minus infinity: [groups, 1, 1, 1, trunk]. */
  readonly trunkMask: Node;
};

/** Causal attention of branches over their trunk and themselves, and of trunks over themselves. */
export function branching(b: Branches): Mix {
  const { groups, members, trunk, branch, rotation, trunkMask } = b;
  return ({ query, key, value }, { heads, kvHeads, headDim, scale, softcap, window }) => {
    const perKey = heads / kvHeads;
    const trunks = times(groups, trunk);
    const all = b.cells.shape[0]!;
    const turn = (x: Node) => o.reshape(o.rope(o.reshape(x, [1, ...x.shape]), rotation.cos, rotation.sin), x.shape);
    const inTrunks = (grid: Node, count: number) =>
      o.transpose(o.reshape(o.slice(grid, 0, 0, trunks), [groups, trunk, count, headDim]), [0, 2, 1, 3]);
    // [groups, kvHeads, members, count, branch, headDim]: members of a group side by side, for the trunk's products.
    const inBranches = (grid: Node, count: number) =>
      o.transpose(
        o.reshape(o.slice(grid, 0, trunks, all), [groups, members, branch, kvHeads, count, headDim]),
        [0, 3, 1, 4, 2, 5],
      );
    const [q, k, v] = [turn(query), turn(key), value].map((x) => o.rearrange(x, b.cells, b.places)) as [
      Node,
      Node,
      Node,
    ];
    const [trunkKey, trunkValue] = [inTrunks(k, kvHeads), inTrunks(v, kvHeads)];
    const ofTrunks = o.attention(inTrunks(q, heads), trunkKey, trunkValue, { scale, softcap, window });

    const whole = [groups, kvHeads, members, branch, headDim];
    const [ownKey, ownValue] = [o.reshape(inBranches(k, 1), whole), o.reshape(inBranches(v, 1), whole)];
    const queries = inBranches(q, perKey);
    const cap = (raw: Node) => (softcap === null ? raw : o.mul(o.tanh(raw), softcap));
    const alpha = scale / (softcap ?? 1);
    const count = [4, 2, 1].find((n) => factorOf(branch) % n === 0)!;
    const span = over(branch, count);
    const ofBranches = Array.from({ length: count }, (_, i) => {
      const [start, end] = [times(span, i), times(span, i + 1)];
      const part = o.slice(queries, 4, start, end); // [groups, kvHeads, members, perKey, span, headDim]
      const rows = times(perKey, span);
      const byMember = o.reshape(part, [groups, kvHeads, members, rows, headDim]);
      const byGroup = o.reshape(part, [groups, kvHeads, times(members, rows), headDim]);
      const own = cap(o.matmul(byMember, o.slice(ownKey, 3, 0, end), { transB: true, alpha }));
      const shared = cap(o.matmul(byGroup, trunkKey, { transB: true, alpha }));
      const causalOwn = o.add(
        o.reshape(own, [groups, kvHeads, members, perKey, span, end]),
        o.causalMask(span, end, { offset: start, window }),
      );
      const seen = o.add(o.reshape(shared, [groups, kvHeads, members, rows, trunk]), trunkMask);
      const weights = o.softmax(o.concat([seen, o.reshape(causalOwn, own.shape)], 4));
      const toTrunk = o.reshape(o.slice(weights, 4, 0, trunk), shared.shape);
      const toOwn = o.slice(weights, 4, trunk, plus(trunk, end));
      const mixed = o.add(
        o.reshape(o.matmul(toTrunk, trunkValue), byMember.shape),
        o.matmul(toOwn, o.slice(ownValue, 3, 0, end)),
      );
      return o.reshape(mixed, part.shape);
    });
    const width = heads * headDim;
    const rows = o.concat(
      [
        o.reshape(o.transpose(ofTrunks, [0, 2, 1, 3]), [trunks, width]),
        o.reshape(o.transpose(o.concat(ofBranches, 4), [0, 2, 4, 1, 3, 5]), [
          times(times(groups, members), branch),
          width,
        ]),
      ],
      0,
    );
    return o.rearrange(o.mul(rows, b.isCell), b.places, b.cells);
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
