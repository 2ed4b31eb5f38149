/**
 * What a sampler needs from a model: runs over a cache whose slots the scheduler manages. An engine provides it.
 */

/** A row of a run: tokens that follow the first `past` tokens of the sequence in its slot. */
export type DecodeRow = {
  readonly ids: readonly number[];
  readonly past: number;
  /** Tokens of the whole sequence; the frequencies of some rotary embeddings depend on it. */
  readonly length: number;
};

/** A position whose distribution is wanted: after token `at` of a row. */
export type Read = { readonly row: number; readonly at: number; readonly temperature: number };

/** If a row has more than one token, all rows have one regime and the same `past`. */
export type DecodeRun = {
  /** The slot of the first row; the other rows are in the next slots. */
  readonly slot: number;
  readonly rows: readonly DecodeRow[];
  readonly reads: readonly Read[];
  /** Return logits too, before any temperature. */
  readonly wantsLogits: boolean;
};

/** Rows of the vocabulary's size, one per read. They are valid until the next run. */
export type Distributions = { readonly probs: Float32Array; readonly logits: Float32Array | null };

export type Decoder = {
  readonly vocabSize: number;
  /** Tokens that the whole cache can hold. */
  readonly cacheTokens: number;
  /** The maximum number of prompt tokens in one run. */
  readonly promptTokens: number;
  /** Sequences of different regimes cannot share keys. */
  regimeOf(length: number): number;
  /** Divide the cache into slots of `capacity` tokens; slot i keeps its first `lengths[i]` tokens. */
  layOut(capacity: number, lengths: readonly number[]): void;
  copy(from: number, to: number, length: number): void;
  swap(a: number, b: number, length: number): void;
  run(run: DecodeRun): Promise<Distributions>;
};
