/**
 * A model that samples: the decode programs over its weights and a cache of keys and values.
 *
 * The weights are the arrays that training updates, so the next token is always sampled from the current model.
 */
import { type ModelConfig, positionRegime, positionsOf } from "../../models/config.ts";
import { modelCost } from "../../models/cost.ts";
import { type Position, positionScheme } from "../../models/parts/parts.ts";
import { cachedHeadDim } from "../../nn/attention.ts";
import type { DecodeRun, Decoder, Distributions } from "../../rollout/decoder.ts";
import type { Executable, Group, Runtime } from "../../runtime/runtime.ts";
import { sharedFloats } from "../../runtime/vectors.ts";
import { type DecodeKind, decodeProgram } from "./decode-program.ts";
import { KvCache } from "./kv-cache.ts";
import { rotationArrays } from "./rotations.ts";
import { Scratch } from "./scratch.ts";

/** Up to this many rows a step is faster with the weights on the left of their products. */
const FEW_ROWS = 256;

/** What the activations of a run of prompts may take; larger runs are hardly faster. */
const PROMPT_BYTES = 24e6;
const MOST_PROMPT_TOKENS = 2048;

/** About what one token takes while it passes through a layer. */
const bytesPerPromptToken = (config: ModelConfig): number =>
  modelCost(config, { use: "prefill", length: 1, keys: 1 }).largestLayer.activationBytes;

export type DecoderParts = {
  readonly runtime: Runtime;
  readonly config: ModelConfig;
  readonly weights: () => Promise<Group>;
  readonly cacheBytes: number;
};

export class EmbeddedDecoder implements Decoder {
  readonly vocabSize: number;
  readonly promptTokens: number;
  readonly #parts: DecoderParts;
  readonly #schemes: readonly Position[];
  readonly #cache: KvCache;
  readonly #scratch = new Scratch();
  readonly #programs = new Map<string, Promise<Executable>>();
  readonly #rotations = new Map<string, Rotations>();
  #group: Promise<Group> | null = null;

  constructor(parts: DecoderParts) {
    this.#parts = parts;
    this.#schemes = positionsOf(parts.config);
    this.vocabSize = parts.config.vocabSize;
    this.promptTokens = Math.min(MOST_PROMPT_TOKENS, Math.ceil(PROMPT_BYTES / bytesPerPromptToken(parts.config)));
    this.#cache = new KvCache(parts.config, parts.cacheBytes);
  }

  get cacheTokens(): number {
    return this.#cache.tokens;
  }

  regimeOf(length: number): number {
    return positionRegime(this.#schemes, length);
  }

  layOut(capacity: number, lengths: readonly number[]): void {
    this.#cache.layOut(capacity, lengths);
  }

  copy(from: number, to: number, length: number): void {
    this.#cache.copy(from, to, length);
  }

  swap(a: number, b: number, length: number): void {
    this.#cache.swap(a, b, length);
  }

  async run({ slot, rows, reads, wantsLogits }: DecodeRun): Promise<Distributions> {
    const time = Math.max(...rows.map(({ ids }) => ids.length));
    const batch = rows.length;
    const n = Math.max(1, reads.length);
    const scratch = this.#scratch;
    const lengths = rows.map(({ ids, past }) => past + ids.length);
    const rotations = this.#rotationsFor(rows.map(({ length }) => length));
    const ids = scratch.ints("ids", batch * time).fill(0);
    const positions = scratch.ints("positions", batch * time).fill(0);
    rows.forEach((row, b) => {
      ids.set(row.ids, b * time);
      const first = rotations.start.get(this.regimeOf(row.length))! + row.past;
      for (let t = 0; t < row.ids.length; t++) positions[b * time + t] = first + t;
    });
    const arrays: Record<string, Float32Array | Int32Array> = {
      ids,
      positions,
      ...rotations.arrays,
      lengths: filled(scratch.ints("lengths", batch), lengths),
      total: scratch.ints("total", 1).fill(Math.max(...lengths)),
      reads: filled(
        scratch.ints("reads", n).fill(0),
        reads.map(({ row, at }) => row * time + at),
      ),
      scale: filled(
        scratch.floats("scale", n).fill(1),
        reads.map(({ temperature }) => 1 / temperature),
      ),
      probs: scratch.floats("probs", n * this.vocabSize),
    };
    if (wantsLogits) arrays.logits = scratch.floats("logits", n * this.vocabSize);
    const kind = time > 1 ? "prompts" : batch <= FEW_ROWS ? "few-tokens" : "tokens";
    const executable = await this.#program(kind, wantsLogits);
    await this.#parts.runtime.run(executable, {
      bindings: { batch, time, capacity: this.#cache.capacity, places: rotations.places, n },
      arrays,
      groups: [await this.#parts.weights(), { ...(await this.#cacheGroup()), firstRow: slot }],
    });
    return { probs: arrays.probs as Float32Array, logits: (arrays.logits as Float32Array | undefined) ?? null }; // made above
  }

  async close(): Promise<void> {
    if (this.#group !== null) await this.#parts.runtime.unbind(await this.#group);
  }

  #cacheGroup(): Promise<Group> {
    this.#group ??= this.#parts.runtime.bind(this.#cache.bindings());
    return this.#group;
  }

  #program(kind: DecodeKind, hasLogits: boolean): Promise<Executable> {
    const key = `${kind} ${hasLogits}`;
    let program = this.#programs.get(key);
    if (program === undefined) {
      program = this.#parts.runtime.load(decodeProgram(this.#parts.config, kind, hasLogits));
      this.#programs.set(key, program);
    }
    return program;
  }

