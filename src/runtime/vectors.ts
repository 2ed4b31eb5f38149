/**
 * Where a model's numbers live: weights, gradient and the two moments of AdamW as vectors in shared memory.
 *
 * Every parameter is a range of an arena; an arena is one WebAssembly memory (at most 4 GB) per vector. The engine
 * thread and the main thread see the same bytes, onnxruntime reads and writes them in place, and the kernels walk
 * whole arenas. Gradient and moments come into being when training first asks for them.
 */
import { invariant, UserError } from "../util/errors.ts";
import { formatBytes } from "../util/format.ts";

export type VectorName = "weight" | "grad" | "first" | "second";

/** Where each vector starts in its memory. They differ on purpose (`kernels.wat` says why); keep the two in step. */
const starts: Record<VectorName, number> = { weight: 0, grad: 69888, first: 139776, second: 209664 };
const PAGE = 65536;
const MAX_BYTES = 65536 * PAGE - 4 * PAGE;
const ALIGN = 64; // a cache line, and a multiple of the kernels' 16 bytes

export type Parameter = { readonly name: string; readonly shape: readonly number[] };
/** The memories of one arena; `bytes` of each vector are in use. */
export type Arena = { readonly bytes: number; readonly memories: Partial<Record<VectorName, WebAssembly.Memory>> };

/** The vectors of one model. */
export class Vectors {
  readonly arenas: readonly Arena[];
  readonly count: number;
  readonly #places = new Map<string, { arena: Arena; at: number; length: number }>();

  constructor(parameters: readonly Parameter[]) {
    const arenas: { bytes: number; memories: Arena["memories"] }[] = [];
    let count = 0;
    for (const { name, shape } of parameters) {
      const length = shape.reduce((a, b) => a * b, 1);
      const bytes = Math.ceil((length * 4) / ALIGN) * ALIGN;
      if (bytes > MAX_BYTES) {
        throw new UserError(
          `The tensor \`${name}\` [${shape.join(", ")}] takes ${formatBytes(bytes)}; the embedded engine holds tensors of ` +
            `up to ${formatBytes(MAX_BYTES)}. Use a smaller model.`,
        );
      }
      let arena = arenas[arenas.length - 1];
      if (arena === undefined || arena.bytes + bytes > MAX_BYTES) {
        arena = { bytes: 0, memories: {} };
        arenas.push(arena);
      }
      this.#places.set(name, { arena, at: arena.bytes, length });
      arena.bytes += bytes;
      count += length;
    }
    this.arenas = arenas;
    this.count = count;
    this.allocate("weight");
  }

  /** Make sure a vector is there; new memory is zero. */
  allocate(vector: VectorName): void {
    for (const arena of this.arenas) {
      const pages = Math.ceil((starts[vector] + arena.bytes) / PAGE);
      arena.memories[vector] ??= new WebAssembly.Memory({ initial: pages, maximum: pages, shared: true });
    }
  }

  /** A parameter's part of a vector. */
  view(vector: VectorName, name: string): Float32Array<SharedArrayBuffer> {
    const place = this.#places.get(name);
    invariant(place !== undefined, `there is no parameter ${name}`);
    const memory = place.arena.memories[vector];
    invariant(memory !== undefined, `the vector ${vector} was not allocated`);
    // A shared memory's buffer is a SharedArrayBuffer; the type of `Memory.buffer` does not say so.
    const buffer = memory.buffer as ArrayBufferLike as SharedArrayBuffer;
    return new Float32Array(buffer, starts[vector] + place.at, place.length);
  }

  get names(): string[] {
    return [...this.#places.keys()];
  }
}

/** A tensor's numbers in shared memory, for what is not a parameter. */
export function sharedFloats(length: number): Float32Array<SharedArrayBuffer> {
  return new Float32Array(new SharedArrayBuffer(length * 4));
}

/** Token ids and indices in shared memory. */
export function sharedInts(values: ArrayLike<number>): Int32Array<SharedArrayBuffer> {
  const array = new Int32Array(new SharedArrayBuffer(values.length * 4));
  array.set(values);
  return array;
}
