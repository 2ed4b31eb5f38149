/**
 * The ways in which queries mix values: over padded rows, over sequences that share a prefix, and over a cache. They
 * know the sizes of heads and no model; a kind of attention (`models/parts/`) projects and calls one of them.
 *
 * Activations are rows [batch * time, width] everywhere else; only here do they become [batch, heads, time, size].
 */
import type { Node } from "../graph/node.ts";
import * as o from "../graph/ops.ts";
import { type Dim, factorOf, over, plus, times } from "../graph/shape.ts";

export type AttentionShape = {
  readonly batch: Dim;
  readonly time: Dim;
  readonly heads: number;
  readonly kvHeads: number;
  /** The size of a head of queries and keys. */
  readonly headDim: number;
  /** The size of a head of values, and of the result. */
  readonly valueDim: number;
  readonly scale: number;
  readonly softcap: number | null;
  readonly window: number | null;
};

/** Rows with all heads side by side. */
export type Projected = {
  readonly query: Node; // [rows, heads * headDim]
  readonly key: Node; // [rows, kvHeads * headDim]
  readonly value: Node; // [rows, kvHeads * valueDim]
};
/** How a query's heads mix the values that it sees: the result is [rows, heads * valueDim]. */
export type Mix = (projected: Projected, shape: AttentionShape) => Node;

/** Tables of cosines and sines, [time, headDim / 2] unless said otherwise. */
export type Rotation = { readonly cos: Node; readonly sin: Node };

/** Causal attention within rows that begin at position 0, with rotary positions. */
export function causal(rotation: Rotation): Mix {
  return ({ query, key, value }, shape) => {
    const { batch, time, headDim, valueDim, heads, kvHeads, scale, softcap, window } = shape;
    const split = (y: Node, count: number, size: number) =>
      o.transpose(o.reshape(y, [batch, time, count, size]), [0, 2, 1, 3]);
    const rotated = (y: Node, count: number) => o.rope(split(y, count, headDim), rotation.cos, rotation.sin);
    const attrs = { scale, softcap, window };
    const mixed = o.attention(rotated(query, heads), rotated(key, kvHeads), split(value, kvHeads, valueDim), attrs);
    return o.reshape(o.transpose(mixed, [0, 2, 1, 3]), [query.shape[0]!, heads * valueDim]);
  };
}

/**
 * Groups of sequences that share a prefix, each token computed once. Tokens are packed rows without padding; attention
 * sees them in two grids that do have padding: trunks [groups, trunk] hold the shared prefix of a group, branches
 * [groups, members, branch] the rest of its members.
 */
export type Branches = {
  readonly groups: Dim;
  readonly members: Dim;
  readonly trunk: Dim;
  readonly branch: Dim;
  /** Tables of each token's own position, [tokens, size / 2]. */
  readonly rotation: Rotation;
  /** The token in each cell of the grids, trunks first: [cells]. Any token where a cell is empty. */
  readonly cells: Node;
  /** The cell of each token, [tokens]. */
  readonly places: Node;
  /** 1 where a cell holds a token, else 0: [cells, 1]. */
  readonly isCell: Node;
  /** 0 where a trunk has a token, else minus infinity: [groups, 1, 1, 1, trunk]. */
  readonly trunkMask: Node;
};

/** Causal attention of branches over their trunk and themselves, and of trunks over themselves. */
export function branching(b: Branches): Mix {
  return ({ query, key, value }, shape) => {
    const { heads, kvHeads, headDim, valueDim, scale, softcap, window } = shape;
    const inCells = (x: Node) => o.rearrange(x, b.cells, b.places);
    const [q, k, v] = [inCells(rotatedRows(query, b)), inCells(rotatedRows(key, b)), inCells(value)] as const;
    const trunkKey = trunksOf(k, kvHeads, headDim, b);
    const trunkValue = trunksOf(v, kvHeads, valueDim, b);
    const ofTrunks = o.attention(trunksOf(q, heads, headDim, b), trunkKey, trunkValue, { scale, softcap, window });

    const own = (grid: Node, size: number) =>
      o.reshape(branchesOf(grid, { kvHeads, count: 1, size }, b), [b.groups, kvHeads, b.members, b.branch, size]);
    const seen: Seen = { trunkKey, trunkValue, ownKey: own(k, headDim), ownValue: own(v, valueDim) };
    const queries = branchesOf(q, { kvHeads, count: heads / kvHeads, size: headDim }, b);
    const count = [4, 2, 1].find((n) => factorOf(b.branch) % n === 0)!;
    const span = over(b.branch, count);
    const ofBranches = Array.from({ length: count }, (_, i) =>
      branchPart(queries, seen, { start: times(span, i), end: times(span, i + 1), span }, { shape, b }),
    );
    const rows = o.concat([rowsOfTrunks(ofTrunks, shape, b), rowsOfBranches(o.concat(ofBranches, 4), shape, b)], 0);
    return o.rearrange(o.mul(rows, b.isCell), b.places, b.cells);
  };
}

/** Each token rotated to its own position. */
function rotatedRows(x: Node, { rotation }: Branches): Node {
  return o.reshape(o.rope(o.reshape(x, [1, ...x.shape]), rotation.cos, rotation.sin), x.shape);
}

