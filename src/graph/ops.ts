/**
 * The vocabulary of traced programs: one function per operation, which checks its inputs and infers shape and dtype.
 *
 * Nothing is computed here. `add(a, b)` returns a node; programs are compiled by `onnx/` or interpreted by
 * `runtime/interpreter.ts`. Shapes follow numpy; a plain number is a constant. Layers (`rmsNorm`, `attention`, …) are
 * operations of their own, so that each has one gradient rule and one fast form.
 */
import {
  type Activation,
  type AttentionAttrs,
  type CachedAttentionAttrs,
  type DType,
  graphError,
  type HeadAttrs,
  makeNode,
  type Node,
  type Op,
} from "./node.ts";
import { broadcast, type Dim, dim, formatShape, minus, plus, product, type Shape, sameShape } from "./shape.ts";

type Operand = Node | number;

// ---------------------------------------------------------------- leaves

/** A tensor that is given when the program runs. */
export function input(name: string, shape: Shape, dtype: DType = "f32"): Node {
  return makeNode("input", [], { name }, { shape: shape.map(dim), dtype });
}

/** A small tensor that is part of the program. */
export function constant(values: number | readonly number[], shape: Shape = [], dtype: DType = "f32"): Node {
  const list = typeof values === "number" ? [values] : values;
  if (product(shape) !== list.length) throw graphError(`${list.length} values do not fill ${formatShape(shape)}`);
  return makeNode("constant", [], { values: list }, { shape, dtype });
}

/**
 * What a query may see, as a term to add to its scores: 0 or minus infinity, [queries, keys].
 * Query row `r` is at position `offset + r` and sees keys up to itself, at most `window` of them.
 */
export function causalMask(queries: Dim, keys: Dim, attrs: { offset: Dim; window: number | null }): Node {
  return makeNode("causalMask", [], attrs, { shape: [queries, keys], dtype: "f32" });
}

// ---------------------------------------------------------------- elementwise

export const add = (a: Operand, b: Operand): Node => elementwise("add", a, b);
export const sub = (a: Operand, b: Operand): Node => elementwise("sub", a, b);
export const mul = (a: Operand, b: Operand): Node => elementwise("mul", a, b);
export const div = (a: Operand, b: Operand): Node => elementwise("div", a, b);
export const minimum = (a: Operand, b: Operand): Node => elementwise("minimum", a, b);
export const maximum = (a: Operand, b: Operand): Node => elementwise("maximum", a, b);
/** True where `a > b`. */
export const greater = (a: Operand, b: Operand): Node => elementwise("greater", a, b, "bool");
/** True where `a == b`. */
export const equal = (a: Operand, b: Operand): Node => elementwise("equal", a, b, "bool");

export const neg = (x: Node): Node => unary("neg", x);
export const exp = (x: Node): Node => unary("exp", x);
export const log = (x: Node): Node => unary("log", x);
export const sqrt = (x: Node): Node => unary("sqrt", x);
export const abs = (x: Node): Node => unary("abs", x);
export const tanh = (x: Node): Node => unary("tanh", x);
export const sigmoid = (x: Node): Node => unary("sigmoid", x);
export const erf = (x: Node): Node => unary("erf", x);
/** `x · sigmoid(x)`. */
export const silu = (x: Node): Node => unary("silu", x);
/** The value of `x`; no gradient flows through it. */
export const stopGradient = (x: Node): Node => makeNode("stopGradient", [x], {}, x);

/** `x` between two bounds; the gradient is zero outside. */
export const clamp = (x: Node, low: number, high: number): Node => minimum(maximum(x, low), high);
export const square = (x: Node): Node => mul(x, x);

/** `a` where the condition holds, `b` elsewhere. */
export function where(condition: Node, a: Operand, b: Operand): Node {
  if (condition.dtype !== "bool") throw graphError(`where: the condition is ${condition.dtype}, not bool`);
  const [left, right] = operands(a, b);
  const both = broadcast(left.shape, right.shape);
  const shape = both && broadcast(condition.shape, both);
  if (!shape || left.dtype !== right.dtype) throw mismatch("where", condition, left, right);
  return makeNode("where", [condition, left, right], {}, { shape, dtype: left.dtype });
}

export function cast(x: Node, dtype: DType): Node {
  return x.dtype === dtype ? x : makeNode("cast", [x], {}, { shape: x.shape, dtype });
}

// ---------------------------------------------------------------- reductions

