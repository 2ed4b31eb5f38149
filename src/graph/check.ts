/**
 * The verifier: what must hold for any program, whoever built it. It runs before every compilation; a finding is a
 * bug in a rule or a pass, and names the node and the path to it.
 */
import { GraphError } from "../util/errors.ts";
import { type Node, type Op, topological } from "./node.ts";
import { broadcast, dim, formatShape, product, type Shape, sameShape } from "./shape.ts";

/** Throw a `GraphError` at the first node that does not hold together. */
export function check(outputs: Readonly<Record<string, Node>>): void {
  const inputs = new Map<string, Node>();
  for (const node of topological(Object.values(outputs))) {
    const fail = (message: string): never => {
      throw new GraphError(node.path, `${node.op}: ${message}`);
    };
    const count = arity[node.op];
    if (count !== null && node.inputs.length !== count) fail(`has ${node.inputs.length} inputs, not ${count}`);
    if (node.shape.some((d) => d !== dim(d))) fail(`the shape ${formatShape(node.shape)} is not in canonical form`);
    if (node.op === "input") {
      const twin = inputs.get(node.attrs.name);
      if (twin !== undefined && !sameType(twin, node)) fail(`\`${node.attrs.name}\` is declared twice, differently`);
      inputs.set(node.attrs.name, node);
    }
    const expected = shapeRule(node);
    if (expected === undefined) fail(`${node.inputs.map(formatType).join(" and ")} do not fit`);
    else if (expected !== null && !sameShape(expected, node.shape)) {
      fail(`the shape is ${formatShape(node.shape)} where the inputs say ${formatShape(expected)}`);
    }
    if (node.op === "reshape" && product(node.inputs[0]!.shape) !== product(node.shape)) {
      fail(`the shape is ${formatShape(node.shape)} where the input has ${formatShape(node.inputs[0]!.shape)}`);
    }
    const values = elementwise.has(node.op) ? node.inputs.slice(node.op === "where" ? 1 : 0) : [];
    if (values.some(({ dtype }) => dtype !== values[0]!.dtype)) {
      fail(`${node.inputs.map(formatType).join(" and ")} do not fit`);
    }
  }
}

/** How many inputs an operation takes; null where that is its caller's choice. */
const arity: Record<Op, number | null> = {
  input: 0,
  constant: 0,
  causalMask: 0,
  concat: null,
  where: 3,
  rearrange: 3,
  gemm: 3,
  rope: 3,
  add: 2,
  sub: 2,
  mul: 2,
  div: 2,
  minimum: 2,
  maximum: 2,
  greater: 2,
  equal: 2,
  neg: 1,
  exp: 1,
  log: 1,
  sqrt: 1,
  abs: 1,
  tanh: 1,
  sigmoid: 1,
  silu: 1,
  erf: 1,
  cast: 1,
  stopGradient: 1,
  sum: 1,
  max: 1,
  softmax: 1,
  logSoftmax: 1,
  reshape: 1,
  transpose: 1,
  broadcastTo: 1,
  slice: 1,
  pad: 1,
  take: 2,
  scatterRows: 2,
  pick: 2,
  place: 2,
  matmul: 2,
  rmsNorm: 2,
  rmsInverse: 1,
  gated: 2,
  attention: 3,
  attentionGradQuery: 5,
  attentionGradKey: 5,
  attentionGradValue: 5,
  cachedAttention: 10,
  cacheAfter: 1,
  tokenLogprobs: 3,
  tokenEntropy: 2,
};

const binary = ["add", "sub", "mul", "div", "minimum", "maximum", "greater", "equal", "where"] as const;
const unary = ["neg", "exp", "log", "sqrt", "abs", "tanh", "sigmoid", "silu", "erf", "cast", "stopGradient"] as const;
const rows = ["softmax", "logSoftmax", "rmsNorm", "rope", "attention", "cachedAttention", "gated"] as const;
const elementwise: ReadonlySet<Op> = new Set(binary);
const shapeOfFirst: ReadonlySet<Op> = new Set([...unary, ...rows]);

/** The shape the node must have; null where the attributes decide, undefined where the inputs do not go together. */
function shapeRule(node: Node): Shape | null | undefined {
  const [a, b] = node.inputs;
  if (elementwise.has(node.op)) {
    return node.inputs.reduce<Shape | undefined>((shape, x) => shape && (broadcast(shape, x.shape) ?? undefined), []);
  }
  if (shapeOfFirst.has(node.op)) return a!.shape;
  if (node.op === "transpose") return node.attrs.order.map((axis) => a!.shape[axis] ?? 0);
  if (node.op === "sum" || node.op === "max") {
    const { axes } = node.attrs;
    return a!.shape.map((d, axis) => (axes.includes(axis) ? 1 : d));
  }
  if (node.op === "matmul" || node.op === "gemm") {
    const rows = a!.shape[a!.shape.length - (node.attrs.transA ? 1 : 2)]!;
    const columns = b!.shape[b!.shape.length - (node.attrs.transB ? 2 : 1)]!;
    return [...a!.shape.slice(0, -2), rows, columns];
  }
  return null;
}

function formatType({ dtype, shape }: Node): string {
  return `${dtype}${formatShape(shape)}`;
}

function sameType(a: Node, b: Node): boolean {
  return a.dtype === b.dtype && sameShape(a.shape, b.shape);
}
