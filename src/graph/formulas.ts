/**
 * Formulas that several passes write out: `vjp.ts` in gradients, `lower.ts` in forward passes, and `nn/` and the engine
 * where they need the logits themselves. Written once, they become the same nodes, which are computed once.
 */
import type { HeadAttrs, Node } from "./node.ts";
import * as o from "./ops.ts";

export const GELU_SCALE = Math.sqrt(2 / Math.PI);
export const GELU_CUBIC = 0.044715;

/** `tanh(√(2/π) (x + 0.044715 x³))`, the inner part of the approximate GELU. */
export function geluTanhInner(x: Node): Node {
  return o.tanh(o.mul(o.mul(x, o.add(o.mul(o.square(x), GELU_CUBIC), 1)), GELU_SCALE));
}

/** The logits of a language-model head: `cap(hidden Wᵀ) / temperature`. */
export function headLogits(hidden: Node, weight: Node, { softcap, temperature }: HeadAttrs): Node {
  if (softcap === null) return o.matmul(hidden, weight, { transB: true, alpha: 1 / temperature });
  const raw = o.matmul(hidden, weight, { transB: true, alpha: 1 / softcap });
  return o.mul(o.tanh(raw), softcap / temperature);
}
