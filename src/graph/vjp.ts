/**
 * Reverse-mode differentiation: one rule per operation, and the pass that applies them.
 *
 * A rule gets the node `y` and the cotangent `dy` (the gradient of the final scalar with respect to `y`) and returns
 * the cotangent of each input, or null where there is none. Rules reuse forward nodes; the common ones are shared when
 * the program is simplified. Layers have rules of their own, in the forms that are cheap to run.
 */
import { invariant } from "../util/errors.ts";
import { GELU_CUBIC, GELU_SCALE, geluTanhInner, headLogits } from "./formulas.ts";
import {
  type Activation,
  atPath,
  type HeadAttrs,
  makeNode,
  type Node,
  type NodeOf,
  type Op,
  topological,
} from "./node.ts";
import * as o from "./ops.ts";
import { type Dim, plus as endOf, type Shape, sameShape, times as timesDim } from "./shape.ts";

type Vjp<O extends Op> = (y: NodeOf<O>, dy: Node) => readonly (Node | null)[];

/** The cotangent of each input of `y`, given `dy`, the cotangent of `y` itself. */
const vjp: { [O in Op]: Vjp<O> } = {
  input: () => [],
  constant: () => [],
  causalMask: () => [],

  add: ({ inputs }, dy) => inputs.map((x) => sumTo(dy, x.shape)),
  sub: (y, dy) => [sumTo(dy, first(y).shape), sumTo(o.neg(dy), second(y).shape)],
  mul: (y, dy) => {
    const [a, b] = pair(y);
    return [sumTo(o.mul(dy, b), a.shape), sumTo(o.mul(dy, a), b.shape)];
  },
  div: (y, dy) => {
    const [a, b] = pair(y);
    const da = o.div(dy, b);
    return [sumTo(da, a.shape), sumTo(o.neg(o.mul(da, o.div(a, b))), b.shape)];
  },
  // Where the two are equal the gradient goes to the first, so that clamp(x, low, high) passes it on the bounds, as
  // torch.clamp does.
  minimum: (y, dy) => selected(y, dy, o.greater(first(y), second(y))),
  maximum: (y, dy) => selected(y, dy, o.greater(second(y), first(y))),
  neg: (_, dy) => [o.neg(dy)],
  exp: (y, dy) => [o.mul(dy, y)],
  log: (y, dy) => [o.div(dy, first(y))],
  sqrt: (y, dy) => [o.div(o.mul(dy, 0.5), y)],
  abs: (y, dy) => [o.where(o.greater(first(y), 0), dy, o.where(o.greater(0, first(y)), o.neg(dy), 0))],
  tanh: (y, dy) => [o.mul(dy, o.sub(1, o.square(y)))],
  sigmoid: (y, dy) => [o.mul(dy, o.mul(y, o.sub(1, y)))],
  silu: (y, dy) => {
    const s = o.sigmoid(first(y)); // s + y (1 - s)
    return [o.mul(dy, o.add(s, o.mul(y, o.sub(1, s))))];
  },
  erf: (y, dy) => [o.mul(dy, o.mul(2 / Math.sqrt(Math.PI), o.exp(o.neg(o.square(first(y))))))],
  greater: () => [null, null],
  equal: () => [null, null],
  where: (y, dy) => {
    const [condition, a, b] = triple(y);
    return [null, sumTo(o.where(condition, dy, 0), a.shape), sumTo(o.where(condition, 0, dy), b.shape)];
  },
  cast: (y, dy) => [first(y).dtype === "f32" && y.dtype === "f32" ? dy : null],
  stopGradient: () => [null],

  sum: (y, dy) => [o.broadcastTo(dy, first(y).shape)],
  max: (y, dy) => {
    const hit = o.cast(o.equal(first(y), y), "f32");
    return [o.mul(o.div(dy, o.sum(hit, y.attrs.axes, true)), hit)];
  },
  softmax: (y, dy) => [o.mul(y, o.sub(dy, o.sum(o.mul(dy, y), [-1], true)))],
  logSoftmax: (y, dy) => [o.sub(dy, o.mul(o.exp(y), o.sum(dy, [-1], true)))],

  reshape: (y, dy) => [o.reshape(dy, first(y).shape)],
  transpose: (y, dy) => [o.transpose(dy, inverseOrder(y.attrs.order))],
  broadcastTo: (y, dy) => [sumTo(dy, first(y).shape)],
  slice: (y, dy) => [o.pad(dy, y.attrs.axis, y.attrs.start, first(y).shape[y.attrs.axis]!)],
  pad: (y, dy) => {
    const { axis, before } = y.attrs;
    return [sliceLike(dy, axis, before, first(y).shape[axis]!)];
  },
  concat: (y, dy) => {
    const { axis } = y.attrs;
    let start: Dim = 0;
    return y.inputs.map((part) => {
      const piece = sliceLike(dy, axis, start, part.shape[axis]!);
      start = endOf(start, part.shape[axis]!);
      return piece;
    });
  },

  take: (y, dy) => {
    const [table, ids] = pair(y);
    invariant(table.shape.length === 2, "gradients flow through `take` into tables of rows only");
    const width = table.shape[1]!;
    const count = ids.shape.reduce(timesDim, 1);
    return [o.scatterRows(o.reshape(ids, [count]), o.reshape(dy, [count, width]), table.shape[0]!), null];
  },
  scatterRows: (y, dy) => [null, o.take(dy, first(y))],
  pick: (y, dy) => [o.place(dy, second(y), first(y).shape[1]!), null],
  place: (y, dy) => [o.pick(dy, second(y)), null],
  rearrange: (y, dy) => {
    const [x, index, inverse] = triple(y);
    const flat = o.reshape(dy, [index.shape.reduce(timesDim, 1), ...x.shape.slice(1)]);
    return [o.take(flat, inverse), null, null];
  },

  matmul: (y, dy) => matmulVjp(y, dy),
  gemm: (y, dy) => [...matmulVjp(y, dy), sumTo(dy, y.inputs[2]!.shape)],

  rmsNorm: (y, dy) => {
    const [x, weight] = pair(y);
    const width = x.shape[x.shape.length - 1]!;
    const inverse = o.rmsInverse(x, y.attrs.eps); // r = 1 / rms(x)
    const p = o.mul(dy, x);
    // s = Σ dy·x·w per row, as a product with the weight's column: one pass over p.
    const rows = x.shape.slice(0, -1).reduce(timesDim, 1);
    const s = o.reshape(o.matmul(o.reshape(p, [rows, width]), o.reshape(weight, [width, 1])), inverse.shape);
    const c = o.mul(o.mul(s, o.mul(inverse, 1 / Number(width))), o.square(inverse));
    const dx = o.sub(o.mul(o.mul(dy, weight), inverse), o.mul(x, c));
    const dweight = o.matmul(o.reshape(inverse, [1, rows]), o.reshape(p, [rows, width]));
    return [dx, o.reshape(dweight, weight.shape)];
  },
  rmsInverse: (y, dy) => {
    const x = first(y); // d(1/rms)/dx = -x / (width · rms³)
    const width = Number(x.shape[x.shape.length - 1]!);
    return [o.mul(x, o.mul(o.mul(dy, -1 / width), o.mul(y, o.square(y))))];
  },
  rope: (y, dy) => {
    const [, cos, sin] = triple(y); // the transpose of a rotation rotates the other way
    return [o.rope(dy, cos, o.neg(sin)), null, null];
  },
  attention: (y, dy) => {
    const [query, key, value] = triple(y);
    const inputs = [query, key, value, y, dy];
    return [
      makeNode("attentionGradQuery", inputs, y.attrs, query),
      makeNode("attentionGradKey", inputs, y.attrs, key),
      makeNode("attentionGradValue", inputs, y.attrs, value),
    ];
  },
  cachedAttention: notTrained,
  cacheAfter: notTrained,
  attentionGradQuery: onceOnly,
  attentionGradKey: onceOnly,
  attentionGradValue: onceOnly,
  gated: (y, dy) => {
    const [gate, up] = pair(y);
    return activationVjp[y.attrs.activation](gate, up, dy);
  },

  tokenLogprobs: (y, dy) => {
    const [hidden, weight, targets] = triple(y);
    const { softcap, temperature } = y.attrs;
    const logits = headLogits(hidden, weight, y.attrs);
    const probs = o.exp(o.logSoftmax(logits));
    const g = o.reshape(dy, [dy.shape[0]!, 1]);
    if (softcap !== null) {
      const dlogits = o.sub(o.place(dy, targets, weight.shape[0]!), o.mul(probs, g));
      return [...headVjp(hidden, weight, y.attrs, dlogits), null];
    }
    // dlogits = g (onehot - P) is never formed: P goes through two products, the one-hot part is rows of W and hidden.
    const scaled = o.mul(g, 1 / temperature);
    const weighted = o.mul(hidden, scaled);
    const dhidden = o.mul(scaled, o.sub(o.take(weight, targets), o.matmul(probs, weight)));
    const dweight = o.add(
      o.matmul(probs, o.neg(weighted), { transA: true }),
      o.scatterRows(targets, weighted, weight.shape[0]!),
    );
    return [dhidden, dweight, null];
  },
  tokenEntropy: (y, dy) => {
    const [hidden, weight] = pair(y);
    const logprobs = o.logSoftmax(headLogits(hidden, weight, y.attrs));
    const entropy = o.reshape(y, [y.shape[0]!, 1]);
    // dH/dlogits = -P (log P + H)
    const slope = o.mul(o.exp(logprobs), o.add(logprobs, entropy));
    return headVjp(hidden, weight, y.attrs, o.mul(slope, o.neg(o.reshape(dy, [dy.shape[0]!, 1]))));
  },
};