/** The sum over `axes` (all of them by default); with `keep` they stay as dimensions of size 1. */
export const sum = (x: Node, axes?: readonly number[], keep = false): Node => reduce("sum", x, axes, keep);
/** The largest value over `axes`. */
export const max = (x: Node, axes?: readonly number[], keep = false): Node => reduce("max", x, axes, keep);

/** Along the last axis. */
export const softmax = (x: Node): Node => makeNode("softmax", [x], {}, x);
/** Along the last axis. */
export const logSoftmax = (x: Node): Node => makeNode("logSoftmax", [x], {}, x);

// ---------------------------------------------------------------- shape

export function reshape(x: Node, shape: Shape): Node {
  const target = shape.map(dim);
  if (product(x.shape) !== product(target)) {
    throw graphError(`reshape: ${formatShape(x.shape)} and ${formatShape(target)} differ in size`);
  }
  return sameShape(x.shape, target) ? x : makeNode("reshape", [x], {}, { shape: target, dtype: x.dtype });
}

/** Axis `order[i]` of `x` becomes axis `i`; by default the axes are reversed. */
export function transpose(
  x: Node,
  order: readonly number[] = x.shape.map((_, axis) => x.shape.length - 1 - axis),
): Node {
  if ([...order].sort((a, b) => a - b).some((axis, i) => axis !== i) || order.length !== x.shape.length) {
    throw graphError(`transpose: [${order}] is not an order of the axes of ${formatShape(x.shape)}`);
  }
  return makeNode("transpose", [x], { order }, { shape: order.map((axis) => x.shape[axis]!), dtype: x.dtype });
}

export function broadcastTo(x: Node, shape: Shape): Node {
  const target = shape.map(dim);
  const result = broadcast(x.shape, target);
  if (!result || !sameShape(result, target)) {
    throw graphError(`broadcastTo: ${formatShape(x.shape)} does not spread to ${formatShape(target)}`);
  }
  return sameShape(x.shape, target) ? x : makeNode("broadcastTo", [x], {}, { shape: target, dtype: x.dtype });
}

/** Positions `start` to `end` (not included) of an axis. */
export function slice(x: Node, axis: number, start: Dim, end: Dim): Node {
  const size = x.shape[axis];
  if (size === undefined) throw graphError(`slice: ${formatShape(x.shape)} has no axis ${axis}`);
  if (start === 0 && end === size) return x;
  if (typeof size === typeof end && !fits(end, size)) {
    throw graphError(`slice: ${start} to ${end} is not in axis ${axis} of ${formatShape(x.shape)}`);
  }
  const shape = x.shape.map((d, i) => (i === axis ? minus(end, start) : d));
  return makeNode("slice", [x], { axis, start }, { shape, dtype: x.dtype });
}

/** `x` between zeros along an axis, `total` long. */
export function pad(x: Node, axis: number, before: Dim, total: Dim): Node {
  const size = x.shape[axis];
  if (size === undefined) throw graphError(`pad: ${formatShape(x.shape)} has no axis ${axis}`);
  if (total === size) return x;
  if (!fits(plus(before, size), total)) {
    throw graphError(`pad: ${formatShape(x.shape)} after ${before} does not fit in ${total} along axis ${axis}`);
  }
  const shape = x.shape.map((d, i) => (i === axis ? total : d));
  return makeNode("pad", [x], { axis, before }, { shape, dtype: x.dtype });
}

export function concat(parts: readonly Node[], axis: number): Node {
  const [first] = parts;
  if (first === undefined) throw graphError("concat: there is nothing to join");
  if (parts.length === 1) return first;
  for (const part of parts) {
    const fits =
      part.dtype === first.dtype &&
      axis in part.shape &&
      part.shape.length === first.shape.length &&
      part.shape.every((d, i) => i === axis || d === first.shape[i]);
    if (!fits) throw mismatch("concat", ...parts);
  }
  const total = parts.map((part) => part.shape[axis]!).reduce(plus);
  const shape = first.shape.map((d, i) => (i === axis ? total : d));
  return makeNode("concat", parts, { axis }, { shape, dtype: first.dtype });
}

// ---------------------------------------------------------------- indexing

/** Rows of `table` [rows, …], one for each entry of `ids`: the result is [...ids, …]. */
export function take(table: Node, ids: Node): Node {
  expectIds("take", ids);
  const shape = [...ids.shape, ...table.shape.slice(1)];
  return makeNode("take", [table, ids], {}, { shape, dtype: table.dtype });
}

