/**
 * Sequences that begin alike, such as the responses to one prompt: what they share is computed once, and no token that
 * nobody reads is computed at all. The results are those of the sequences one by one, up to rounding.
 *
 * A family is a trunk, the tokens shared, and its members. A token that counts is predicted from the one before it, so a
 * member's branch begins with the token before its first counted one, and ends before its last.
 */
import type { ModelConfig } from "../../models/config.ts";
import type { HeadName, MicroBatching, TokenRow } from "../contract.ts";
import { type Counted, countedArrays, type Layout, type LayoutOptions, partsFor } from "./layout.ts";

/** What a row computes: its first `trunk` tokens with its family, and from there on those before `end` by itself. */
export type Member = { readonly row: number; readonly trunk: number; readonly end: number };
/** Members of one trunk. */
export type Family = readonly Member[];

/** Trunks shorter than this are not worth the sharing. */
const SHORTEST_TRUNK = 8;

const lengthOf = ({ trunk, end }: Member): number => end - trunk;
const trunkOf = (family: Family): number => family[0]!.trunk;
const longestBranch = (family: Family): number => Math.max(...family.map(lengthOf));
/** Tokens that a family computes. */
export const tokensOf = (family: Family): number => trunkOf(family) + family.reduce((sum, m) => sum + lengthOf(m), 0);

/** The rows that go in families of two or more, and those that do not. */
export function families(
  rows: readonly TokenRow[],
  indices: readonly number[],
  { heads, config }: { heads: readonly HeadName[]; config: ModelConfig },
): { readonly shared: readonly Family[]; readonly alone: readonly number[] } {
  // A score is read from the token itself, and a window that ends within a sequence would see parts of trunks.
  const longest = Math.max(0, ...indices.map((i) => rows[i]!.ids.length));
  const isWindowed = config.windows.some((window) => window !== null && window < longest);
  if (heads.includes("scores") || isWindowed) return { shared: [], alone: indices };
  const byTrunk = new Map<string, Member[]>();
  const alone: number[] = [];
  for (const row of indices) {
    const member = memberOf(rows[row]!, row);
    if (member === null || member.trunk < SHORTEST_TRUNK) {
      alone.push(row);
      continue;
    }
    const key = rows[row]!.ids.subarray(0, member.trunk).join();
    byTrunk.set(key, [...(byTrunk.get(key) ?? []), member]);
  }
  const shared: Family[] = [];
  for (const family of byTrunk.values()) {
    if (family.length > 1) shared.push(family);
    else alone.push(family[0]!.row);
  }
  return { shared, alone: alone.sort((a, b) => a - b) };
}

function memberOf({ ids, mask }: TokenRow, row: number): Member | null {
  let first = 1;
  while (first < ids.length && !mask[first]) first++;
  let last = ids.length - 1;
  while (last >= first && !mask[last]) last--;
  return last < first ? null : { row, trunk: first - 1, end: last };
}

/** Whether the grids of attention would be mostly padding. */
const MOST_PADDING = 0.5;

/** Families in micro-batches of at most so many rows or tokens; a family that is larger is divided. */
export function cutFamilies(
  shared: readonly Family[],
  micro: MicroBatching,
  mostTokens: number,
): (readonly Family[])[] {
  const maxRows = "rows" in micro ? micro.rows : Infinity;
  const maxTokens = "maxTokens" in micro ? Math.min(micro.maxTokens, mostTokens) : mostTokens;
  const whole = shared.flatMap((family) => divided(family, maxRows, maxTokens));
  whole.sort((a, b) => longestBranch(b) - longestBranch(a) || a[0]!.row - b[0]!.row);
  const batches: Family[][] = [];
  let [rows, tokens] = [0, 0];
  for (const family of whole) {
    const batch = batches.at(-1);
    const isFull = rows + family.length > maxRows || tokens + tokensOf(family) > maxTokens;
    if (batch === undefined || isFull || paddingOf([...batch, family]) > MOST_PADDING) {
      batches.push([family]);
      [rows, tokens] = [family.length, tokensOf(family)];
    } else {
      batch.push(family);
      rows += family.length;
      tokens += tokensOf(family);
    }
  }
  return batches;
}

