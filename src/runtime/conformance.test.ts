/**
 * Every operation, by itself: what onnxruntime computes is what the interpreter computes, and the gradient is the
 * slope. The table of cases is total over the operations, so a new one cannot be forgotten.
 *
 * Slopes are central differences of the interpreter in double precision. The traced gradient is compared with them
 * twice, interpreted and compiled: the first misses when a rule of `vjp.ts` is wrong, the second alone when `lower.ts`,
 * `simplify.ts` or `emit.ts` is.
 */
import { afterAll, describe, expect, test } from "vitest";
import { type AttentionAttrs, type DType, makeNode, type Node, type Op, topological } from "../graph/node.ts";
import * as o from "../graph/ops.ts";
import { type Bindings, type Dim, evaluateShape, type Shape } from "../graph/shape.ts";
import { grad } from "../graph/vjp.ts";
import { compile } from "../onnx/emit.ts";
import { Random } from "../util/random.ts";
import { interpret } from "./interpreter.ts";
import type { Value } from "./interpreter-tensors.ts";
import { Runtime } from "./runtime.ts";
import { sharedFloats, sharedInts } from "./vectors.ts";

// ---------------------------------------------------------------- what a case is

type Given = { readonly shape: Shape; readonly dtype: DType; readonly values: (random: Random, i: number) => number };
type Case = {
  readonly name: string;
  readonly inputs: readonly Given[];
  readonly build: (...x: readonly [Node, Node, Node, Node]) => Node;
  readonly bindings: Bindings;
  /** The inputs whose gradient is compared with the slope. */
  readonly wrt: readonly number[];
};
type Cases = readonly [Case, ...Case[]];

/** A case that is differentiated with respect to all its f32 inputs. */
function example(name: string, inputs: readonly Given[], build: Case["build"], bindings: Bindings = {}): Case {
  return { name, inputs, build, bindings, wrt: inputs.flatMap(({ dtype }, i) => (dtype === "f32" ? [i] : [])) };
}

/** A case without a gradient. */
function forward(name: string, inputs: readonly Given[], build: Case["build"], bindings: Bindings = {}): Case {
  return { name, inputs, build, bindings, wrt: [] };
}

/** Random numbers that single precision can hold, so that both sides start from the same. */
function floats(shape: Shape, low = -2, high = 2): Given {
  return { shape, dtype: "f32", values: (random) => Math.fround(low + (high - low) * random.uniform()) };
}

function ints(shape: Shape, low: number, high: number): Given {
  return { shape, dtype: "i32", values: (random) => low + random.int(high - low) };
}

function list(values: readonly number[], dtype: DType = "i32", shape: Shape = [values.length]): Given {
  return { shape, dtype, values: (_, i) => values[i]! };
}

// ---------------------------------------------------------------- cases that many operations share

function unary(f: (x: Node) => Node, low = -3, high = 3): Cases {
  return [
    example("a vector", [floats([7], low, high)], f),
    example("a scalar", [floats([], low, high)], f),
    example("rows", [floats(["n", 3, 5], low, high)], f, { n: 2 }),
    example("one row", [floats(["n", 1], low, high)], f, { n: 1 }),
  ];
}

function binary(f: (a: Node | number, b: Node | number) => Node, low = -2, high = 2): Cases {
  const of = (a: Shape, b: Shape) => [floats(a), floats(b, low, high)];
  return [
    example("equal shapes", of([3, 5], [3, 5]), f),
    example("both sides spread", of([2, 1, 3], [4, 1]), f),
    example("a row beside rows", of(["n", 3], [3]), f, { n: 5 }),
    example("a column beside rows", of([4, 1], [4, "n"]), f, { n: 3 }),
    example("scalars", of([], []), f),
    example("a number on the right", [floats([2, 3])], (a) => f(a, 1.5)),
    example("a number on the left", [floats([2, 3], low, high)], (b) => f(-0.75, b)),
    example("whole numbers", [ints([2, 3], -9, 9), list([-3, 2, 5])], f),
  ];
}