  /** Tables for sequences of these lengths: the regimes one after the other. */
  #rotationsFor(lengths: readonly number[]): Rotations {
    const longest = new Map<number, number>();
    for (const length of lengths) {
      const regime = this.regimeOf(length);
      longest.set(regime, Math.max(longest.get(regime) ?? 0, length));
    }
    const regimes = [...longest].sort(([a], [b]) => a - b);
    const key = regimes.map(([regime]) => regime).join();
    const known = this.#rotations.get(key);
    if (known !== undefined && regimes.every(([regime, length]) => length <= known.reach.get(regime)!)) return known;
    const made = makeRotations(this.#schemes, regimes);
    if (this.#rotations.size >= MOST_ROTATIONS) this.#rotations.clear();
    this.#rotations.set(key, made);
    return made;
  }
}

type Rotations = {
  /** The tables of all position schemes, by input name. */
  readonly arrays: Readonly<Record<string, Float32Array>>;
  /** Rows of a table. */
  readonly places: number;
  /** The first row of a regime, and how many it has. */
  readonly start: ReadonlyMap<number, number>;
  readonly reach: ReadonlyMap<number, number>;
};

const MOST_ROTATIONS = 8;

function makeRotations(
  schemes: readonly Position[],
  regimes: readonly (readonly [regime: number, length: number])[],
): Rotations {
  const start = new Map<number, number>();
  const reach = new Map<number, number>();
  let places = 0;
  for (const [regime, length] of regimes) {
    // Longer than asked for, so that growing sequences do not ask at every token.
    const positions = 2 ** Math.ceil(Math.log2(Math.max(256, length)));
    start.set(regime, places);
    reach.set(regime, positions);
    places += positions;
  }
  const tables = schemes.map((scheme) => {
    const [half, wide] = [scheme.size / 2, cachedHeadDim(scheme.size) / 2];
    const cos = sharedFloats(places * wide);
    const sin = sharedFloats(places * wide);
    for (const [regime, length] of regimes) {
      const own = positionScheme(scheme).tables(scheme, reach.get(regime)!, length);
      for (let position = 0; position < reach.get(regime)!; position++) {
        const to = (start.get(regime)! + position) * wide;
        cos.set(own.cos.subarray(position * half, (position + 1) * half), to);
        sin.set(own.sin.subarray(position * half, (position + 1) * half), to);
      }
    }
    return { cos, sin };
  });
  return { arrays: rotationArrays(tables), places, start, reach };
}

function filled<T extends Int32Array | Float32Array>(array: T, values: readonly number[]): T {
  array.set(values);
  return array;
}
