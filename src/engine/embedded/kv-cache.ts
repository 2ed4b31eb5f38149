/**
 * What decoding keeps of past tokens: for each tensor that the parts of a layer state, an array [slots, heads,
 * capacity, size] in shared memory, which programs read and extend in place.
 *
 * The memory is allocated once, and the system commits a page of it when it is first written. Another capacity is
 * another view of the same memory; the tokens that are kept are moved to it.
 */
import type { ModelConfig } from "../../models/config.ts";
import { layerCache } from "../../models/layers.ts";
import type { SamplerLimits } from "../../rollout/request.ts";
import { DEFAULT_SEQUENCES } from "../../rollout/sampler.ts";
import { sharedFloats } from "../../runtime/vectors.ts";
import { invariant } from "../../util/errors.ts";
import { thisMachine } from "../../util/machine.ts";
import { pastName, presentName } from "./decode-program.ts";

/** Bytes that one token takes in the cache. */
export function cacheBytesPerToken({ layers }: ModelConfig): number {
  return layers.flatMap(layerCache).reduce((bytes, { heads, size }) => bytes + heads * size * 4, 0);
}

/** The default limit of the cache; memory is used as tokens come. */
const DEFAULT_CACHE_BYTES = 4 * 2 ** 30;

/** The size of the cache of a sampler: up to its limit, and not more than its sequences can fill. */
export function cacheBytesFor(config: ModelConfig, limits: SamplerLimits): number {
  const most = (limits.maxSequences ?? DEFAULT_SEQUENCES) * Math.min(config.maxPositions, limits.maxLength ?? Infinity);
  const bytes = limits.cacheBytes ?? Math.min(DEFAULT_CACHE_BYTES, Math.floor(thisMachine().memory / 4));
  return Math.min(bytes, most * cacheBytesPerToken(config));
}

/** One tensor of one layer, for all slots. */
type Kept = {
  /** The names under which programs read and write it. */
  readonly names: readonly string[];
  readonly heads: number;
  readonly size: number;
  readonly array: Float32Array<SharedArrayBuffer>;
};

export class KvCache {
  readonly tokens: number;
  readonly #kept: readonly Kept[];
  #capacity = 0;

  constructor(config: ModelConfig, bytes: number) {
    this.tokens = Math.floor(bytes / cacheBytesPerToken(config));
    this.#kept = config.layers.flatMap((layer, index) =>
      layerCache(layer).map(({ name, heads, size }) => ({
        names: [pastName(index, name), presentName(index, name)],
        heads,
        size,
        array: sharedFloats(this.tokens * heads * size),
      })),
    );
  }

  get capacity(): number {
    return this.#capacity;
  }

  /** The arrays by the names that programs read and write them under. */
  bindings(): Record<string, Float32Array> {
    return Object.fromEntries(this.#kept.flatMap(({ names, array }) => names.map((name) => [name, array])));
  }

  layOut(capacity: number, lengths: readonly number[]): void {
    invariant(
      capacity * lengths.length <= this.tokens,
      `${lengths.length} slots of ${capacity} are more than there is`,
    );
    const before = this.#capacity;
    this.#capacity = capacity;
    for (const { heads, size, array } of this.#kept) {
      const rows = lengths.length * heads;
      for (let i = 0; i < rows; i++) {
        // To move apart, the last row goes first; to move together, the first: no row is overwritten before it moved.
        const row = capacity > before ? rows - 1 - i : i;
        const start = row * before * size;
        array.copyWithin(row * capacity * size, start, start + lengths[Math.floor(row / heads)]! * size);
      }
    }
  }

  copy(from: number, to: number, length: number): void {
    for (const kept of this.#kept) {
      for (let head = 0; head < kept.heads; head++) {
        const [source, target] = [this.#start(kept, from, head), this.#start(kept, to, head)];
        kept.array.copyWithin(target, source, source + length * kept.size);
      }
    }
  }

  swap(a: number, b: number, length: number): void {
    const saved = new Float32Array(length * Math.max(...this.#kept.map(({ size }) => size)));
    for (const kept of this.#kept) {
      const { heads, size, array } = kept;
      const count = length * size;
      for (let head = 0; head < heads; head++) {
        const [left, right] = [this.#start(kept, a, head), this.#start(kept, b, head)];
        saved.set(array.subarray(left, left + count));
        array.copyWithin(left, right, right + count);
        array.set(saved.subarray(0, count), right);
      }
    }
  }

  #start({ heads, size }: Kept, slot: number, head: number): number {
    return (slot * heads + head) * this.#capacity * size;
  }
}