/** Zeros [count, width], with each row of `rows` [n, width] added at the row `ids` [n]. */
export function scatterRows(ids: Node, rows: Node, count: Dim): Node {
  expectIds("scatterRows", ids);
  if (ids.shape.length !== 1 || rows.shape.length !== 2 || ids.shape[0] !== rows.shape[0]) {
    throw mismatch("scatterRows", ids, rows);
  }
  return makeNode("scatterRows", [ids, rows], {}, { shape: [count, rows.shape[1]!], dtype: rows.dtype });
}

/** One value of each row: `x[i, ids[i]]`, [n, width] -> [n]. */
export function pick(x: Node, ids: Node): Node {
  expectIds("pick", ids);
  if (x.shape.length !== 2 || !sameShape(ids.shape, [x.shape[0]!])) throw mismatch("pick", x, ids);
  return makeNode("pick", [x, ids], {}, { shape: ids.shape, dtype: x.dtype });
}

/** The transpose of `pick`: zeros [n, width] with `values[i]` at `[i, ids[i]]`. */
export function place(values: Node, ids: Node, width: Dim): Node {
  expectIds("place", ids);
  if (!sameShape(values.shape, ids.shape) || ids.shape.length !== 1) throw mismatch("place", values, ids);
  return makeNode("place", [values, ids], {}, { shape: [ids.shape[0]!, width], dtype: values.dtype });
}

/**
 * Rows of `x` [count, …] in another order: `x[index]`, where `inverse` [count] is the place of each row of `x` in the
 * flat result. The gradient is taken through `inverse` only, with no sum by index: rows that are not in the result must
 * be masked before, and other entries of the result (padding) must not reach the loss.
 */
export function rearrange(x: Node, index: Node, inverse: Node): Node {
  expectIds("rearrange", index);
  expectIds("rearrange", inverse);
  if (!sameShape(x.shape.slice(0, 1), inverse.shape)) throw mismatch("rearrange", x, inverse);
  const shape = [...index.shape, ...x.shape.slice(1)];
  return makeNode("rearrange", [x, index, inverse], {}, { shape, dtype: x.dtype });
}

// ---------------------------------------------------------------- products

/** The matrix product over the last two axes, either side transposed first, times `alpha`. Leading axes are equal. */
export function matmul(a: Node, b: Node, options: { transA?: boolean; transB?: boolean; alpha?: number } = {}): Node {
  const { transA = false, transB = false, alpha = 1 } = options;
  const rank = a.shape.length;
  const [rows, inner] = matrixDims(a, transA);
  const [otherInner, columns] = matrixDims(b, transB);
  const leading = a.shape.slice(0, -2);
  if (rank < 2 || b.shape.length !== rank || inner !== otherInner || !sameShape(leading, b.shape.slice(0, -2))) {
    throw graphError(
      `matmul: ${formatShape(a.shape)}${transA ? "ᵀ" : ""} and ${formatShape(b.shape)}${transB ? "ᵀ" : ""} do not fit`,
    );
  }
  if (a.dtype !== "f32" || b.dtype !== "f32") throw mismatch("matmul", a, b);
  const shape = [...leading, rows, columns];
  return makeNode("matmul", [a, b], { transA, transB, alpha }, { shape, dtype: a.dtype });
}

/** `x Wᵀ` (+ bias) for rows `x` [n, in] and a weight in Hugging Face's layout [out, in]. */
export function linear(x: Node, weight: Node, bias?: Node): Node {
  const y = matmul(x, weight, { transB: true });
  return bias === undefined ? y : add(y, bias);
}

// ---------------------------------------------------------------- layers

/** `x / rms(x) * weight` along the last axis. */
export function rmsNorm(x: Node, weight: Node, eps: number): Node {
  if (!sameShape(weight.shape, x.shape.slice(-1)) || typeof weight.shape[0] !== "number") {
    throw mismatch("rmsNorm", x, weight); // the width is part of the gradient
  }
  return makeNode("rmsNorm", [x, weight], { eps }, x);
}

/** `1 / rms(x)` along the last axis, which stays with size 1. */
export function rmsInverse(x: Node, eps: number): Node {
  return makeNode("rmsInverse", [x], { eps }, { shape: [...x.shape.slice(0, -1), 1], dtype: x.dtype });
}

/**
 * Rotary position embedding of `x` [batch, heads, time, size] by the tables `cos` and `sin` [time, size / 2]: the
 * pair (x[i], x[i + size/2]) is rotated by the angle of its position. Heads may also lie side by side:
 * [batch, time, heads * size].
 */
