/**
 * What an engine is: it opens models, and knows nothing of reinforcement learning.
 *
 * Everything that trains or measures a model is written against these types, once for all engines. A loss is a traced
 * function of per-token tensors, so an engine can run it inside its own graph or separately.
 */
import type { HeadName, LossTensors, TokenLoss } from "../algos/losses/token-loss.ts";
import type { AnyModelConfig } from "../models/config.ts";
import type { Completion, SampleRequest, SamplerLimits, SamplerStats } from "../rollout/request.ts";

export type { HeadName, LossTensors, TokenLoss };

/** One sequence. Arrays have one entry per token of `ids`; an extra with a width has several. */
export type TokenRow = {
  readonly ids: Int32Array;
  /** 1 where the token counts: its outputs are computed and the loss reads it. The head computes such tokens only. */
  readonly mask: ArrayLike<number>;
  /**
   * Other inputs of the loss per token, by name: old log-probs, advantages, … An extra with a width has `width` numbers
   * for each token, one token after the other.
   */
  readonly extra?: Readonly<Record<string, ArrayLike<number>>>;
};

/**
 * Outputs per token of `ids`, 0 where the mask is 0: `logprobs` and `entropy` of the distribution the token was drawn
 * from, `sumPiSquared` the sum of its squared probabilities, `values` the critic's estimate before the token, `scores` the
 * score after it.
 */
export type TokenOutputs = Readonly<Partial<Record<HeadName, Float32Array>>>;

/**
 * How a batch is cut: into micro-batches of at most `maxTokens` padded tokens, or of `rows` sequences. Results do not
 * depend on it beyond rounding, so an engine may cut finer to stay within its memory.
 */
export type MicroBatching = { readonly maxTokens: number } | { readonly rows: number };

/** Called before each micro-batch, with how many are done and how many there are. */
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

/** `isUntied` writes a tied head as a separate tensor, for programs that need one. */
export type SaveLayout = { readonly isUntied?: boolean };

/** A model in one role: actor, reference, critic or reward model. */
export type Model = {
  readonly config: AnyModelConfig;
  readonly parameterCount: number;
  /** Outputs for every row, in order; no gradient. */
  forward(rows: readonly TokenRow[], heads: readonly HeadName[], options: ForwardOptions): Promise<TokenOutputs[]>;
  /** Compute the gradient of a loss over one batch and add it to the gradient since the last step. */
  train(rows: readonly TokenRow[], loss: TokenLoss, options: TrainOptions): Promise<LossMetrics>;
  /** Clip the gradient, update the weights, and set the gradient to zero. */
  step(optimizer: OptimizerStep): Promise<StepResult>;
  /** Sample from the weights as they are at each token. Requests run together; each gets the result that it would get alone. */
  sample(request: SampleRequest): Promise<Completion>;
  samplerStats(): SamplerStats;
  /** Write the weights as they are now as a Hugging Face folder. */
  save(dir: string, format?: SaveFormat, layout?: SaveLayout): Promise<void>;
  /** Load the weights of another Hugging Face folder with the same shapes; the optimizer's state stays. */
  load(dir: string): Promise<void>;
  /** Write and read the state of the optimizer. */
  saveOptimizer(dir: string): Promise<void>;
  loadOptimizer(dir: string): Promise<void>;
  close(): Promise<void>;
};

export type ModelSpec = {
  /** A Hugging Face folder. */
  readonly folder: string;
  /** The folder whose tokenizer is saved with the weights; `folder` by default. It must exist as long as the model. */
  readonly tokenizerFolder?: string;
  /** `value` gives a language model a new value head where the checkpoint has none; `seed` draws its weights. */
  readonly head?: "lm" | "value" | "score";
  readonly seed?: number;
  /** Limits of sampling from it. */
  readonly sampler?: SamplerLimits;
  /** How it is sharded, if there are several workers. */
  readonly sharding?: Sharding;
  /** The pool whose workers hold it, on an engine with several; by default that of the models that are trained. */
  readonly pool?: string;
};

/** How a model is sharded over workers. Results stay the same, except for the precision of `dtype`. */
export type Sharding = {
  /** The number of groups of workers, each of which holds the whole model: HSDP. */
  readonly replicas?: number;
  /** Layers are freed after the forward pass and gathered again for the backward pass; the default. */
  readonly reshards?: boolean;
  /** The dtype of passes; weights, gradients and moments are always float32. */
  readonly dtype?: "float32" | "bfloat16";
  /** Activations are computed again in the backward pass instead of kept. */
  readonly checkpointing?: boolean;
  /** Passes run on a GPU; weights, gradients and moments are in the CPU's memory while no pass uses them. */
  readonly offloads?: boolean;
};

/** How the servers that an engine starts sample. */
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
  /** Nodes for servers alone, with GPUs (or, on CPUs, servers) per node; null lets servers share the workers' nodes. */
  readonly own: { readonly nodes: number; readonly perNode: number } | null;
  /** No graphs are captured or compiled. */
  readonly isEager: boolean;
  /** Further options of the server's command, by their names there. */
  readonly options: Readonly<Record<string, unknown>>;
};

/** Servers that an engine starts; they end with it. */
export type ServerGroup = {
  /** Start them with the model of a folder that all of their machines can read; returns their addresses. */
  start(folder: string): Promise<readonly string[]>;
  /** The key that every request needs. */
  readonly apiKey: string;
  /** The format of the weights that they load. */
  readonly format: SaveFormat;
  /** Check that the machine of every server reads a folder as it was written. */
  verify(folder: string): Promise<void>;
  /** Send them the current weights of a model of this engine; each server has to be receiving at that time. */
  send(model: Model): Promise<void>;
  /** Aborted, with the reason, when one of them is lost. */
  readonly lost: AbortSignal;
};

export type Engine = {
  open(spec: ModelSpec): Promise<Model>;
  /** Refuse a folder that is not the same on all machines of the workers. */
  checkFolder?(folder: string): Promise<void>;
  /** Floating-point operations per second of a plain product of matrices; null or absent where it is not measured. */
  measurePeak?(): Promise<number | null>;
  /** Reserve resources for servers that sample; null if their program is not installed. */
  serve?(spec: ServerSpec): Promise<ServerGroup | null>;
  close(): Promise<void>;
};
