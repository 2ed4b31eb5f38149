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
  /** The gradient is multiplied with this first: the clipping factor. */
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

/** The share of one of several threads: block `index` of `of` equal blocks of pieces. */
export type Share = { readonly index: number; readonly of: number };
const all: Share = { index: 0, of: 1 };

/** Calls are cut into pieces: to share them, and so that the engine can switch to optimised code between calls. */
const PIECE = 1 << 22;

type Piece = { readonly kernels: Kernels; readonly at: number; readonly end: number };

/** The number of pieces. */
export function countPieces(arenas: readonly Arena[]): number {
  return arenas.reduce((total, { bytes }) => total + Math.ceil(bytes / PIECE), 0);
}

function* piecesOf(arenas: readonly Arena[], { index, of }: Share): Iterable<Piece> {
  const count = countPieces(arenas);
  const first = Math.floor((count * index) / of);
  const last = Math.floor((count * (index + 1)) / of);
  let number = 0;
  for (const arena of arenas) {
    const kernels = kernelsOf(arena);
    for (let at = 0; at < arena.bytes; at += PIECE, number++) {
      if (number >= first && number < last) yield { kernels, at, end: Math.min(arena.bytes, at + PIECE) };
    }
  }
}

/** The sum of squares of each piece of the gradient. */
function pieceSquares(arenas: readonly Arena[], share: Share): number[] {
  return Array.from(piecesOf(arenas, share), ({ kernels, at, end }) => kernels.sumSquares(at, end));
}

/** The 2-norm from the sums of all pieces, in order: the same bits with any number of threads. */
export function normOf(squares: readonly number[]): number {
  return Math.sqrt(squares.reduce((a, b) => a + b, 0));
}

/** The 2-norm of the whole gradient. */
export function gradientNorm(arenas: readonly Arena[]): number {
  return normOf(pieceSquares(arenas, all));
}

/** The factor that scales a gradient of this norm down to `maxNorm`: torch.nn.utils.clip_grad_norm_. */
export function clipFactor(norm: number, maxNorm: number): number {
  return Math.min(1, maxNorm / (norm + 1e-6));
}

/** Update weights and moments in place. */
export function adamw(arenas: readonly Arena[], o: AdamW, share: Share = all): void {
  const [beta1, beta2] = o.betas;
  const stepSize = o.lr / (1 - beta1 ** o.step);
  const root = Math.sqrt(1 - beta2 ** o.step);
  const decay = 1 - o.lr * o.weightDecay;
  for (const { kernels, at, end } of piecesOf(arenas, share)) {
    kernels.adamw(at, end, o.gradScale, decay, 1 - beta1, beta2, 1 - beta2, stepSize, root, o.eps);
  }
}

/** One thread's work: with `step` an update, without it the sums of squares. */
export type Work = { readonly arenas: readonly Arena[]; readonly share: Share; readonly step?: AdamW };

/** Do one share; the result is the sums of squares, or nothing for an update. */
export function doShare({ arenas, share, step }: Work): number[] {
  if (step === undefined) return pieceSquares(arenas, share);
  adamw(arenas, step, share);
  return [];
}

/** `into[ids[i]] += rows[i]` for rows of `width`: the gradient of a table that was read by row. */
export function scatterAdd(into: Float32Array, ids: Int32Array, rows: Float32Array, width: number): void {
  for (let i = 0; i < ids.length; i++) {
    const from = i * width;
    const to = ids[i]! * width;
    for (let j = 0; j < width; j++) into[to + j] = into[to + j]! + rows[from + j]!;
  }
}
