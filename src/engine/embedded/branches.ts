/**
 * Sequences that share a prefix, such as the responses to one prompt: the prefix is computed once, and tokens that are
 * not needed are not computed. The results are those of the sequences one by one, up to rounding.
 *
 * A prefix group is a trunk (the shared tokens) and its members. A token that counts is predicted from the one before
 * it, so a member's branch begins with the token before its first counted one, and ends before its last.
 */
import type { ModelConfig } from "../../models/config.ts";
import type { RotationTables } from "../../models/parts/part.ts";
import type { HeadName, MicroBatching, TokenRow } from "../contract.ts";
import { type Counted, countedArrays, type Layout, type LayoutOptions, partsFor } from "./layout.ts";
import { rotationArrays, rotationNames } from "./rotations.ts";
import type { Scratch } from "./scratch.ts";

/** What is computed of a row: its first `trunk` tokens with its group, and those from there to `end` for it alone. */
export type Member = { readonly row: number; readonly trunk: number; readonly end: number };
/** Rows that share a prefix: the members of one trunk. */
export type PrefixGroup = readonly Member[];

/** Sharing a shorter trunk does not save time. */
const SHORTEST_TRUNK = 8;

const lengthOf = ({ trunk, end }: Member): number => end - trunk;
const trunkOf = (group: PrefixGroup): number => group[0]!.trunk;
const longestBranch = (group: PrefixGroup): number => Math.max(...group.map(lengthOf));
/** Tokens that are computed for a group. */
export const tokensInGroup = (group: PrefixGroup): number =>
  trunkOf(group) + group.reduce((sum, member) => sum + lengthOf(member), 0);