type Attention = {
  readonly name: string;
  readonly shape: Shape;
  readonly kvHeads: number;
  /** The size of a value's head; that of a query's head unless given. */
  readonly valueSize?: number;
  readonly bindings?: Bindings;
};
const attentions: readonly (Attention & { readonly attrs?: Partial<AttentionAttrs> })[] = [
  { name: "time 8, a key head per head", shape: [2, 2, 8, 3], kvHeads: 2 },
  { name: "time 6, two heads per key head", shape: [2, 4, 6, 4], kvHeads: 2 },
  { name: "time 5, one key head", shape: [1, 4, 5, 2], kvHeads: 1 },
  { name: "time 1", shape: [2, 2, 1, 4], kvHeads: 1 },
  { name: "time 12, three heads per key head", shape: [1, 6, 12, 2], kvHeads: 2 },
  { name: "any time", shape: ["batch", 2, "time", 4], kvHeads: 2, bindings: { batch: 2, time: 7 } },
  { name: "time 4*span", shape: ["batch", 4, "4*span", 2], kvHeads: 2, bindings: { batch: 2, span: 2 } },
  { name: "time 2*span", shape: ["batch", 2, "2*span", 2], kvHeads: 1, bindings: { batch: 1, span: 3 } },
  { name: "time 4*span, span 1", shape: ["batch", 2, "4*span", 4], kvHeads: 2, bindings: { batch: 1, span: 1 } },
  { name: "a window of 3", shape: [1, 2, 8, 2], kvHeads: 1, attrs: { window: 3 } },
  { name: "a window of 1", shape: [1, 1, 4, 2], kvHeads: 1, attrs: { window: 1 } },
  { name: "a window wider than time", shape: [1, 1, 6, 2], kvHeads: 1, attrs: { window: 64 } },
  { name: "a window over 4*span", shape: [1, 2, "4*span", 2], kvHeads: 1, attrs: { window: 5 }, bindings: { span: 2 } },
  { name: "a cap", shape: [1, 2, 6, 4], kvHeads: 2, attrs: { softcap: 1.5 } },
  { name: "a cap and a window", shape: [1, 4, 8, 2], kvHeads: 2, attrs: { softcap: 2, window: 4 } },
  { name: "wider values than keys", shape: [2, 4, 6, 2], kvHeads: 2, valueSize: 5 },
  {
    name: "narrower values than keys, time 4*span, a cap and a window",
    shape: ["batch", 4, "4*span", 6],
    kvHeads: 2,
    valueSize: 3,
    attrs: { softcap: 2, window: 3 },
    bindings: { batch: 2, span: 2 },
  },
];

type AttentionBuild = (x: readonly [Node, Node, Node, Node], attrs: AttentionAttrs) => Node;

/** One case for each of `attentions`, from query, key, value and something like the output. */
function eachAttention(build: AttentionBuild, make = example): Cases {
  const cases = attentions.map(({ name, shape, kvHeads, valueSize = shape[3]!, attrs, bindings }) => {
    const [batch, heads, time, size] = shape as [Dim, Dim, Dim, Dim]; // every row of the table has four
    const key = floats([batch, kvHeads, time, size]);
    const value = floats([batch, kvHeads, time, valueSize]);
    const full: AttentionAttrs = { scale: 0.6, window: null, softcap: null, ...attrs };
    return make(
      name,
      [floats(shape), key, value, floats([batch, heads, time, valueSize])],
      (...x) => build(x, full),
      bindings,
    );
  });
  return cases as [Case, ...Case[]]; // one per row of the table above
}

/** A gradient node of attention beside the output it belongs to; it is not differentiated again. */
function attentionGrad(op: "attentionGradQuery" | "attentionGradKey" | "attentionGradValue", like: 0 | 1 | 2): Cases {
  return eachAttention(
    (x, attrs) => makeNode(op, [x[0], x[1], x[2], o.attention(x[0], x[1], x[2], attrs), x[3]], attrs, x[like]),
    forward,
  );
}

type CacheRow = {
  name: string;
  time: number;
  lengths: readonly number[];
  attrs?: Partial<AttentionAttrs>;
  kvHeads?: number;
};
const caches: readonly CacheRow[] = [
  { name: "rows that begin", time: 5, lengths: [5, 5] },
  { name: "one row of one token that begins", time: 1, lengths: [1] },
  { name: "one token more for each row", time: 1, lengths: [4, 4, 4] },
  { name: "one row goes on", time: 3, lengths: [7] },
  { name: "a window", time: 3, lengths: [7], attrs: { window: 4 } },
  { name: "a window at one token", time: 1, lengths: [6, 6], attrs: { window: 3 } },
  { name: "a cap", time: 1, lengths: [6, 6], attrs: { softcap: 1.5 } },
  { name: "a key head for each query head", time: 1, lengths: [3, 3], kvHeads: 4 },
];

