/**
 * The nodes of a traced tensor program: immutable values that name an operation, its inputs and its attributes.
 *
 * `OpAttrs` lists every operation there is. Each table of the compiler (`check`, `vjp`, `simplify`, `emit`, the
 * interpreter) is total over it, so an operation without a rule does not compile. Nodes know the scope they were made
 * in (`layers.3.mlp`), which is what error messages show.
 */
import { GraphError } from "../util/errors.ts";
import type { Dim, Shape } from "./shape.ts";

export type DType = "f32" | "i32" | "bool";

type None = Readonly<Record<never, never>>;
export type Activation = "silu" | "gelu" | "geluTanh";
/** How scores become attention weights: `softmax(cap(q·k * scale))` over the last `window` keys. */
export type AttentionAttrs = {
  readonly scale: number;
  readonly window: number | null;
  readonly softcap: number | null;
};
/** The heads are side by side in the last axis, so the operation must know how many there are. */
export type CachedAttentionAttrs = AttentionAttrs & { readonly heads: number; readonly kvHeads: number };
/** How hidden states become a distribution over tokens. */
export type HeadAttrs = { readonly softcap: number | null; readonly temperature: number };
export type MatmulAttrs = { readonly transA: boolean; readonly transB: boolean; readonly alpha: number };

export type OpAttrs = {
  // leaves
  input: { readonly name: string };
  constant: { readonly values: readonly number[] };
  causalMask: { readonly offset: Dim; readonly window: number | null };
  // elementwise
  add: None;
  sub: None;
  mul: None;
  div: None;
  minimum: None;
  maximum: None;
  neg: None;
  exp: None;
  log: None;
  sqrt: None;
  abs: None;
  tanh: None;
  sigmoid: None;
  silu: None;
  erf: None;
  greater: None;
  equal: None;
  where: None;
  cast: None;
  stopGradient: None;
  // reductions and normalisation along axes
  sum: { readonly axes: readonly number[] };
  max: { readonly axes: readonly number[] };
  softmax: None;
  logSoftmax: None;
  // shape
  reshape: None;
  transpose: { readonly order: readonly number[] };
  broadcastTo: None;
  slice: { readonly axis: number; readonly start: Dim };
  pad: { readonly axis: number; readonly before: Dim };
  concat: { readonly axis: number };
  // indexing
  take: None;
  scatterRows: None;
  pick: None;
  place: None;
  rearrange: None;
  // products
  matmul: MatmulAttrs;
  gemm: MatmulAttrs;
  // layers
  rmsNorm: { readonly eps: number };
  rmsInverse: { readonly eps: number };
  rope: None;
  attention: AttentionAttrs;
  attentionGradQuery: AttentionAttrs;
  attentionGradKey: AttentionAttrs;
  attentionGradValue: AttentionAttrs;
  cachedAttention: CachedAttentionAttrs;
  cacheAfter: { readonly part: "key" | "value" };
  gated: { readonly activation: Activation };
  tokenLogprobs: HeadAttrs;
  tokenEntropy: HeadAttrs;
};

export type Op = keyof OpAttrs;

export type NodeOf<O extends Op> = {
  readonly op: O;
  readonly inputs: readonly Node[];
  readonly attrs: OpAttrs[O];
  readonly shape: Shape;
  readonly dtype: DType;
  /** The scope in which the node was made. */
  readonly path: string;
};

/** A node of any operation. */
export type Node = { [O in Op]: NodeOf<O> }[Op];

let currentPath = "";

/** Everything traced inside `build` carries `name` in its path. */
export function scope<T>(name: string, build: () => T): T {
  const outer = currentPath;
  currentPath = outer === "" ? name : `${outer}.${name}`;
  try {
    return build();
  } finally {
    currentPath = outer;
  }
}

/** Everything traced inside `build` carries exactly this path: for passes that rewrite existing nodes. */
export function atPath<T>(path: string, build: () => T): T {
  const outer = currentPath;
  currentPath = path;
  try {
    return build();
  } finally {
    currentPath = outer;
  }
}

/** A `GraphError` at the place that is being traced. */
export function graphError(message: string): GraphError {
  return new GraphError(currentPath, message);
}

/** Make a node; shape rules live in `ops.ts`, so only passes over existing nodes call this directly. */
export function makeNode<O extends Op>(
  op: O,
  inputs: readonly Node[],
  attrs: OpAttrs[O],
  type: { readonly shape: Shape; readonly dtype: DType },
): Node {
  const node: NodeOf<O> = { op, inputs, attrs, shape: type.shape, dtype: type.dtype, path: currentPath };
  return node as Node; // `NodeOf<O>` is a member of the union for every O; TypeScript cannot see it through the generic
}

/** The nodes that `outputs` need; every node comes after its inputs. */
export function topological(outputs: readonly Node[]): Node[] {
  const order: Node[] = [];
  const seen = new Set<Node>();
  // An explicit stack: graphs are thousands of nodes deep.
  const stack: { node: Node; next: number }[] = [];
  for (const output of outputs) {
    if (!seen.has(output)) stack.push({ node: output, next: 0 });
    seen.add(output);
    while (stack.length > 0) {
      const top = stack[stack.length - 1]!;
      const input = top.node.inputs[top.next++];
      if (input === undefined) {
        order.push(top.node);
        stack.pop();
      } else if (!seen.has(input)) {
        seen.add(input);
        stack.push({ node: input, next: 0 });
      }
    }
  }
  return order;
}

/**
 * The same outputs with every node replaced, inputs first: `change` gets a node with the new inputs, and the node as it
 * was. Nodes that it makes carry the path of the node they replace.
 */
export function rebuild(outputs: readonly Node[], change: (node: Node, before: Node) => Node): Node[] {
  const done = new Map<Node, Node>();
  for (const before of topological(outputs)) {
    const inputs = before.inputs.map((x) => done.get(x)!);
    const isSame = inputs.every((x, i) => x === before.inputs[i]);
    const after = atPath(before.path, () =>
      change(isSame ? before : makeNode(before.op, inputs, before.attrs, before), before),
    );
    done.set(before, after);
  }
  return outputs.map((output) => done.get(output)!);
}
