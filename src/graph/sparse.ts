/** Gradients of tables that are read by row: the dense part, and the rows to be added by index. */
import type { Node } from "./node.ts";
import * as o from "./ops.ts";

export type SparseGradient = {
  /** The part that is not a sum by index; null when there is none. */
  readonly dense: Node | null;
  readonly rows: readonly { readonly ids: Node; readonly rows: Node }[];
};

/**
 * Split a gradient into its dense part and its `scatterRows` terms. Rows can then be added to the gradient in place,
 * which saves a table of zeros and a pass over it per term.
 */
export function splitSparse(gradient: Node): SparseGradient {
  if (gradient.op === "scatterRows") {
    return { dense: null, rows: [{ ids: gradient.inputs[0]!, rows: gradient.inputs[1]! }] };
  }
  if (gradient.op !== "add") return { dense: gradient, rows: [] };
  const [a, b] = gradient.inputs.map(splitSparse);
  const rows = [...a!.rows, ...b!.rows];
  if (rows.length === 0) return { dense: gradient, rows };
  return { dense: a!.dense && b!.dense ? o.add(a!.dense, b!.dense) : (a!.dense ?? b!.dense), rows };
}