export function rope(x: Node, cos: Node, sin: Node): Node {
  const time = x.shape[x.shape.length - 2]!;
  const size = x.shape.length === 4 ? x.shape[3] : typeof cos.shape[1] === "number" ? 2 * cos.shape[1] : undefined;
  const width = x.shape[x.shape.length - 1];
  const isWhole = typeof size === "number" && typeof width === "number" && width % size === 0;
  const isRank = x.shape.length === 3 || x.shape.length === 4;
  if (!isRank || !isWhole || !sameShape(cos.shape, [time, size / 2]) || !sameShape(sin.shape, cos.shape)) {
    throw mismatch("rope", x, cos, sin);
  }
  return makeNode("rope", [x, cos, sin], {}, x);
}

/**
 * Causal attention: query [batch, heads, time, size] over key [batch, kvHeads, time, size] and value [batch, kvHeads,
 * time, valueSize], where each key head serves heads / kvHeads query heads. The result is [batch, heads, time,
 * valueSize].
 */
export function attention(query: Node, key: Node, value: Node, attrs: AttentionAttrs): Node {
  const [batch, heads, time, size] = query.shape;
  const kvHeads = key.shape[1];
  const valueSize = value.shape[3];
  const isGrouped = typeof heads === "number" && typeof kvHeads === "number" && heads % kvHeads === 0;
  const fits =
    query.shape.length === 4 &&
    valueSize !== undefined &&
    isGrouped &&
    sameShape(key.shape, [batch!, kvHeads, time!, size!]) &&
    sameShape(value.shape, [batch!, kvHeads, time!, valueSize]);
  if (!fits) throw mismatch("attention", query, key, value);
  const shape = [batch!, heads, time!, valueSize];
  return makeNode("attention", [query, key, value], attrs, { shape, dtype: query.dtype });
}

/** What attention over a cache reads and writes besides queries, keys and values. */
export type Cache = {
  readonly key: Node; // [batch, kvHeads, capacity, size]
  readonly value: Node; // [batch, kvHeads, capacity, size]
  /** How many tokens each row has, including those of this call: [batch]. */
  readonly lengths: Node;
  /** The largest of `lengths`: [1]. */
  readonly total: Node;
  readonly cos: Node; // [positions, size / 2]
  readonly sin: Node; // [positions, size / 2]
  /** The row of the tables by which a token is rotated: [batch, time]. */
  readonly positions: Node;
};

/**
 * Causal attention of new tokens over themselves and over the tokens in the cache. The keys and values of the new
 * tokens are added to the cache: query [batch, time, heads * size], key and value [batch, time, kvHeads * size]. Either
 * all rows begin here (`time` is `total`; shorter rows end in padding), or one row is continued, or every row by one
 * token.
 */
export function cachedAttention(
  query: Node,
  key: Node,
  value: Node,
  { cache, ...attrs }: CachedAttentionAttrs & { readonly cache: Cache },
): Node {
  const { heads, kvHeads } = attrs;
  const [batch, time] = query.shape;
  const size = cache.key.shape[3];
  const capacity = cache.key.shape[2];
  const fits =
    typeof size === "number" &&
    size % 16 === 0 &&
    sameShape(query.shape, [batch!, time!, heads * size]) &&
    sameShape(key.shape, [batch!, time!, kvHeads * size]) &&
    sameShape(value.shape, key.shape) &&
    sameShape(cache.key.shape, [batch!, kvHeads, capacity!, size]) &&
    sameShape(cache.value.shape, cache.key.shape) &&
    sameShape(cache.cos.shape.slice(1), [size / 2]) &&
    sameShape(cache.sin.shape, cache.cos.shape) &&
    sameShape(cache.positions.shape, [batch!, time!]) &&
    sameShape(cache.lengths.shape, [batch!]) &&
    sameShape(cache.total.shape, [1]);
  if (!fits) throw mismatch("cachedAttention", query, key, value, ...Object.values(cache));
  for (const ids of [cache.lengths, cache.total, cache.positions]) expectIds("cachedAttention", ids);
  const given = [cache.key, cache.value, cache.lengths, cache.total, cache.cos, cache.sin, cache.positions];
  return makeNode("cachedAttention", [query, key, value, ...given], attrs, query);
}

/** The cache after `attended`, a `cachedAttention`, with its new tokens; it may be written over the old cache. */
export function cacheAfter(attended: Node, part: "key" | "value"): Node {
  if (attended.op !== "cachedAttention") throw graphError(`cacheAfter: ${attended.op} has no cache`);
  return makeNode("cacheAfter", [attended], { part }, attended.inputs[part === "key" ? 3 : 4]!);
}

