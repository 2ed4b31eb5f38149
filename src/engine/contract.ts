/**
 * What an engine is: it opens models, and knows nothing of reinforcement learning.
 *
 * Everything that trains or measures a model is written against these types, once for all engines. A loss is a traced
 * function of per-token tensors, so an engine may run it inside its own graph or beside it.
 */
import type { HeadName, LossTensors, TokenLoss } from "../algos/losses/token-loss.ts";
import type { AnyModelConfig } from "../models/config.ts";
import type { Completion, SampleRequest, SamplerLimits, SamplerStats } from "../rollout/request.ts";

export type { HeadName, LossTensors, TokenLoss };

/** One sequence. Arrays have one entry per token of `ids`, but for extras of a width. */
export type TokenRow = {
  readonly ids: Int32Array;
  /** 1 where the token counts: its outputs are computed and the loss sees it. Only such tokens cost anything in the head. */
  readonly mask: ArrayLike<number>;
  /**
   * What else the loss reads per token, by name: old log-probs, advantages, … An extra of a width has `width` numbers for
   * each token, one token after the other.
   */
  readonly extra?: Readonly<Record<string, ArrayLike<number>>>;
};

/**
 * Outputs per token of `ids`, 0 where the mask is 0: `logprobs` and `entropy` of the distribution the token was drawn
 * from, `sumPiSquared` the sum of its squared probabilities, `values` as the critic saw it before the token, `scores` after it.
 */
export type TokenOutputs = Readonly<Partial<Record<HeadName, Float32Array>>>;

/**
 * How a batch is cut: into micro-batches of at most `maxTokens` padded tokens, or of `rows` sequences. Results do not
 * depend on it beyond rounding, so an engine may cut finer to stay within its memory.
 */
export type MicroBatching = { readonly maxTokens: number } | { readonly rows: number };

/** Called before each micro-batch with the number done and the number in all. */
export type OnMicroBatch = (done: number, total: number) => void;

export type ForwardOptions = {
  readonly micro: MicroBatching;
  readonly temperature?: number;
  readonly onMicroBatch?: OnMicroBatch;
};

export type TrainOptions = {
  readonly micro: MicroBatching;
  readonly scalars?: Readonly<Record<string, number>>;
  readonly onMicroBatch?: OnMicroBatch;
};
/** `loss` and the loss's own metrics. */
export type LossMetrics = Readonly<Record<string, number>>;

export type OptimizerStep = {
  readonly lr: number;
  readonly betas: readonly [number, number];
  readonly eps: number;
  readonly weightDecay: number;
  /** The largest norm of the gradient; larger ones are scaled down to it. */
  readonly maxNorm: number;
};

export type StepResult = {
  readonly gradNorm: number;
  /** The norm was not finite: weights, moments and step count are as before. */
  readonly isSkipped: boolean;
};

export type SaveFormat = "F32" | "BF16";

/** `isUntied` writes a head that is the embedding as a tensor of its own, for programs that keep the two apart. */
export type SaveLayout = { readonly isUntied?: boolean };

/** A model in one role: actor, reference, critic or reward model. */
export type Model = {
  readonly config: AnyModelConfig;
  readonly parameterCount: number;
  /** Outputs for every row, in order; no gradient. */
  forward(rows: readonly TokenRow[], heads: readonly HeadName[], options: ForwardOptions): Promise<TokenOutputs[]>;
  /** The gradient of a loss over one batch, added to what is there since the last step. */
  train(rows: readonly TokenRow[], loss: TokenLoss, options: TrainOptions): Promise<LossMetrics>;
  /** Clip, update, forget the gradient. */
  step(optimizer: OptimizerStep): Promise<StepResult>;
  /**
   * Sample from the weights as they are at each token. Requests run together; each gets what it would get alone.
   */
  sample(request: SampleRequest): Promise<Completion>;
  samplerStats(): SamplerStats;
  /** Write a Hugging Face folder; what it holds is read from the weights as they are now. */
  save(dir: string, format?: SaveFormat, layout?: SaveLayout): Promise<void>;
  /** Take over the weights of another Hugging Face folder of the same shapes; the optimizer's memory stays. */
  load(dir: string): Promise<void>;
  /** Write and read what the optimizer remembers. */
  saveOptimizer(dir: string): Promise<void>;
  loadOptimizer(dir: string): Promise<void>;
  close(): Promise<void>;
};

export type ModelSpec = {
  /** A Hugging Face folder. */
  readonly folder: string;
  /** The folder whose tokenizer is saved with the weights; `folder` unless said otherwise. It must outlive the model. */
  readonly tokenizerFolder?: string;
  /** `value` gives a language model a new value head where the checkpoint has none; `seed` draws its weights. */
  readonly head?: "lm" | "value" | "score";
  readonly seed?: number;
  /** What sampling from it may use. */
  readonly sampler?: SamplerLimits;
  /** How it is divided, where there are several workers. */
  readonly sharding?: Sharding;
};

/** How a model is divided among workers and computed with. Results stay the same, but for the precision of `dtype`. */
export type Sharding = {
  /** The workers are so many groups, each of which holds the whole model: HSDP. */
  readonly replicas?: number;
  /** Layers are let go of after the forward pass and gathered again for the backward pass; the default. */
  readonly reshards?: boolean;
  /** What passes compute in; weights, gradients and moments are float32 in any case. */
  readonly dtype?: "float32" | "bfloat16";
  /** Layers are computed again in the backward pass instead of kept. */
  readonly checkpointing?: boolean;
  /** Weights, gradients and moments are in the CPU's memory while no pass uses them, where passes run on a GPU. */
  readonly offloads?: boolean;
};

/** How servers sample, where an engine starts them. */
export type ServerSpec = {
  readonly dtype: "float32" | "bfloat16";
  /** Tokens of prompt and sample together. */
  readonly maxLength: number;
  readonly maxSequences: number;
  readonly maxBatchedTokens: number;
  readonly hasPrefixCache: boolean;
  /** The share of a GPU's memory that a server takes. */
  readonly memoryShare: number;
  /** GPUs of one server. */
  readonly parallel: number;
  /** GPUs for servers alone, or on CPUs servers, on each of so many nodes; null gives them the workers' own. */
  readonly own: { readonly nodes: number; readonly perNode: number } | null;
  /** No graphs are captured or compiled. */
  readonly isEager: boolean;
  /** Further options of the server's command, by their names there. */
  readonly options: Readonly<Record<string, unknown>>;
};

/** Servers that an engine runs beside its models; they end with it. */
export type ServerGroup = {
  /** Start them on the model of a folder, which all of their machines see; the result is their addresses. */
  start(folder: string): Promise<readonly string[]>;
  /** What they want to be told with every request. */
  readonly apiKey: string;
  /** What they take weights in. */
  readonly format: SaveFormat;
  /** Check that every server's machine sees a folder as it was written. */
  verify(folder: string): Promise<void>;
  /** Send them the weights of a model of this engine as they are now; each has to be receiving meanwhile. */
  send(model: Model): Promise<void>;
  /** Aborted, with the reason, when one of them is lost. */
  readonly lost: AbortSignal;
};

export type Engine = {
  open(spec: ModelSpec): Promise<Model>;
  /** Refuse a folder that is not the same on all machines of its workers, where there may be several. */
  checkFolder?(folder: string): Promise<void>;
  /** Floating-point operations per second of a plain product of matrices; null or absent where it is not measured. */
  measurePeak?(): Promise<number | null>;
  /** Find room for servers that sample; null where the program they would run is not installed. */
  serve?(spec: ServerSpec): Promise<ServerGroup | null>;
  close(): Promise<void>;
};