/** One case for each of `caches`: the queries, keys and values of new tokens, and what is in the cache (x3). */
function eachCache(build: (attended: Node, total: number) => Node): Cases {
  const [heads, size, capacity, places] = [4, 16, 8, 11];
  const cases = caches.map(({ name, time, lengths, attrs, kvHeads = 2 }) => {
    const batch = lengths.length;
    const total = Math.max(...lengths);
    const past = floats([batch, kvHeads, capacity, size]);
    const inputs = [floats([batch, time, heads * size]), floats([batch, time, kvHeads * size])];
    return forward(name, [...inputs, floats([batch, time, kvHeads * size]), past], (query, key, value, before) => {
      const angles = Array.from({ length: (places * size) / 2 }, (_, i) => i / 7);
      const cache: o.Cache = {
        key: before,
        value: o.neg(before),
        lengths: o.constant(lengths, [batch], "i32"),
        total: o.constant([total], [1], "i32"),
        cos: o.constant(angles.map(Math.cos).map(Math.fround), [places, size / 2]),
        sin: o.constant(angles.map(Math.sin).map(Math.fround), [places, size / 2]),
        positions: o.constant(
          lengths.flatMap((length) => Array.from({ length: time }, (_, t) => 3 + length - time + t)),
          [batch, time],
          "i32",
        ),
      };
      const full = { scale: 0.3, window: null, softcap: null, heads, kvHeads, ...attrs };
      return build(o.cachedAttention(query, key, value, { ...full, cache }), total);
    });
  });
  return cases as [Case, ...Case[]]; // one per row of the table above
}

type Head = { readonly softcap: number | null; readonly temperature: number };
const heads: readonly { name: string; rows: Dim; tokens: number; head?: Partial<Head>; bindings?: Bindings }[] = [
  { name: "a head", rows: 5, tokens: 7 },
  { name: "one row", rows: 1, tokens: 4 },
  { name: "one token", rows: 3, tokens: 1 },
  { name: "fewer tokens than rows", rows: 9, tokens: 3 },
  { name: "any rows", rows: "n", tokens: 6, bindings: { n: 4 } },
  { name: "temperature 0.7", rows: 4, tokens: 5, head: { temperature: 0.7 } },
  { name: "temperature 2", rows: "batch*time", tokens: 5, head: { temperature: 2 }, bindings: { batch: 2, time: 3 } },
  { name: "a cap", rows: 4, tokens: 6, head: { softcap: 1.5 } },
  { name: "a cap and a temperature", rows: "n", tokens: 6, head: { softcap: 2, temperature: 0.5 }, bindings: { n: 3 } },
];

/** One case for each of `heads`, from hidden states, the head's weight and token ids. */
function eachHead(build: (hidden: Node, weight: Node, ids: Node, head: Head) => Node): Cases {
  const cases = heads.map(({ name, rows, tokens, head, bindings }) => {
    const full: Head = { softcap: null, temperature: 1, ...head };
    const inputs = [floats([rows, 3]), floats([tokens, 3]), ints([rows], 0, tokens)];
    return example(name, inputs, (hidden, weight, ids) => build(hidden, weight, ids, full), bindings);
  });
  return cases as [Case, ...Case[]]; // one per row of the table above
}

/** `alpha A·B + C` for a result of [3, 2], where C is `start`. */
function gemm(start: Shape, attrs: { transA: boolean; transB: boolean; alpha: number }): Case {
  const inputs = [floats(attrs.transA ? [4, 3] : [3, 4]), floats(attrs.transB ? [2, 4] : [4, 2]), floats(start)];
  const name = `from [${start}]${attrs.transA ? ", Aᵀ" : ""}${attrs.transB ? ", Bᵀ" : ""}, alpha ${attrs.alpha}`;
  return example(name, inputs, (a, b, c) => makeNode("gemm", [a, b, c], attrs, { shape: [3, 2], dtype: "f32" }));
}

/** A rotation; no gradient is asked of the tables. */
function rope(name: string, shape: Shape, half = Number(shape.at(-1)) / 2, bindings: Bindings = {}): Case {
  const table = floats([shape.at(-2)!, half], -1, 1);
  const build: Case["build"] = (x, cos, sin) => o.rope(x, cos, sin);
  return { ...example(name, [floats(shape), table, table], build, bindings), wrt: [0] };
}

function product(name: string, a: Shape, b: Shape, options: Parameters<typeof o.matmul>[2] = {}): Case {
  return example(name, [floats(a), floats(b)], (x, y) => o.matmul(x, y, options), { n: 3 });
}

function gated(activation: "silu" | "gelu" | "geluTanh"): Cases {
  const build: Case["build"] = (gate, up) => o.gated(gate, up, activation);
  return [
    example(activation, [floats([3, 5], -4, 4), floats([3, 5])], build),
    example(`${activation}, any rows`, [floats(["n", 2], -4, 4), floats(["n", 2])], build, { n: 1 }),
  ];
}

