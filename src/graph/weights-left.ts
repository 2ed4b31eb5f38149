/**
 * Products for few rows: `x Wᵀ` becomes `(W xᵀ)ᵀ`, and elementwise operations between two products stay
 * transposed.
 *
 * The kernels copy their right side into blocks before they multiply. With few rows the weight is the larger
 * side, so it belongs on the left (the measurements: docs/compiler.md). Numbers change by rounding only.
 */
import { makeNode, type Node, type Op, rebuild } from "./node.ts";
import * as o from "./ops.ts";

const entrywise: ReadonlySet<Op> = new Set<Op>([
  "add",
  "sub",
  "mul",
  "div",
  "minimum",
  "maximum",
  "neg",
  "exp",
  "log",
  "sqrt",
  "abs",
  "tanh",
  "sigmoid",
  "silu",
  "erf",
] as const);

/** The same outputs, with weights on the left of their products. */
export function weightsLeft(outputs: readonly Node[]): Node[] {
  return rebuild(outputs, (node) => {
    if (node.op === "matmul") {
      const [x, weight] = node.inputs as [Node, Node];
      const { transA, transB, alpha } = node.attrs;
      if (node.shape.length !== 2 || transA || !transB || weight.op !== "input") return node;
      const flipped = transposed(x);
      return o.transpose(flipped ? o.matmul(weight, flipped, { alpha }) : o.matmul(weight, x, { transB: true, alpha }));
    }
    if (!entrywise.has(node.op) || node.shape.length !== 2) return node;
    const inputs = node.inputs.map((x) => (x.shape.length === 0 ? x : transposed(x)));
    if (!inputs.every((x) => x !== null)) return node;
    const [rows, columns] = node.shape as [Node["shape"][number], Node["shape"][number]];
    return o.transpose(makeNode(node.op, inputs, node.attrs, { shape: [columns, rows], dtype: node.dtype }));
  });
}

/** The matrix that `x` is the transpose of; null if it is not a transpose. */
function transposed(x: Node): Node | null {
  return x.op === "transpose" && x.shape.length === 2 && x.attrs.order[0] === 1 ? x.inputs[0]! : null;
}