/** `activation(gate) * up`. */
export function gated(gate: Node, up: Node, activation: Activation): Node {
  if (!sameShape(gate.shape, up.shape)) throw mismatch("gated", gate, up);
  return makeNode("gated", [gate, up], { activation }, gate);
}

/**
 * Log-probability of `targets` [n] under `softmax(hidden Wᵀ)`, for rows `hidden` [n, width] and W [vocabulary, width].
 */
export function tokenLogprobs(hidden: Node, weight: Node, targets: Node, attrs: HeadAttrs): Node {
  expectIds("tokenLogprobs", targets);
  if (!isHead(hidden, weight) || !sameShape(targets.shape, hidden.shape.slice(0, 1))) {
    throw mismatch("tokenLogprobs", hidden, weight, targets);
  }
  return makeNode("tokenLogprobs", [hidden, weight, targets], attrs, { shape: targets.shape, dtype: "f32" });
}

/** Entropy of `softmax(hidden Wᵀ)`, [n]. */
export function tokenEntropy(hidden: Node, weight: Node, attrs: HeadAttrs): Node {
  if (!isHead(hidden, weight)) throw mismatch("tokenEntropy", hidden, weight);
  return makeNode("tokenEntropy", [hidden, weight], attrs, { shape: hidden.shape.slice(0, 1), dtype: "f32" });
}

// ---------------------------------------------------------------- shared by the above

function operands(a: Operand, b: Operand): [Node, Node] {
  const dtype = typeof a !== "number" ? a.dtype : typeof b !== "number" ? b.dtype : "f32";
  const node = (x: Operand) => (typeof x === "number" ? constant(x, [], dtype) : x);
  return [node(a), node(b)];
}

type Binary = "add" | "sub" | "mul" | "div" | "minimum" | "maximum" | "greater" | "equal";

function elementwise(op: Binary, a: Operand, b: Operand, dtype?: DType): Node {
  const [left, right] = operands(a, b);
  const shape = broadcast(left.shape, right.shape);
  if (!shape || left.dtype !== right.dtype) throw mismatch(op, left, right);
  return makeNode(op, [left, right], {}, { shape, dtype: dtype ?? left.dtype });
}

type Unary = "neg" | "exp" | "log" | "sqrt" | "abs" | "tanh" | "sigmoid" | "silu" | "erf";

function unary(op: Unary, x: Node): Node {
  if (x.dtype !== "f32") throw graphError(`${op}: the input is ${x.dtype}, not f32`);
  return makeNode(op, [x], {}, x);
}

function reduce(op: "sum" | "max", x: Node, axes: readonly number[] = x.shape.map((_, i) => i), keep: boolean): Node {
  const positive = axes.map((axis) => (axis < 0 ? axis + x.shape.length : axis)).sort((a, b) => a - b);
  if (positive.some((axis) => axis < 0 || axis >= x.shape.length)) {
    throw graphError(`${op}: axes [${axes}] are not all in ${formatShape(x.shape)}`);
  }
  if (positive.length === 0) return x;
  const kept = x.shape.map((d, axis) => (positive.includes(axis) ? 1 : d));
  const reduced = makeNode(op, [x], { axes: positive }, { shape: kept, dtype: x.dtype });
  return keep
    ? reduced
    : reshape(
        reduced,
        x.shape.filter((_, axis) => !positive.includes(axis)),
      );
}

function matrixDims(x: Node, transposed: boolean): [Dim | undefined, Dim | undefined] & [Dim, Dim] {
  const [rows, columns] = x.shape.slice(-2);
  if (rows === undefined || columns === undefined) throw graphError(`matmul: ${formatShape(x.shape)} is not a matrix`);
  return transposed ? [columns, rows] : [rows, columns];
}

function isHead(hidden: Node, weight: Node): boolean {
  return hidden.shape.length === 2 && weight.shape.length === 2 && hidden.shape[1] === weight.shape[1];
}

/** Whether one length is at most the other, for any values of their symbols. */
function fits(length: Dim, total: Dim): boolean {
  try {
    minus(total, length);
    return true;
  } catch {
    return false;
  }
}

function expectIds(op: Op, ids: Node): void {
  if (ids.dtype !== "i32") throw graphError(`${op}: the ids are ${ids.dtype}, not i32`);
}

function mismatch(op: Op, ...nodes: readonly Node[]): Error {
  return graphError(
    `${op}: ${nodes.map((node) => `${node.dtype}${formatShape(node.shape)}`).join(" and ")} do not fit`,
  );
}