// ---------------------------------------------------------------- the table

const cases: Record<Op, Cases> = {
  input: [
    example("comes out as it went in", [floats(["n", 3])], (x) => x, { n: 2 }),
    example("ids", [ints([4], -5, 5)], (x) => x),
  ],
  constant: [
    example("a scalar beside a vector", [floats([3])], (x) => o.mul(x, o.constant(0.1))),
    example("a matrix", [floats([2, 2])], (x) => o.add(x, o.constant([1, -2, 3, 0.5], [2, 2]))),
    example("whole numbers", [], () => o.constant([3, -1, 7], [3], "i32")),
    example("a product of whole numbers", [], () => o.mul(o.constant(6, [], "i32"), o.constant(7, [], "i32"))),
    example("booleans", [floats([3])], (x) => o.where(o.constant([1, 0, 1], [3], "bool"), x, 0)),
    forward("both infinities", [floats([6])], (x) => o.where(o.greater(x, 0), Infinity, -Infinity)),
    forward("zeros of both signs", [], () => o.div(1, o.concat([o.constant([0], [1]), o.constant([-0], [1])], 0))),
  ],
  causalMask: [
    forward("square", [], () => o.causalMask(5, 5, { offset: 0, window: null })),
    forward("an offset", [], () => o.causalMask(2, 6, { offset: 3, window: null })),
    forward("a window", [], () => o.causalMask(6, 6, { offset: 0, window: 2 })),
    forward("one query", [], () => o.causalMask(1, 4, { offset: 3, window: 3 })),
    forward("symbols", [], () => o.causalMask("span", "3*span", { offset: "2*span", window: 3 }), { span: 2 }),
  ],

  add: binary(o.add),
  sub: binary(o.sub),
  mul: binary(o.mul),
  div: binary(o.div, 0.5, 3),
  minimum: binary(o.minimum),
  maximum: binary(o.maximum),
  neg: unary(o.neg),
  exp: unary(o.exp),
  log: unary(o.log, 0.1, 4),
  sqrt: unary(o.sqrt, 0.1, 4),
  abs: unary(o.abs),
  tanh: unary(o.tanh),
  sigmoid: unary(o.sigmoid, -8, 8),
  silu: unary(o.silu, -8, 8),
  erf: unary(o.erf),
  greater: [
    ...binary(o.greater),
    forward("equal is not greater", [list([1, 2, 3], "f32"), list([1, 1, 4], "f32")], o.greater),
  ],
  equal: [
    ...binary(o.equal),
    forward("some are", [list([1, 2, 3], "f32"), list([1, 1, 3], "f32")], o.equal),
    example("some whole numbers are", [ints([3, 4], 0, 3), ints([4], 0, 3)], o.equal),
  ],
  where: [
    example("equal shapes", [floats([2, 3]), floats([2, 3]), floats([2, 3])], (c, a, b) =>
      o.where(o.greater(c, 0), a, b),
    ),
    example(
      "all spread",
      [floats([3, 1]), floats(["n"]), floats([2, 1, 1])],
      (c, a, b) => o.where(o.greater(c, 0), a, b),
      { n: 4 },
    ),
    example("numbers", [floats([5])], (c) => o.where(o.greater(c, 0), 1, -2)),
    example("whole numbers", [ints([5], -2, 2), ints([5], 0, 9)], (c, a) => o.where(o.greater(c, 0), a, -1)),
  ],
  cast: [
    example("to whole numbers, towards zero", [floats([9], -4, 4)], (x) => o.cast(x, "i32")),
    example("from whole numbers", [ints([5], -9, 9)], (x) => o.cast(x, "f32")),
    forward("to booleans", [list([0, 0.5, -2, 0], "f32")], (x) => o.cast(x, "bool")),
    example("from booleans", [floats([5])], (x) => o.cast(o.greater(x, 0), "f32")),
    example("from booleans to whole numbers", [floats([5])], (x) => o.cast(o.greater(x, 0), "i32")),
  ],
  stopGradient: [
    forward("passes the value", [floats([3, 2])], o.stopGradient),
    {
      ...example("stops one of two ways", [floats([4]), floats([4])], (x, y) => o.mul(o.stopGradient(x), y)),
      wrt: [1],
    },
  ],

  sum: [
    example("all", [floats([3, 4])], (x) => o.sum(x)),
    example("the last axis", [floats([2, 3, 5])], (x) => o.sum(x, [-1])),
    example("two axes, kept", [floats([2, "n", 5])], (x) => o.sum(x, [0, 2], true), { n: 3 }),
    example("axes of any size", [floats(["n", "m"])], (x) => o.sum(x), { n: 3, m: 1 }),
    example("an axis of one", [floats([3, 1])], (x) => o.sum(x, [1])),
    example("whole numbers", [ints([3, 4], -9, 9)], (x) => o.sum(x, [0])),
  ],
  max: [
    example("all", [floats([3, 4])], (x) => o.max(x)),
    example("the last axis", [floats(["n", 5])], (x) => o.max(x, [-1]), { n: 3 }),
    example("two axes, kept", [floats([2, 3, 4])], (x) => o.max(x, [0, 2], true)),
    example("an axis of one", [floats([3, 1])], (x) => o.max(x, [1])),
    example("whole numbers", [ints([3, 4], -9, 9)], (x) => o.max(x, [0])),
  ],
  softmax: [
    example("rows", [floats([4, 5])], o.softmax),
    example("many axes", [floats(["n", 2, 2, 3])], o.softmax, { n: 2 }),
    example("a row of one", [floats([3, 1])], o.softmax),
    example("large numbers", [floats([2, 4], -90, 90)], o.softmax),
    example("an axis of any size", [floats(["n", "m"])], o.softmax, { n: 2, m: 5 }),
  ],
  logSoftmax: [
    example("rows", [floats([4, 5])], o.logSoftmax),
    example("many axes", [floats(["n", 2, 3])], o.logSoftmax, { n: 2 }),
    example("a row of one", [floats([3, 1])], o.logSoftmax),
    example("large numbers", [floats([2, 4], -90, 90)], o.logSoftmax),
  ],

  reshape: [
    example("numbers", [floats([3, 4])], (x) => o.reshape(x, [2, 6])),
    example("to a scalar", [floats([1, 1])], (x) => o.reshape(x, [])),
    example("from a scalar", [floats([])], (x) => o.reshape(x, [1, 1])),
    example("one symbol", [floats(["n", 6])], (x) => o.reshape(x, ["n", 2, 3]), { n: 2 }),
    example("a product apart", [floats(["a*b", 2])], (x) => o.reshape(x, ["a", "b", 2]), { a: 2, b: 3 }),
    example("into a product", [floats(["a", 2, "4*b"])], (x) => o.reshape(x, ["8*a*b"]), { a: 3, b: 1 }),
    example("ids", [ints(["n", 2], 0, 9)], (x) => o.reshape(x, ["2*n"]), { n: 3 }),
  ],
  transpose: [
    example("a matrix", [floats([3, 4])], (x) => o.transpose(x)),
    example("heads and time", [floats(["n", "t", 2, 3])], (x) => o.transpose(x, [0, 2, 1, 3]), { n: 2, t: 3 }),
    example("a cycle", [floats([2, 3, 4])], (x) => o.transpose(x, [1, 2, 0])),
    example("a vector", [floats([3])], (x) => o.transpose(x)),
  ],
  broadcastTo: [
    example("a scalar", [floats([])], (x) => o.broadcastTo(x, [2, 3])),
    example("a column", [floats(["n", 1])], (x) => o.broadcastTo(x, ["n", 4]), { n: 3 }),
    example("a row to any size", [floats([3])], (x) => o.broadcastTo(x, ["n", 2, 3]), { n: 2 }),
    example("ids", [ints([1], 0, 9)], (x) => o.broadcastTo(x, [4])),
  ],
  slice: [
    example("the middle", [floats([5, 3])], (x) => o.slice(x, 0, 1, 4)),
    example("one column", [floats(["n", 4])], (x) => o.slice(x, 1, 3, 4), { n: 2 }),
    example("the start", [floats([2, 6])], (x) => o.slice(x, 1, 0, 2)),
    example("parts of symbols", [floats([2, "4*span", 2])], (x) => o.slice(x, 1, "span", "3*span"), { span: 2 }),
    example("the last part", [floats(["4*span"])], (x) => o.slice(x, 0, "3*span", "4*span"), { span: 1 }),
    example("ids", [ints([6], 0, 9)], (x) => o.slice(x, 0, 2, 5)),
  ],
  pad: [
    example("after", [floats([2, 3])], (x) => o.pad(x, 1, 0, 5)),
    example("before", [floats([2, 3])], (x) => o.pad(x, 0, 2, 4)),
    example("both", [floats(["n", 2])], (x) => o.pad(x, 1, 1, 4), { n: 3 }),
    example("symbols", [floats([2, "span"])], (x) => o.pad(x, 1, "2*span", "4*span"), { span: 2 }),
  ],
  concat: [
    example("rows", [floats([2, 3]), floats([1, 3])], (a, b) => o.concat([a, b], 0)),
    example("three", [floats(["n", 1]), floats(["n", 3]), floats(["n", 2])], (...x) => o.concat(x.slice(0, 3), 1), {
      n: 2,
    }),
    example("a part twice", [floats([2, 2])], (a) => o.concat([a, a], 1)),
    example("symbols", [floats([2, "span"]), floats([2, "3*span"])], (a, b) => o.concat([a, b], 1), { span: 2 }),
    example("ids", [ints([2], 0, 9), ints([3], 0, 9)], (a, b) => o.concat([a, b], 0)),
  ],

  take: [
    example("a row per id", [floats([5, 3]), ints([4], 0, 5)], o.take),
    example("ids of two axes", [floats([4, 2]), ints(["n", "t"], 0, 4)], o.take, { n: 2, t: 3 }),
    example("one row many times", [floats([3, 2]), list([1, 1, 1, 1])], o.take),
    example("one id", [floats([3, 2]), ints([1], 0, 3)], o.take),
    forward("numbers of a list", [floats([5]), ints([3], 0, 5)], o.take),
    forward("matrices of a list", [floats([3, 2, 2]), ints([2], 0, 3)], o.take),
  ],
  scatterRows: [
    example("many on few", [ints([9], 0, 3), floats([9, 2])], (ids, rows) => o.scatterRows(ids, rows, 3)),
    example("places that get nothing", [list([4, 4, 0]), floats([3, 2])], (ids, rows) => o.scatterRows(ids, rows, 6)),
    example("one row", [ints([1], 0, 2), floats([1, 3])], (ids, rows) => o.scatterRows(ids, rows, 2)),
    example("any rows", [ints(["n"], 0, 4), floats(["n", 1])], (ids, rows) => o.scatterRows(ids, rows, 4), { n: 5 }),
  ],
  pick: [
    example("one of each row", [floats([4, 5]), ints([4], 0, 5)], o.pick),
    example("any rows", [floats(["n", 3]), ints(["n"], 0, 3)], o.pick, { n: 5 }),
    example("one row", [floats([1, 1]), list([0])], o.pick),
  ],
  place: [
    example("one in each row", [floats([4]), ints([4], 0, 5)], (x, ids) => o.place(x, ids, 5)),
    example("any rows", [floats(["n"]), ints(["n"], 0, 3)], (x, ids) => o.place(x, ids, 3), { n: 5 }),
    example("any width", [floats([3]), ints([3], 0, 4)], (x, ids) => o.place(x, ids, "m"), { m: 4 }),
  ],
  rearrange: [
    example(
      "into padded rows",
      [floats([4]), list([0, 1, 0, 2, 3, 0], "i32", [2, 3]), list([0, 1, 3, 4])],
      // What only fills a row must not reach the loss.
      (x, index, inverse) => o.mul(o.rearrange(x, index, inverse), o.constant([1, 1, 0, 1, 1, 0], [2, 3])),
    ),
    example(
      "rows into padded rows",
      [floats([3, 2]), list([2, 0, 0, 1], "i32", [2, 2]), list([1, 3, 0])],
      (x, index, inverse) => o.mul(o.rearrange(x, index, inverse), o.constant([1, 1, 0, 1], [2, 2, 1])),
    ),
    example(
      "a permutation",
      [floats(["n"]), list([2, 0, 1], "i32", ["n"]), list([1, 2, 0], "i32", ["n"])],
      (x, index, inverse) => o.rearrange(x, index, inverse),
      { n: 3 },
    ),
  ],

  matmul: [
    product("A B", [3, 4], [4, 2]),
    product("A Bᵀ", ["n", 4], [5, 4], { transB: true }),
    product("Aᵀ B, tall", ["n", 5], ["n", 2], { transA: true, alpha: 0.5 }),
    product("Aᵀ B, wide", ["n", 2], ["n", 5], { transA: true, alpha: 0.5 }),
    product("Aᵀ Bᵀ, tall", [3, 4], [2, 3], { transA: true, transB: true, alpha: -2 }),
    product("Aᵀ Bᵀ, wide", [3, 2], [4, 3], { transA: true, transB: true }),
    product("one row", [1, 3], [3, 4], { alpha: 3 }),
    product("one column, Aᵀ B", [3, 4], [3, 1], { transA: true }),
    product("an outer product", [4, 1], [1, 3]),
    product("batches, A B", ["n", 2, 3], ["n", 3, 4]),
    product("batches, A Bᵀ", [2, 2, 3, 4], [2, 2, 5, 4], { transB: true, alpha: 0.25 }),
    product("batches, Aᵀ B", [2, 3, 4], [2, 3, 2], { transA: true }),
    product("batches, Aᵀ Bᵀ", [2, 3, 4], [2, 2, 3], { transA: true, transB: true, alpha: 2 }),
  ],
  gemm: [
    gemm([3, 2], { transA: false, transB: false, alpha: 1 }),
    gemm([2], { transA: false, transB: true, alpha: 0.5 }),
    gemm([3, 2], { transA: true, transB: false, alpha: -2 }),
    gemm([2], { transA: true, transB: true, alpha: 1 }),
    example(
      "a product that starts from another",
      [floats(["n", 3]), floats([3, 2]), floats(["n", 4]), floats([2, 4])],
      (a, b, c, d) => {
        const start = o.matmul(a, b);
        return makeNode("gemm", [c, d, start], { transA: false, transB: true, alpha: 1 }, start);
      },
      { n: 4 },
    ),
  ],

  rmsNorm: [
    example("rows", [floats([3, 5]), floats([5])], (x, w) => o.rmsNorm(x, w, 1e-5)),
    example("one row", [floats([1, 4]), floats([4])], (x, w) => o.rmsNorm(x, w, 1e-6)),
    example("heads", [floats(["n", 2, "t", 4]), floats([4])], (x, w) => o.rmsNorm(x, w, 1e-6), { n: 2, t: 3 }),
    example("any rows", [floats(["n", 3]), floats([3])], (x, w) => o.rmsNorm(x, w, 1e-6), { n: 7 }),
    example("an epsilon that counts", [floats([2, 3], -0.1, 0.1), floats([3])], (x, w) => o.rmsNorm(x, w, 0.01)),
  ],
  rmsInverse: [
    example("rows", [floats([3, 5])], (x) => o.rmsInverse(x, 1e-5)),
    example(
      "beside the norm",
      [floats(["n", 2, 4]), floats([4])],
      (x, w) => o.mul(o.rmsNorm(x, w, 1e-6), o.rmsInverse(x, 1e-6)),
      { n: 3 },
    ),
    example("an epsilon that counts", [floats([2, 3], -0.1, 0.1)], (x) => o.rmsInverse(x, 0.01)),
  ],
  rope: [
    rope("heads", [2, 3, 5, 4]),
    rope("one head, one pair", [1, 1, 3, 2]),
    rope("one position", [2, 2, 1, 8]),
    rope("any batch and time", ["n", 2, "4*span", 6], 3, { n: 2, span: 2 }),
    rope("heads side by side", [2, 5, 12], 2),
    rope("one row of any length", [1, "n", 16], 4, { n: 7 }),
  ],
  attention: eachAttention(([q, k, v], attrs) => o.attention(q, k, v, attrs)),
  attentionGradQuery: attentionGrad("attentionGradQuery", 0),
  attentionGradKey: attentionGrad("attentionGradKey", 1),
  attentionGradValue: attentionGrad("attentionGradValue", 2),
  cachedAttention: eachCache((attended) => attended),
  cacheAfter: [
    ...eachCache((attended, total) => o.slice(o.cacheAfter(attended, "key"), 2, 0, total)),
    ...eachCache((attended, total) => o.slice(o.cacheAfter(attended, "value"), 2, 0, total)),
  ],
  gated: [...gated("silu"), ...gated("gelu"), ...gated("geluTanh")],
  tokenLogprobs: eachHead((hidden, weight, ids, head) => o.tokenLogprobs(hidden, weight, ids, head)),
  tokenEntropy: eachHead((hidden, weight, _, head) => o.tokenEntropy(hidden, weight, head)),
};

