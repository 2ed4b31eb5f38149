/**
 * Where a model's numbers live: weights, gradient and the two moments of AdamW as vectors in shared memory.
 *
 * Every parameter is a range of an arena; an arena is one WebAssembly memory (at most 4 GB) per vector. The engine
 * thread and the main thread see the same bytes, onnxruntime reads and writes them in place, and the kernels walk
 * whole arenas. Gradient and moments are allocated when training first needs them. Frozen parameters lie in arenas of
 * their own, which have weights and nothing else.
 */
import { invariant, UserError } from "../util/errors.ts";
import { formatBytes } from "../util/format.ts";

export type VectorName = "weight" | "grad" | "first" | "second";

/** Where each vector starts in its memory. They differ on purpose (`kernels.wat` says why); keep the two in step. */
const starts: Record<VectorName, number> = { weight: 0, grad: 69888, first: 139776, second: 209664 };
const PAGE = 65536;
const MAX_BYTES = 65536 * PAGE - 4 * PAGE;
const ALIGN = 64; // a cache line, and a multiple of the kernels' 16 bytes

export type Parameter = {
  readonly name: string;
  readonly shape: readonly number[];
  /** A parameter is trained unless this is false. */
  readonly isTrained?: boolean;
};
/** The memories of one arena; `bytes` of each vector are in use. */
export type Arena = { readonly bytes: number; readonly memories: Partial<Record<VectorName, WebAssembly.Memory>> };

type Filling = { bytes: number; readonly memories: Arena["memories"] };
type Range = { readonly arena: Arena; readonly at: number; readonly length: number; readonly isTrained: boolean };

/** The vectors of one model. */
export class Vectors {
  /** The arenas of trained parameters: what the optimizer works on. */
  readonly arenas: readonly Arena[];
  readonly #frozen: readonly Arena[];
  /** Numbers of all parameters. */
  readonly count: number;
  readonly #ranges = new Map<string, Range>();

  constructor(parameters: readonly Parameter[]) {
    const arenas: Filling[] = [];
    const frozen: Filling[] = [];
    let count = 0;
    for (const { name, shape, isTrained = true } of parameters) {
      const length = shape.reduce((a, b) => a * b, 1);
      const bytes = Math.ceil((length * 4) / ALIGN) * ALIGN;
      if (bytes > MAX_BYTES) {
        throw new UserError(
          `The tensor \`${name}\` [${shape.join(", ")}] takes ${formatBytes(bytes)}; the embedded engine holds tensors of ` +
            `up to ${formatBytes(MAX_BYTES)}. Use a smaller model.`,
        );
      }
      const arena = arenaFor(bytes, isTrained ? arenas : frozen);
      this.#ranges.set(name, { arena, at: arena.bytes, length, isTrained });
      arena.bytes += bytes;
      count += length;
    }
    this.arenas = arenas;
    this.#frozen = frozen;
    this.count = count;
    this.allocate("weight");
  }

  /** Make sure a vector is there; new memory is zero. Frozen parameters have weights only. */
  allocate(vector: VectorName): void {
    for (const arena of vector === "weight" ? [...this.arenas, ...this.#frozen] : this.arenas) {
      const pages = Math.ceil((starts[vector] + arena.bytes) / PAGE);
      arena.memories[vector] ??= new WebAssembly.Memory({ initial: pages, maximum: pages, shared: true });
    }
  }

  /** A parameter's part of a vector. */
  view(vector: VectorName, name: string): Float32Array<SharedArrayBuffer> {
    const range = this.#ranges.get(name);
    invariant(range !== undefined, `there is no parameter ${name}`);
    invariant(range.isTrained || vector === "weight", `the parameter ${name} is frozen: it has no ${vector}`);
    const memory = range.arena.memories[vector];
    invariant(memory !== undefined, `the vector ${vector} was not allocated`);
    // A shared memory's buffer is a SharedArrayBuffer; the type of `Memory.buffer` does not say so.
    const buffer = memory.buffer as ArrayBufferLike as SharedArrayBuffer;
    return new Float32Array(buffer, starts[vector] + range.at, range.length);
  }

  get names(): string[] {
    return [...this.#ranges.keys()];
  }

  /** The names of the parameters that have a gradient. */
  get trainedNames(): string[] {
    return [...this.#ranges].filter(([, { isTrained }]) => isTrained).map(([name]) => name);
  }
}

/** The last arena, or a new one if `bytes` do not fit. */
function arenaFor(bytes: number, arenas: Filling[]): Filling {
  const last = arenas[arenas.length - 1];
  if (last !== undefined && last.bytes + bytes <= MAX_BYTES) return last;
  const arena = { bytes: 0, memories: {} };
  arenas.push(arena);
  return arena;
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