/** d(activation(gate) · up) with respect to gate and up. */
const activationVjp: Record<Activation, (gate: Node, up: Node, dy: Node) => [Node, Node]> = {
  silu: (gate, up, dy) => {
    const s = o.sigmoid(gate);
    const a = o.silu(gate);
    const z = o.mul(a, up); // dgate = dy (z + s (up - z)): one pass fewer than the textbook form
    return [o.mul(dy, o.add(z, o.mul(s, o.sub(up, z)))), o.mul(dy, a)];
  },
  gelu: (gate, up, dy) => {
    const cdf = o.mul(o.add(o.erf(o.mul(gate, Math.SQRT1_2)), 1), 0.5);
    const pdf = o.mul(o.exp(o.mul(o.square(gate), -0.5)), 1 / Math.sqrt(2 * Math.PI));
    return [o.mul(o.mul(dy, up), o.add(cdf, o.mul(gate, pdf))), o.mul(dy, o.mul(gate, cdf))];
  },
  geluTanh: (gate, up, dy) => {
    const t = geluTanhInner(gate);
    const half = o.mul(o.add(t, 1), 0.5);
    const inner = o.mul(o.add(o.mul(o.square(gate), 3 * GELU_CUBIC), 1), GELU_SCALE);
    const slope = o.mul(o.mul(gate, 0.5), o.mul(o.sub(1, o.square(t)), inner));
    return [o.mul(o.mul(dy, up), o.add(half, slope)), o.mul(dy, o.mul(gate, half))];
  },
};