/** The share of the branches' grid that holds no token, beyond what its widest family alone would leave empty. */
function paddingOf(batch: readonly Family[]): number {
  const members = Math.max(...batch.map((family) => family.length));
  const branch = Math.max(...batch.map(longestBranch));
  const used = batch.reduce((sum, family) => sum + family.length * longestBranch(family), 0);
  return 1 - used / (batch.length * members * branch);
}

/** A family in parts that are small enough, its members in order of length. */
function divided(family: Family, maxRows: number, maxTokens: number): Family[] {
  if (family.length <= maxRows && tokensOf(family) <= maxTokens) return [family];
  const sorted = [...family].sort((a, b) => lengthOf(b) - lengthOf(a) || a.row - b.row);
  const parts: Member[][] = [];
  for (const member of sorted) {
    const part = parts.at(-1);
    const isFull = part === undefined || part.length >= maxRows || tokensOf([...part, member]) > maxTokens;
    if (isFull) parts.push([member]);
    else part.push(member);
  }
  return parts;
}

/** Lay out families as packed tokens and the grids of attention. */
export function layOutBranches(rows: readonly TokenRow[], batch: readonly Family[], options: LayoutOptions): Layout {
  const { extra, scratch, config } = options;
  const all = batch.flat();
  const groups = batch.length;
  const members = Math.max(...batch.map((family) => family.length));
  const trunks = partsFor(Math.max(...batch.map(trunkOf)));
  const branches = partsFor(Math.max(...batch.map(longestBranch)));
  const [trunk, branch] = [trunks.time, branches.time];
  const cells = groups * trunk + groups * members * branch;
  const tokens = batch.reduce((sum, family) => sum + tokensOf(family), 0);
  // The grid of the loss begins at each row's first counted token.
  const length = Math.max(...all.map(lengthOf));

  const longest = Math.max(...all.map(({ row }) => rows[row]!.ids.length));
  const tables = options.tables(longest, longest);
  const half = config.headDim / 2;
  const ids = scratch.ints("ids", tokens);
  const cos = scratch.floats("rope.cos", tokens * half);
  const sin = scratch.floats("rope.sin", tokens * half);
  const cellOf = scratch.ints("cell_of", tokens);
  const tokenIn = scratch.ints("cells", cells).fill(0);
  const isCell = scratch.floats("is_cell", cells).fill(0);
  const trunkMask = scratch.floats("trunk_mask", groups * trunk).fill(-Infinity);
  let token = 0;
  const add = (id: number, position: number, cell: number) => {
    ids[token] = id;
    cos.set(tables.cos.subarray(position * half, (position + 1) * half), token * half);
    sin.set(tables.sin.subarray(position * half, (position + 1) * half), token * half);
    cellOf[token] = cell;
    tokenIn[cell] = token;
    isCell[cell] = 1;
    token++;
  };
  const counted: Counted[] = [];
  const starts: { row: number; place: number; from: number; to: number }[] = [];
  batch.forEach((family, g) => {
    const shared = rows[family[0]!.row]!.ids;
    for (let t = 0; t < trunkOf(family); t++) add(shared[t]!, t, g * trunk + t);
    trunkMask.fill(0, g * trunk, g * trunk + trunkOf(family));
    family.forEach(({ row, trunk: from, end }, m) => {
      const own = rows[row]!;
      const place = starts.length * length;
      starts.push({ row, place, from: from + 1, to: end + 1 });
      for (let t = from; t < end; t++) {
        const at = t + 1; // the token that is predicted here
        if (own.mask[at]) counted.push({ row, at, position: token, place: place + t - from });
        add(own.ids[t]!, t, groups * trunk + (g * members + m) * branch + t - from);
      }
    });
  });
  const given = { rows, tokens, cells: starts.length * length, starts, extra, scratch };
  const packed = { ids, cells: tokenIn, cell_of: cellOf, is_cell: isCell, trunk_mask: trunkMask };
  return {
    form: { kind: "branches", trunkParts: trunks.parts, branchParts: branches.parts },
    bindings: {
      groups,
      members,
      trunkSpan: trunks.span,
      branchSpan: branches.span,
      tokens,
      rows: starts.length,
      length,
      n: counted.length,
    },
    arrays: { ...packed, "rope.cos": cos, "rope.sin": sin, ...countedArrays(counted, given) },
    owners: counted,
  };
}
