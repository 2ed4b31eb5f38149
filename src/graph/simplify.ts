/**
 * The same program with less to do: equal nodes become one, steps that change nothing are removed, sums are fused into
 * products.
 *
 * The table of rules is total over the operations; a rule looks at one node whose inputs are already simple. Nodes that
 * no output needs drop out, because only nodes that outputs reach are visited.
 */
import { atPath, makeNode, type Node, type NodeOf, type Op, rebuild, topological } from "./node.ts";
import * as o from "./ops.ts";
import { sameShape } from "./shape.ts";

/** The same outputs from fewer and cheaper nodes. */
export function simplify(outputs: readonly Node[]): Node[] {
  const share = sharing();
  return fuseSums(rebuild(outputs, (node) => share(reduceNode(node))));
}

/** A function that returns the first node made with the same operation, inputs, attributes and type. */
function sharing(): (node: Node) => Node {
  const ids = new Map<Node, number>(); // of canonical nodes
  const canonical = new Map<Node, Node>();
  const known = new Map<string, Node>();
  const share = (node: Node): Node => {
    const before = canonical.get(node);
    if (before !== undefined) return before;
    const inputs = node.inputs.map(share);
    const key = JSON.stringify([node.op, inputs.map((x) => ids.get(x)), node.attrs, node.shape, node.dtype], spell);
    let result = known.get(key);
    if (result === undefined) {
      const same = inputs.every((x, i) => x === node.inputs[i]);
      result = same ? node : atPath(node.path, () => makeNode(node.op, inputs, node.attrs, node));
      ids.set(result, known.size);
      known.set(key, result);
      canonical.set(result, result);
    }
    canonical.set(node, result);
    return result;
  };
  return share;
}

/** JSON writes every number that is not finite as null, and -0 as 0. */
function spell(_: string, value: unknown): unknown {
  if (Object.is(value, -0)) return "-0";
  return typeof value === "number" && !Number.isFinite(value) ? String(value) : value;
}

type Rule<O extends Op> = (node: NodeOf<O>) => Node;

/** For each operation: the simplest node that gives the same result. */
const rules: { [O in Op]: Rule<O> } = {
  add: (node) => without(0, node) ?? node,
  mul: (node) => without(1, node) ?? foldScalars(node),
  div: (node) => {
    const [a, b] = node.inputs;
    return isConstant(b!, 1) && sameShape(a!.shape, node.shape) ? a! : node;
  },
  neg: (node) => {
    const [x] = node.inputs;
    return x!.op === "neg" ? x!.inputs[0]! : node;
  },
  reshape: (node) => {
    const [x] = node.inputs;
    return x!.op === "reshape" ? o.reshape(x!.inputs[0]!, node.shape) : node;
  },
  transpose: (node) => {
    const [x] = node.inputs;
    if (x!.op !== "transpose") return node;
    const inner = x!.attrs.order;
    const order = node.attrs.order.map((axis) => inner[axis]!);
    return order.every((axis, i) => axis === i) ? x!.inputs[0]! : o.transpose(x!.inputs[0]!, order);
  },

  input: unchanged,
  constant: unchanged,
  causalMask: unchanged,
  sub: unchanged,
  minimum: unchanged,
  maximum: unchanged,
  exp: unchanged,
  log: unchanged,
  sqrt: unchanged,
  abs: unchanged,
  tanh: unchanged,
  sigmoid: unchanged,
  silu: unchanged,
  erf: unchanged,
  greater: unchanged,
  equal: unchanged,
  where: unchanged,
  cast: unchanged,
  stopGradient: unchanged,
  sum: unchanged,
  max: unchanged,
  softmax: unchanged,
  logSoftmax: unchanged,
  broadcastTo: unchanged,
  slice: unchanged,
  pad: unchanged,
  concat: unchanged,
  take: unchanged,
  scatterRows: unchanged,
  pick: unchanged,
  place: unchanged,
  rearrange: unchanged,
  matmul: unchanged,
  gemm: unchanged,
  rmsNorm: unchanged,
  rmsInverse: unchanged,
  rope: unchanged,
  attention: unchanged,
  attentionGradQuery: unchanged,
  attentionGradKey: unchanged,
  attentionGradValue: unchanged,
  cachedAttention: unchanged,
  cacheAfter: unchanged,
  gated: unchanged,
  tokenLogprobs: unchanged,
  tokenEntropy: unchanged,
};

function reduceNode(node: Node): Node {
  return (rules[node.op] as (node: Node) => Node)(node); // the table's type pairs each rule with its operation
}

/** Nothing to simplify. */
function unchanged(node: Node): Node {
  return node;
}

/** The other input of a sum or product with a neutral constant; null if there is none. */
function without(neutral: number, { inputs: [a, b], shape }: NodeOf<"add"> | NodeOf<"mul">): Node | null {
  if (isConstant(a!, neutral) && sameShape(b!.shape, shape)) return b!;
  return isConstant(b!, neutral) && sameShape(a!.shape, shape) ? a! : null;
}

/** The product of two scalars that are known at compile time. */
function foldScalars(node: NodeOf<"mul">): Node {
  const [a, b] = node.inputs;
  if (a!.op !== "constant" || b!.op !== "constant" || node.shape.length > 0) return node;
  return o.constant(a!.attrs.values[0]! * b!.attrs.values[0]!, [], node.dtype);
}

/**
 * `x + A·B` becomes one product that starts from `x`, where nothing else needs `A·B`: the runtime adds while it
 * multiplies, which saves a pass over memory.
 */
function fuseSums(outputs: readonly Node[]): Node[] {
  const uses = new Map<Node, number>();
  const use = (node: Node) => uses.set(node, (uses.get(node) ?? 0) + 1);
  outputs.forEach(use);
  for (const node of topological(outputs)) node.inputs.forEach(use);
  return rebuild(outputs, (node, before) => {
    if (node.op !== "add") return node;
    const at = before.inputs.findLastIndex((x) => x.op === "matmul" && x.shape.length === 2 && uses.get(x) === 1);
    const product = node.inputs[at];
    const start = node.inputs[1 - at];
    if (product?.op !== "matmul" || start === undefined || !canStartFrom(start, product)) return node;
    return makeNode("gemm", [...product.inputs, start], product.attrs, node);
  });
}

function canStartFrom(start: Node, product: Node): boolean {
  return sameShape(start.shape, product.shape) || sameShape(start.shape, product.shape.slice(1));
}

function isConstant(node: Node, value: number): boolean {
  return node.op === "constant" && node.attrs.values.every((v) => v === value);
}