/** The rows that form groups of two or more, and the other rows. */
export function prefixGroups(
  rows: readonly TokenRow[],
  indices: readonly number[],
  { heads, config }: { heads: readonly HeadName[]; config: ModelConfig },
): { readonly shared: readonly PrefixGroup[]; readonly alone: readonly number[] } {
  // A score is read from the token itself, and a window that is shorter than a sequence would see a part of a trunk.
  const longest = Math.max(0, ...indices.map((i) => rows[i]!.ids.length));
  const isWindowed = config.layers.some(({ window }) => window !== null && window < longest);
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
  const shared: PrefixGroup[] = [];
  for (const group of byTrunk.values()) {
    if (group.length > 1) shared.push(group);
    else alone.push(group[0]!.row);
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

/** Grids of attention with a larger share of padding are split. */
const MOST_PADDING = 0.5;

/** Groups in micro-batches up to the limits of rows and tokens; a group that is larger is divided. */
export function cutGroups(
  shared: readonly PrefixGroup[],
  micro: MicroBatching,
  mostTokens: number,
): (readonly PrefixGroup[])[] {
  const maxRows = "rows" in micro ? micro.rows : Infinity;
  const maxTokens = "maxTokens" in micro ? Math.min(micro.maxTokens, mostTokens) : mostTokens;
  const whole = shared.flatMap((group) => divided(group, maxRows, maxTokens));
  whole.sort((a, b) => longestBranch(b) - longestBranch(a) || a[0]!.row - b[0]!.row);
  const batches: PrefixGroup[][] = [];
  let [rows, tokens] = [0, 0];
  for (const group of whole) {
    const batch = batches.at(-1);
    const isFull = rows + group.length > maxRows || tokens + tokensInGroup(group) > maxTokens;
    if (batch === undefined || isFull || paddingOf([...batch, group]) > MOST_PADDING) {
      batches.push([group]);
      [rows, tokens] = [group.length, tokensInGroup(group)];
    } else {
      batch.push(group);
      rows += group.length;
      tokens += tokensInGroup(group);
    }
  }
  return batches;
}

/** The share of the branches' grid that is empty because the groups differ in members and in longest branch. */
function paddingOf(batch: readonly PrefixGroup[]): number {
  const members = Math.max(...batch.map((group) => group.length));
  const branch = Math.max(...batch.map(longestBranch));
  const used = batch.reduce((sum, group) => sum + group.length * longestBranch(group), 0);
  return 1 - used / (batch.length * members * branch);
}

/** A group in parts that are small enough, its members in order of length. */
function divided(group: PrefixGroup, maxRows: number, maxTokens: number): PrefixGroup[] {
  if (group.length <= maxRows && tokensInGroup(group) <= maxTokens) return [group];
  const sorted = [...group].sort((a, b) => lengthOf(b) - lengthOf(a) || a.row - b.row);
  const parts: Member[][] = [];
  for (const member of sorted) {
    const part = parts.at(-1);
    const isFull = part === undefined || part.length >= maxRows || tokensInGroup([...part, member]) > maxTokens;
    if (isFull) parts.push([member]);
    else part.push(member);
  }
  return parts;
}

/** Tables with a row for each packed token: that of its own position. */
function packedRotations(
  tables: readonly RotationTables[],
  { positions, tokens, scratch }: { positions: number; tokens: number; scratch: Scratch },
): { readonly arrays: Record<string, Float32Array>; set(token: number, position: number): void } {
  const packed = tables.map(({ cos, sin }, index) => {
    const names = rotationNames(index);
    const width = cos.length / positions;
    const into = (name: string) => scratch.floats(name, tokens * width);
    return { from: { cos, sin }, width, cos: into(names.cos), sin: into(names.sin) };
  });
  return {
    arrays: rotationArrays(packed),
    set: (token, position) => {
      for (const { from, width, cos, sin } of packed) {
        cos.set(from.cos.subarray(position * width, (position + 1) * width), token * width);
        sin.set(from.sin.subarray(position * width, (position + 1) * width), token * width);
      }
    },
  };
}

/** The sizes of a batch's grids. */
function gridsOf(batch: readonly PrefixGroup[]) {
  const groups = batch.length;
  const members = Math.max(...batch.map((group) => group.length));
  const trunk = partsFor(Math.max(...batch.map(trunkOf)));
  const branch = partsFor(Math.max(...batch.map(longestBranch)));
  return {
    groups,
    members,
    trunk,
    branch,
    cells: groups * trunk.time + groups * members * branch.time,
    tokens: batch.reduce((sum, group) => sum + tokensInGroup(group), 0),
    /** The grid of the loss begins at each row's first counted token. */
    length: Math.max(...batch.flat().map(lengthOf)),
  };
}

type Grids = ReturnType<typeof gridsOf>;

/** The packed tokens of a batch: `add` puts the next one into a cell of the grids. */
function packer(rows: readonly TokenRow[], batch: readonly PrefixGroup[], options: LayoutOptions & { grids: Grids }) {
  const { scratch, grids } = options;
  const { groups, trunk, cells, tokens } = grids;
  const longest = Math.max(...batch.flat().map(({ row }) => rows[row]!.ids.length));
  const rotations = packedRotations(options.tables(longest, longest), { positions: longest, tokens, scratch });
  const ids = scratch.ints("ids", tokens);
  const cellOf = scratch.ints("cell_of", tokens);
  const tokenIn = scratch.ints("cells", cells).fill(0);
  const isCell = scratch.floats("is_cell", cells).fill(0);
  const trunkMask = scratch.floats("trunk_mask", groups * trunk.time).fill(-Infinity);
  const packed = { ids, cells: tokenIn, cell_of: cellOf, is_cell: isCell, trunk_mask: trunkMask };
  let next = 0;
  /** The index of the token that was added. */
  const add = (id: number, position: number, cell: number): number => {
    ids[next] = id;
    rotations.set(next, position);
    cellOf[next] = cell;
    tokenIn[cell] = next;
    isCell[cell] = 1;
    return next++;
  };
  return { arrays: { ...packed, ...rotations.arrays }, trunkMask, add };
}

/** Lay out groups as packed tokens and the grids of attention. */
export function layOutBranches(
  rows: readonly TokenRow[],
  batch: readonly PrefixGroup[],
  options: LayoutOptions,
): Layout {
  const { extra, scratch } = options;
  const grids = gridsOf(batch);
  const { groups, members, trunk, branch, tokens, length } = grids;
  const { arrays, trunkMask, add } = packer(rows, batch, { ...options, grids });
  const counted: Counted[] = [];
  const starts: { row: number; place: number; from: number; to: number }[] = [];
  batch.forEach((group, g) => {
    const shared = rows[group[0]!.row]!.ids;
    for (let t = 0; t < trunkOf(group); t++) add(shared[t]!, t, g * trunk.time + t);
    trunkMask.fill(0, g * trunk.time, g * trunk.time + trunkOf(group));
    group.forEach(({ row, trunk: from, end }, m) => {
      const own = rows[row]!;
      const place = starts.length * length;
      const firstCell = groups * trunk.time + (g * members + m) * branch.time;
      starts.push({ row, place, from: from + 1, to: end + 1 });
      for (let t = from; t < end; t++) {
        const position = add(own.ids[t]!, t, firstCell + t - from);
        const at = t + 1; // the token that is predicted here
        if (own.mask[at]) counted.push({ row, at, position, place: place + t - from });
      }
    });
  });
  const given = { rows, tokens, cells: starts.length * length, starts, extra, scratch };
  return {
    form: { kind: "branches", trunkParts: trunk.parts, branchParts: branch.parts },
    bindings: {
      groups,
      members,
      trunkSpan: trunk.span,
      branchSpan: branch.span,
      tokens,
      rows: starts.length,
      length,
      n: counted.length,
    },
    arrays: { ...arrays, ...countedArrays(counted, given) },
    owners: counted,
  };
}
