/**
 * The verifier: what must hold for any program, whoever built it. It runs before every compilation. An error means a
 * bug in a rule or a pass; it names the node and the path to it.
 *
 * The table is total over the operations: how many inputs each takes, and which shape follows from them.
 */
import { GraphError } from "../util/errors.ts";
import { type Node, type NodeOf, type Op, topological } from "./node.ts";
import { broadcast, dim, formatShape, product, type Shape, sameShape } from "./shape.ts";

/** Throw a `GraphError` at the first node that breaks a rule. */
export function check(outputs: Readonly<Record<string, Node>>): void {
  const inputs = new Map<string, Node>();
  for (const node of topological(Object.values(outputs))) {
    const problem = problemOf(node, inputs);
    if (problem !== null) throw new GraphError(node.path, `${node.op}: ${problem}`);
    if (node.op === "input") inputs.set(node.attrs.name, node);
  }
}

function problemOf(node: Node, inputs: ReadonlyMap<string, Node>): string | null {
  const rule = rules[node.op] as Rule<Op>; // the table's type pairs each rule with its operation
  if (rule.inputs !== null && node.inputs.length !== rule.inputs)
    return `has ${node.inputs.length} inputs, not ${rule.inputs}`;
  if (node.shape.some((d) => d !== dim(d))) return `the shape ${formatShape(node.shape)} is not in canonical form`;
  if (node.op === "input") {
    const twin = inputs.get(node.attrs.name);
    if (twin !== undefined && !sameType(twin, node)) return `\`${node.attrs.name}\` is declared twice, differently`;
  }
  return rule.problem(node);
}

type Rule<O extends Op> = {
  /** How many inputs the operation takes; null where the caller chooses. */
  readonly inputs: number | null;
  /** What is wrong with the shape or the dtypes; null if nothing is. */
  problem(node: NodeOf<O>): string | null;
};

const rules: { [O in Op]: Rule<O> } = {
  input: byAttributes(0),
  constant: byAttributes(0),
  causalMask: byAttributes(0),

  add: elementwise(2),
  sub: elementwise(2),
  mul: elementwise(2),
  div: elementwise(2),
  minimum: elementwise(2),
  maximum: elementwise(2),
  greater: elementwise(2),
  equal: elementwise(2),
  where: elementwise(3, 1),
  neg: likeFirst(1),
  exp: likeFirst(1),
  log: likeFirst(1),
  sqrt: likeFirst(1),
  abs: likeFirst(1),
  tanh: likeFirst(1),
  sigmoid: likeFirst(1),
  silu: likeFirst(1),
  erf: likeFirst(1),
  cast: likeFirst(1),
  stopGradient: likeFirst(1),

  sum: reduction(),
  max: reduction(),
  softmax: likeFirst(1),
  logSoftmax: likeFirst(1),

  reshape: {
    inputs: 1,
    problem: ({ inputs: [x], shape }) =>
      product(x!.shape) === product(shape)
        ? null
        : `the shape is ${formatShape(shape)} where the input has ${formatShape(x!.shape)}`,
  },
  transpose: shaped(1, ({ inputs: [x], attrs }) => attrs.order.map((axis) => x!.shape[axis] ?? 0)),
  broadcastTo: byAttributes(1),
  slice: byAttributes(1),
  pad: byAttributes(1),
  concat: byAttributes(null),

  take: byAttributes(2),
  scatterRows: byAttributes(2),
  pick: byAttributes(2),
  place: byAttributes(2),
  rearrange: byAttributes(3),

  matmul: shaped<"matmul">(2, productShape),
  gemm: shaped<"gemm">(3, productShape),

  rmsNorm: likeFirst(2),
  rmsInverse: byAttributes(1),
  rope: likeFirst(3),
  attention: shaped(3, ({ inputs: [query, , value] }) => [...query!.shape.slice(0, -1), ...value!.shape.slice(-1)]),
  attentionGradQuery: byAttributes(5),
  attentionGradKey: byAttributes(5),
  attentionGradValue: byAttributes(5),
  cachedAttention: likeFirst(10),
  cacheAfter: byAttributes(1),
  gated: likeFirst(2),
  tokenLogprobs: byAttributes(3),
  tokenEntropy: byAttributes(2),
};

/** The shape follows from more than the inputs' shapes; `ops.ts` checks it when the node is traced. */
function byAttributes(inputs: number | null): Rule<Op> {
  return { inputs, problem: () => null };
}

/** The shape is what `expected` derives from the inputs. */
function shaped<O extends Op>(inputs: number, expected: (node: NodeOf<O>) => Shape): Rule<O> {
  return { inputs, problem: (node) => difference(node, expected(node)) };
}

function likeFirst(inputs: number): Rule<Op> {
  return shaped(inputs, (node) => node.inputs[0]!.shape);
}

function reduction(): Rule<"sum" | "max"> {
  return shaped(1, ({ inputs: [x], attrs }) => x!.shape.map((d, axis) => (attrs.axes.includes(axis) ? 1 : d)));
}

/** Inputs broadcast to the shape; those from index `from` on have one dtype. */
function elementwise(inputs: number, from = 0): Rule<Op> {
  return {
    inputs,
    problem: (node) => {
      const spread = (shape: Shape | null, x: Node) => shape && broadcast(shape, x.shape);
      const expected = node.inputs.reduce<Shape | null>(spread, []);
      const values = node.inputs.slice(from);
      const problem = expected && difference(node, expected);
      if (problem !== null) return problem;
      const isMixed = values.some(({ dtype }) => dtype !== values[0]!.dtype);
      return expected === null || isMixed ? `${node.inputs.map(formatType).join(" and ")} do not fit` : null;
    },
  };
}

function productShape({ inputs: [a, b], attrs }: NodeOf<"matmul"> | NodeOf<"gemm">): Shape {
  const rows = a!.shape[a!.shape.length - (attrs.transA ? 1 : 2)]!;
  const columns = b!.shape[b!.shape.length - (attrs.transB ? 2 : 1)]!;
  return [...a!.shape.slice(0, -2), rows, columns];
}

function difference({ shape }: { readonly shape: Shape }, expected: Shape): string | null {
  if (sameShape(expected, shape)) return null;
  return `the shape is ${formatShape(shape)} where the inputs say ${formatShape(expected)}`;
}

function formatType({ dtype, shape }: Node): string {
  return `${dtype}${formatShape(shape)}`;
}

function sameType(a: Node, b: Node): boolean {
  return a.dtype === b.dtype && sameShape(a.shape, b.shape);
}
