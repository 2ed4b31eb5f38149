/** The ways of mixing agree where they see the same tokens, also where values have heads of another size than keys. */
import { describe, expect, test } from "vitest";
import * as o from "../graph/ops.ts";
import { interpret } from "../runtime/interpreter.ts";
import { Random } from "../util/random.ts";
import { type AttentionShape, branching, cached, cachedHeadDim, causal, type Mix } from "./attention.ts";

const [BATCH, TIME, HEADS, KV_HEADS] = [2, 6, 4, 2];
const ROWS = BATCH * TIME;

/** Tables for `TIME` positions, with zeros behind each row up to `wide` pairs. */
function tables(half: number, wide: number): { cos: number[]; sin: number[] } {
  const angle = (i: number) => Math.floor(i / wide) / (1 + (i % wide));
  const at = (f: (angle: number) => number) =>
    Array.from({ length: TIME * wide }, (_, i) => (i % wide < half ? f(angle(i)) : 0));
  return { cos: at(Math.cos), sin: at(Math.sin) };
}

function shapeOf(headDim: number, valueDim: number, more: Partial<AttentionShape> = {}): AttentionShape {
  const sizes = { batch: BATCH, time: TIME, heads: HEADS, kvHeads: KV_HEADS, headDim, valueDim };
  return { ...sizes, scale: 0.4, softcap: null, window: null, ...more };
}

/** What a mix makes of the same random queries, keys and values. */
function mixed(mix: Mix, shape: AttentionShape): Float64Array {
  const projected = {
    query: o.input("query", [ROWS, HEADS * shape.headDim]),
    key: o.input("key", [ROWS, KV_HEADS * shape.headDim]),
    value: o.input("value", [ROWS, KV_HEADS * shape.valueDim]),
  };
  const numbers = Object.entries(projected).map(([name, node]) => {
    const random = new Random(5, name);
    return [name, Array.from({ length: ROWS * Number(node.shape[1]) }, () => random.normal())] as const;
  });
  return interpret({ y: mix(projected, shape) }, Object.fromEntries(numbers)).y!.data;
}

function plain({ headDim }: AttentionShape): Mix {
  const { cos, sin } = tables(headDim / 2, headDim / 2);
  const table = (values: number[]) => o.constant(values, [TIME, headDim / 2]);
  return causal({ cos: table(cos), sin: table(sin) });
}

function overAnEmptyCache({ headDim, valueDim }: AttentionShape): Mix {
  const size = cachedHeadDim(Math.max(headDim, valueDim));
  const { cos, sin } = tables(headDim / 2, size / 2);
  const empty = o.constant(Array(BATCH * KV_HEADS * TIME * size).fill(0), [BATCH, KV_HEADS, TIME, size]);
  const cache = {
    key: empty,
    value: empty,
    lengths: o.constant(Array(BATCH).fill(TIME), [BATCH], "i32"),
    total: o.constant([TIME], [1], "i32"),
    cos: o.constant(cos, [TIME, size / 2]),
    sin: o.constant(sin, [TIME, size / 2]),
    positions: o.constant(
      Array.from({ length: ROWS }, (_, i) => i % TIME),
      [BATCH, TIME],
      "i32",
    ),
  };
  return cached(cache, () => {});
}

/** Each sequence is a group of one member: a trunk of two tokens, and the rest as its branch. */
function asBranches({ headDim }: AttentionShape): Mix {
  const [trunk, branch] = [2, TIME - 2];
  const cellOf = (token: number) => {
    const [row, t] = [Math.floor(token / TIME), token % TIME];
    return t < trunk ? row * trunk + t : BATCH * trunk + row * branch + t - trunk;
  };
  const places = Array.from({ length: ROWS }, (_, token) => cellOf(token));
  const cells = places.map((_, cell) => places.indexOf(cell));
  const { cos, sin } = tables(headDim / 2, headDim / 2);
  const perToken = (values: number[]) => o.constant(Array(BATCH).fill(values).flat(), [ROWS, headDim / 2]);
  return branching({
    groups: BATCH,
    members: 1,
    trunk,
    branch,
    rotation: { cos: perToken(cos), sin: perToken(sin) },
    cells: o.constant(cells, [ROWS], "i32"),
    places: o.constant(places, [ROWS], "i32"),
    isCell: o.constant(Array(ROWS).fill(1), [ROWS, 1]),
    trunkMask: o.constant(Array(BATCH * trunk).fill(0), [BATCH, 1, 1, 1, trunk]),
  });
}

const shapes: Record<string, AttentionShape> = {
  "heads of one size": shapeOf(4, 4),
  "narrower values": shapeOf(6, 2),
  "wider values": shapeOf(4, 8),
  "wider values and a cap": shapeOf(2, 6, { softcap: 1.5 }),
};

describe.each(Object.entries(shapes))("%s", (_, shape) => {
  const expected = mixed(plain(shape), shape);
  const near = (found: Float64Array) => {
    expect(found).toHaveLength(expected.length);
    const errors = found.map((value, i) => Math.abs(value - expected[i]!));
    return Math.max(...errors);
  };

  test("the result has a row of value heads for each token", () => {
    expect(expected).toHaveLength(ROWS * HEADS * shape.valueDim);
  });
  test("attention over an empty cache is causal attention", () => {
    expect(near(mixed(overAnEmptyCache(shape), shape))).toBeLessThan(1e-12);
  });
  test("branches over their trunks are causal attention", () => {
    expect(near(mixed(asBranches(shape), shape))).toBeLessThan(1e-12);
  });
});