/** Cotangents of hidden and weight from that of the logits. */
function headVjp(hidden: Node, weight: Node, attrs: HeadAttrs, dlogits: Node): [Node, Node] {
  const { softcap, temperature } = attrs;
  const cap = softcap === null ? null : o.tanh(o.matmul(hidden, weight, { transB: true, alpha: 1 / softcap }));
  const draw = cap === null ? dlogits : o.mul(dlogits, o.sub(1, o.square(cap)));
  const alpha = 1 / temperature;
  return [o.matmul(draw, weight, { alpha }), o.matmul(draw, hidden, { transA: true, alpha })];
}

/** For y = A·B with either side transposed: dA = dy·Bᵀ and dB = Aᵀ·dy, transposed back where needed. */
function matmulVjp(y: NodeOf<"matmul"> | NodeOf<"gemm">, dy: Node): [Node, Node] {
  const [a, b] = pair(y);
  const { transA, transB, alpha } = y.attrs;
  const da = transA
    ? o.matmul(b, dy, { transA: transB, transB: true, alpha })
    : o.matmul(dy, b, { transB: !transB, alpha });
  const db = transB
    ? o.matmul(dy, a, { transA: true, transB: transA, alpha })
    : o.matmul(a, dy, { transA: !transA, alpha });
  return [da, db];
}

