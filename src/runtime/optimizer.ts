/**
 * The optimizer's arithmetic on whole models, in SIMD WebAssembly: see `kernels/kernels.wat`.
 *
 * The same in plain JavaScript takes six times as long, and as an onnxruntime graph it would pass over the memory ten
 * times; this passes once.
 */
import { invariant } from "../util/errors.ts";
import { kernelsBase64 } from "./kernels/kernels.wasm.ts";
import type { Arena } from "./vectors.ts";

/** One AdamW step, in torch's terms; `step` counts from 1. */
export type AdamW = {
  readonly lr: number;
  readonly betas: readonly [number, number];
  readonly eps: number;
  readonly weightDecay: number;
  readonly step: number;
  /** What the gradient is multiplied with first: the clipping factor. */
  readonly gradScale: number;
};

type Kernels = {
  adamw(at: number, end: number, ...numbers: readonly number[]): void;
  sumSquares(at: number, end: number): number;
};

let compiled: WebAssembly.Module | undefined;

function kernelsOf({ memories: { weight, grad, first, second } }: Arena): Kernels {
  invariant(weight && grad && first && second, "the optimizer needs weights, gradients and moments");
  compiled ??= new WebAssembly.Module(Buffer.from(kernelsBase64, "base64"));
  const instance = new WebAssembly.Instance(compiled, { memory: { weight, grad, first, second } });
  return instance.exports as Kernels; // the exports of kernels.wat
}

/** Calls are cut into pieces, so that the code can be replaced by its optimised form early on. */
const PIECE = 1 << 22;

function* pieces(arena: Arena): Iterable<[number, number]> {
  for (let at = 0; at < arena.bytes; at += PIECE) yield [at, Math.min(arena.bytes, at + PIECE)];
}

/** The 2-norm of the whole gradient. */
export function gradientNorm(arenas: readonly Arena[]): number {
  let total = 0;
  for (const arena of arenas) {
    const kernels = kernelsOf(arena);
    for (const [at, end] of pieces(arena)) total += kernels.sumSquares(at, end);
  }
  return Math.sqrt(total);
}

/** What brings a gradient of this norm down to `maxNorm`: torch.nn.utils.clip_grad_norm_. */
export function clipFactor(norm: number, maxNorm: number): number {
  return Math.min(1, maxNorm / (norm + 1e-6));
}

/** Update weights and moments in place. */
export function adamw(arenas: readonly Arena[], o: AdamW): void {
  const [beta1, beta2] = o.betas;
  const stepSize = o.lr / (1 - beta1 ** o.step);
  const root = Math.sqrt(1 - beta2 ** o.step);
  const decay = 1 - o.lr * o.weightDecay;
  for (const arena of arenas) {
    const kernels = kernelsOf(arena);
    for (const [at, end] of pieces(arena)) {
      kernels.adamw(at, end, o.gradScale, decay, 1 - beta1, beta2, 1 - beta2, stepSize, root, o.eps);
    }
  }
}

/** `into[ids[i]] += rows[i]` for rows of `width`: the gradient of a table that was read by row. */
export function scatterAdd(into: Float32Array, ids: Int32Array, rows: Float32Array, width: number): void {
  for (let i = 0; i < ids.length; i++) {
    const from = i * width;
    const to = ids[i]! * width;
    for (let j = 0; j < width; j++) into[to + j] = into[to + j]! + rows[from + j]!;
  }
}