// ---------------------------------------------------------------- the laws

const runtime = new Runtime({ threads: 1 });
afterAll(() => runtime.close());

type Numbers = Record<string, Float64Array>;

function draw(inputs: readonly Given[], bindings: Bindings, key: string): Numbers {
  const random = new Random(17, key);
  const arrays = inputs.map(({ shape, values }) =>
    Float64Array.from({ length: sizeOf(evaluateShape(shape, bindings)) }, (_, i) => values(random, i)),
  );
  return Object.fromEntries(arrays.map((array, i) => [`x${i}`, array]));
}

function sizeOf(shape: readonly number[]): number {
  return shape.reduce((a, b) => a * b, 1);
}

type Outputs = Readonly<Record<string, Node>>;

/** The same program through the compiler and onnxruntime. */
async function execute(outputs: Outputs, inputs: Numbers, bindings: Bindings): Promise<Record<string, Value>> {
  const program = compile(outputs);
  expect(program.outputs.map(({ dtype }) => dtype)).toEqual(Object.values(outputs).map(({ dtype }) => dtype));
  const shapes = program.outputs.map(({ shape }) => evaluateShape(shape, bindings));
  const results = program.outputs.map(({ dtype }, i) => {
    const array = dtype === "f32" ? sharedFloats(sizeOf(shapes[i]!)) : sharedInts(new Int32Array(sizeOf(shapes[i]!)));
    return array.fill(123); // so that a result which is not written is seen
  });
  const given = program.inputs.map(({ name, dtype }) => {
    return [name, dtype === "f32" ? Float32Array.from(inputs[name]!) : Int32Array.from(inputs[name]!)] as const;
  });
  const arrays = Object.fromEntries([...given, ...program.outputs.map(({ name }, i) => [name, results[i]!] as const)]);
  await runtime.run(await runtime.load(program), { bindings, arrays });
  return Object.fromEntries(
    program.outputs.map(({ name }, i) => [name, { shape: shapes[i]!, data: Float64Array.from(results[i]!) }]),
  );
}

