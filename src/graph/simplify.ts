/**
 * The same program with less to do: equal nodes become one, steps that change nothing go, sums go into products.
 *
 * Rules look at one node whose inputs are already simple. Nodes that no output needs are left behind by themselves,
 * because only what outputs reach is walked.
 */
import { atPath, makeNode, type Node, type NodeOf, rebuild, topological } from "./node.ts";
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

function reduceNode(node: Node): Node {
  const [a, b] = node.inputs;
  switch (node.op) {
    case "add":
      if (isConstant(a!, 0) && sameShape(b!.shape, node.shape)) return b!;
      return isConstant(b!, 0) && sameShape(a!.shape, node.shape) ? a! : node;
    case "mul":
      if (isConstant(a!, 1) && sameShape(b!.shape, node.shape)) return b!;
      if (isConstant(b!, 1) && sameShape(a!.shape, node.shape)) return a!;
      return foldScalars(node);
    case "div":
      return isConstant(b!, 1) && sameShape(a!.shape, node.shape) ? a! : node;
    case "neg":
      return a!.op === "neg" ? a!.inputs[0]! : node;
    case "reshape":
      return a!.op === "reshape" ? o.reshape(a!.inputs[0]!, node.shape) : node;
    case "transpose": {
      if (a!.op !== "transpose") return node;
      const inner = a!.attrs.order;
      const order = node.attrs.order.map((axis) => inner[axis]!);
      return order.every((axis, i) => axis === i) ? a!.inputs[0]! : o.transpose(a!.inputs[0]!, order);
    }
    default:
      return node;
  }
}

/** Two scalars known now make one. */
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