/** The trunks of a grid, [groups, heads, trunk, size]. */
function trunksOf(grid: Node, heads: number, size: number, { groups, trunk }: Branches): Node {
  const cells = o.slice(grid, 0, 0, times(groups, trunk));
  return o.transpose(o.reshape(cells, [groups, trunk, heads, size]), [0, 2, 1, 3]);
}

/** The branches of a grid, [groups, kvHeads, members, count, branch, size]: a group's members lie side by side. */
function branchesOf(
  grid: Node,
  { kvHeads, count, size }: { kvHeads: number; count: number; size: number },
  { groups, members, trunk, branch, cells }: Branches,
): Node {
  const own = o.slice(grid, 0, times(groups, trunk), cells.shape[0]!);
  return o.transpose(o.reshape(own, [groups, members, branch, kvHeads, count, size]), [0, 3, 1, 4, 2, 5]);
}

/** What branches attend to: their group's trunk [groups, kvHeads, trunk, size], and themselves, one grid per member. */
type Seen = { readonly trunkKey: Node; readonly trunkValue: Node; readonly ownKey: Node; readonly ownValue: Node };
type Span = { readonly start: Dim; readonly end: Dim; readonly span: Dim };

/** Positions `start` to `end` of all branches over their trunks and over themselves up to `end`. */
function branchPart(
  queries: Node,
  { trunkKey, trunkValue, ownKey, ownValue }: Seen,
  { start, end, span }: Span,
  { shape, b: { groups, members, trunk, trunkMask } }: { shape: AttentionShape; b: Branches },
): Node {
  const { heads, kvHeads, headDim, valueDim, scale, softcap, window } = shape;
  const perKey = heads / kvHeads;
  const rows = times(perKey, span);
  const cap = (raw: Node) => (softcap === null ? raw : o.mul(o.tanh(raw), softcap));
  const alpha = scale / (softcap ?? 1);
  const part = o.slice(queries, 4, start, end); // [groups, kvHeads, members, perKey, span, headDim]
  const byMember = o.reshape(part, [groups, kvHeads, members, rows, headDim]);
  const byGroup = o.reshape(part, [groups, kvHeads, times(members, rows), headDim]);

  const own = cap(o.matmul(byMember, o.slice(ownKey, 3, 0, end), { transB: true, alpha }));
  const shared = cap(o.matmul(byGroup, trunkKey, { transB: true, alpha }));
  const causalOwn = o.add(
    o.reshape(own, [groups, kvHeads, members, perKey, span, end]),
    o.causalMask(span, end, { offset: start, window }),
  );
  const masked = o.add(o.reshape(shared, [groups, kvHeads, members, rows, trunk]), trunkMask);
  const weights = o.softmax(o.concat([masked, o.reshape(causalOwn, own.shape)], 4));

  const toTrunk = o.reshape(o.slice(weights, 4, 0, trunk), shared.shape);
  const toOwn = o.slice(weights, 4, trunk, plus(trunk, end));
  const mixed = o.add(
    o.reshape(o.matmul(toTrunk, trunkValue), [groups, kvHeads, members, rows, valueDim]),
    o.matmul(toOwn, o.slice(ownValue, 3, 0, end)),
  );
  return o.reshape(mixed, [groups, kvHeads, members, perKey, span, valueDim]);
}

/** Heads of trunks as rows of cells. */
function rowsOfTrunks(mixed: Node, { heads, valueDim }: AttentionShape, { groups, trunk }: Branches): Node {
  return o.reshape(o.transpose(mixed, [0, 2, 1, 3]), [times(groups, trunk), heads * valueDim]);
}

/** Heads of branches as rows of cells. */
function rowsOfBranches(mixed: Node, { heads, valueDim }: AttentionShape, { groups, members, branch }: Branches): Node {
  const cells = times(times(groups, members), branch);
  return o.reshape(o.transpose(mixed, [0, 2, 4, 1, 3, 5]), [cells, heads * valueDim]);
}

/** The size of a head in a cache: the kernel needs a multiple of sixteen. */
export const cachedHeadDim = (headDim: number): number => Math.ceil(headDim / 16) * 16;

/**
 * Causal attention over a cache. `onAttended` gets the `cachedAttention` node, from which the new cache comes. Heads
 * whose size is not that of the cache get zeros behind each half. The zeros add nothing to a product, and pairs stay
 * pairs for the rotation.
 */
export function cached(cache: o.Cache, onAttended: (attended: Node) => void): Mix {
  return ({ query, key, value }, { batch, time, heads, kvHeads, headDim, valueDim, scale, softcap, window }) => {
    const half = Number(cache.key.shape[3]) / 2;
    const widen = (x: Node, count: number, size: number) => {
      const halves = o.reshape(x, [times(batch, time), 2 * count, size / 2]);
      return o.reshape(o.pad(halves, 2, 0, half), [batch, time, 2 * count * half]);
    };
    const attrs = { scale, softcap, window, heads, kvHeads, cache };
    const attended = o.cachedAttention(
      widen(query, heads, headDim),
      widen(key, kvHeads, headDim),
      widen(value, kvHeads, valueDim),
      attrs,
    );
    onAttended(attended);
    const halves = o.reshape(attended, [times(batch, time), 2 * heads, half]);
    return o.reshape(o.slice(halves, 2, 0, valueDim / 2), [query.shape[0]!, heads * valueDim]);
  };
}
