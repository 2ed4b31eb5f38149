/**
 * What a sampler needs of a model: runs over a cache whose slots the scheduler manages. An engine provides it.
 */

/** A row of a run: tokens that follow `past` others of the sequence in its slot. */
export type DecodeRow = {
  readonly ids: readonly number[];
  readonly past: number;
  /** Tokens of the whole sequence, which decides the frequencies of some rotary embeddings. */
  readonly length: number;
};

/** A place whose distribution is wanted: after token `at` of a row. */
export type Read = { readonly row: number; readonly at: number; readonly temperature: number };

/** Where a row has more than one token, all rows are of one regime and begin at the same `past`. */
export type DecodeRun = {
  /** The slot of the first row; the others follow it. */
  readonly slot: number;
  readonly rows: readonly DecodeRow[];
  readonly reads: readonly Read[];
  /** Logits as well, before any temperature. */
  readonly wantsLogits: boolean;
};

/** Rows of the vocabulary's size, one per read. They are valid until the next run. */
export type Distributions = { readonly probs: Float32Array; readonly logits: Float32Array | null };

export type Decoder = {
  readonly vocabSize: number;
  /** Tokens the cache can hold in all. */
  readonly cacheTokens: number;
  /** Prompt tokens that one run should compute at most. */
  readonly promptTokens: number;
  /** Sequences of different regimes do not share keys. */
  regimeOf(length: number): number;
  /** Cut the cache into slots of `capacity` tokens; slot i keeps its first `lengths[i]`. */
  layOut(capacity: number, lengths: readonly number[]): void;
  copy(from: number, to: number, length: number): void;
  swap(a: number, b: number, length: number): void;
  run(run: DecodeRun): Promise<Distributions>;
};
