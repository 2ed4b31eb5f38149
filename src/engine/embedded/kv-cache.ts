/**
 * Keys and values of past tokens: for each layer two arrays [slots, kvHeads, capacity, size] in shared memory, which
 * programs read and extend in place.
 *
 * The memory is allocated once, and the system commits a page of it when it is first written. Another capacity is
 * another view of the same memory, to which what is kept is moved.
 */
import type { ModelConfig } from "../../models/config.ts";
import { cachedHeadDim } from "../../nn/layers.ts";
import { sharedFloats } from "../../runtime/vectors.ts";
import { invariant } from "../../util/errors.ts";
import { cacheParts, pastName, presentName } from "./decode-program.ts";

/** Bytes that one token takes in the cache. */
export function cacheBytesPerToken({ layers, kvHeads, headDim }: ModelConfig): number {
  return 2 * layers * kvHeads * cachedHeadDim(headDim) * 4;
}

export class KvCache {
  readonly tokens: number;
  readonly #heads: number;
  readonly #size: number;
  readonly #arrays: ReadonlyMap<string, Float32Array<SharedArrayBuffer>>;
  #capacity = 0;

  constructor(config: ModelConfig, bytes: number) {
    this.tokens = Math.floor(bytes / cacheBytesPerToken(config));
    this.#heads = config.kvHeads;
    this.#size = cachedHeadDim(config.headDim);
    const floats = this.tokens * this.#heads * this.#size;
    const arrays = new Map<string, Float32Array<SharedArrayBuffer>>();
    for (let layer = 0; layer < config.layers; layer++) {
      for (const part of cacheParts) arrays.set(`${layer} ${part}`, sharedFloats(floats));
    }
    this.#arrays = arrays;
  }

  get capacity(): number {
    return this.#capacity;
  }

  /** The arrays by the names that programs read and write them under. */
  bindings(): Record<string, Float32Array> {
    const named: Record<string, Float32Array> = {};
    for (const [key, array] of this.#arrays) {
      const [layer, part] = key.split(" ") as [string, (typeof cacheParts)[number]]; // made in the constructor
      named[pastName(Number(layer), part)] = array;
      named[presentName(Number(layer), part)] = array;
    }
    return named;
  }

  layOut(capacity: number, lengths: readonly number[]): void {
    invariant(
      capacity * lengths.length <= this.tokens,
      `${lengths.length} slots of ${capacity} are more than there is`,
    );
    const before = this.#capacity;
    this.#capacity = capacity;
    const rows = lengths.flatMap((length, slot) =>
      Array.from({ length: this.#heads }, (_, head) => ({ row: slot * this.#heads + head, length })),
    );
    // Rows move apart from the last one on, and together from the first one on: none is written over before it moved.
    const order = capacity > before ? rows.reverse() : rows;
    this.#forEach((array) => {
      for (const { row, length } of order) {
        const start = row * before * this.#size;
        array.copyWithin(row * capacity * this.#size, start, start + length * this.#size);
      }
    });
  }

  copy(from: number, to: number, length: number): void {
    this.#forEach((array) => {
      for (let head = 0; head < this.#heads; head++) {
        const [source, target] = [this.#start(from, head), this.#start(to, head)];
        array.copyWithin(target, source, source + length * this.#size);
      }
    });
  }

  swap(a: number, b: number, length: number): void {
    const kept = new Float32Array(length * this.#size);
    this.#forEach((array) => {
      for (let head = 0; head < this.#heads; head++) {
        const [left, right] = [this.#start(a, head), this.#start(b, head)];
        kept.set(array.subarray(left, left + kept.length));
        array.copyWithin(left, right, right + kept.length);
        array.set(kept, right);
      }
    });
  }

  #start(slot: number, head: number): number {
    return (slot * this.#heads + head) * this.#capacity * this.#size;
  }

  #forEach(work: (array: Float32Array) => void): void {
    for (const array of this.#arrays.values()) work(array);
  }
}