function onceOnly(): never {
  throw new Error("internal: the gradient of attention is not differentiated again");
}

function notTrained(): never {
  throw new Error("internal: attention over a cache is for sampling and has no gradient");
}

// ---------------------------------------------------------------- the pass

/** The gradient of the scalar `loss` with respect to each node of `wrt`; zeros where it does not depend on it. */
export function grad(loss: Node, wrt: readonly Node[]): Node[] {
  invariant(loss.shape.length === 0, "only a scalar has a gradient");
  const order = topological([loss]);
  const active = nodesThatReach(order, new Set(wrt));
  const parts = new Map<Node, Node[]>([[loss, [o.constant(1)]]]);
  for (const y of order.reverse()) {
    const incoming = parts.get(y);
    if (incoming === undefined || !active.has(y) || y.op === "input") continue;
    atPath(y.path, () => {
      const dy = total(incoming);
      parts.set(y, [dy]);
      rule(y)(y, dy).forEach((dx, i) => {
        const x = y.inputs[i]!;
        if (dx !== null && active.has(x)) parts.set(x, [...(parts.get(x) ?? []), dx]);
      });
    });
  }
  return wrt.map((x) => {
    const incoming = parts.get(x);
    return incoming === undefined ? o.broadcastTo(o.constant(0), x.shape) : total(incoming);
  });
}

/** The rule of a node; the type of the table guarantees that the two belong together. */
function rule(y: Node): (y: Node, dy: Node) => readonly (Node | null)[] {
  return vjp[y.op] as (y: Node, dy: Node) => readonly (Node | null)[];
}

function total(parts: readonly Node[]): Node {
  return parts.reduce((a, b) => o.add(a, b));
}

function nodesThatReach(order: readonly Node[], targets: ReadonlySet<Node>): Set<Node> {
  const active = new Set<Node>();
  for (const node of order) if (targets.has(node) || node.inputs.some((x) => active.has(x))) active.add(node);
  return active;
}

// ---------------------------------------------------------------- helpers of the rules

/** `dy` summed over the axes along which an input of shape `shape` was broadcast. */
function sumTo(dy: Node, shape: Shape): Node {
  if (sameShape(dy.shape, shape)) return dy;
  const extra = dy.shape.length - shape.length;
  const axes = dy.shape.flatMap((d, axis) => (axis < extra || (shape[axis - extra] === 1 && d !== 1) ? [axis] : []));
  return o.reshape(o.sum(dy, axes, true), shape);
}

function selected(y: Node, dy: Node, isSecond: Node): [Node, Node] {
  const [a, b] = pair(y);
  return [sumTo(o.where(isSecond, 0, dy), a.shape), sumTo(o.where(isSecond, dy, 0), b.shape)];
}

function inverseOrder(order: readonly number[]): number[] {
  return order.map((_, axis) => order.indexOf(axis));
}

function sliceLike(x: Node, axis: number, start: Dim, size: Dim): Node {
  return o.slice(x, axis, start, endOf(start, size));
}

function first(y: Node): Node {
  return y.inputs[0]!;
}

function second(y: Node): Node {
  return y.inputs[1]!;
}

function pair(y: Node): [Node, Node] {
  return [y.inputs[0]!, y.inputs[1]!];
}

function triple(y: Node): [Node, Node, Node] {
  return [y.inputs[0]!, y.inputs[1]!, y.inputs[2]!];
}