/** Every entry within `tolerance` of the largest expected one (or of `scale`); what is not finite must be equal. */
function expectNear(actual: Value, expected: Value, tolerance: number, scale = 1e-3): void {
  expect(actual.shape).toEqual(expected.shape);
  const bound = tolerance * Math.max(scale, ...expected.data.filter(Number.isFinite).map(Math.abs));
  const misses = [...expected.data].flatMap((want, i) => {
    const got = actual.data[i]!;
    const isNear = Number.isFinite(want) ? Math.abs(got - want) <= bound : Object.is(got, want);
    return isNear ? [] : [`[${i}] is ${got}, not ${want}`];
  });
  expect(misses).toEqual([]);
}

/** The slope of `loss` along each entry of an input, by central differences. */
function slopes(loss: Node, name: string, inputs: Numbers, bindings: Bindings): Float64Array {
  const step = 1e-5;
  const lossAt = (i: number, value: number) => {
    const moved = inputs[name]!.with(i, value);
    return interpret({ loss }, { ...inputs, [name]: moved }, bindings).loss!.data[0]!;
  };
  return inputs[name]!.map((x, i) => (lossAt(i, x + step) - lossAt(i, x - step)) / (2 * step));
}

function trace({ inputs, build }: Case): { leaves: readonly Node[]; y: Node } {
  const leaves = inputs.map(({ shape, dtype }, i) => o.input(`x${i}`, shape, dtype));
  return { leaves, y: build(...(leaves as unknown as [Node, Node, Node, Node])) }; // `build` takes as many as it gave
}

async function expectSameAsInterpreter(op: string, given: Case): Promise<void> {
  const { y } = trace(given);
  expect(topological([y]).map((node) => node.op)).toContain(op);
  const inputs = draw(given.inputs, given.bindings, given.name);
  const outputs = { out: y.dtype === "bool" ? o.cast(y, "i32") : y }; // no array holds booleans
  const actual = await execute(outputs, inputs, given.bindings);
  expectNear(actual.out!, interpret(outputs, inputs, given.bindings).out!, y.dtype === "f32" ? 1e-5 : 0);
}

async function expectGradientIsSlope(given: Case): Promise<void> {
  const { leaves, y } = trace(given);
  // A scalar in which every entry of `y` has a random weight of its own.
  const all = [...given.inputs, floats(y.shape, -1, 1)];
  const loss = o.sum(o.mul(o.cast(y, "f32"), o.input(`x${leaves.length}`, y.shape)));
  const names = given.wrt.map((i) => `x${i}`);
  const wrt = given.wrt.map((i) => leaves[i]!);
  const outputs = Object.fromEntries(grad(loss, wrt).map((node, i) => [`d${names[i]}`, node]));
  const inputs = draw(all, given.bindings, given.name);
  const interpreted = interpret(outputs, inputs, given.bindings);
  const executed = await execute(outputs, inputs, given.bindings);
  names.forEach((name, i) => {
    const shape = evaluateShape(wrt[i]!.shape, given.bindings);
    const slope: Value = { shape, data: slopes(loss, name, inputs, given.bindings) };
    expectNear(interpreted[`d${name}`]!, slope, 1e-7, 1);
    expectNear(executed[`d${name}`]!, slope, 1e-5, 1);
  });
}

for (const [op, list] of Object.entries(cases)) {
  describe(op, () => {
    for (const given of list) {
      test(`${given.name}: onnxruntime gives what the interpreter gives`, () => expectSameAsInterpreter(op, given));
      if (given.wrt.length > 0) test(`${given.name}: the gradient is the slope`, () => expectGradientIsSlope(given));
    }
  });
}
