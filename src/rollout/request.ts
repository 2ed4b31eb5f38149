/**
 * The requests and results of a sampler: token ids in, token ids with their log-probs out.
 *
 * A request asks for `n` samples of one prompt. Log-probs are those of the distribution that the token was drawn from:
 * after penalties, temperature, top-k, top-p and min-p (vLLM's `processed_logprobs`). At temperature 0 nothing is drawn,
 * and they are those of temperature 1 without top-k, top-p and min-p. Without penalties, bias, top-k, top-p and min-p
 * they equal the log-probs of `forward`.
 *
 * With a grammar, only tokens that it allows are drawn, and log-probs are those of the distribution over these tokens, as
 * in vLLM. `policyLogprobs` are the log-probs of the same tokens without the grammar: those of `forward`.
 */
import type { Grammar } from "../text/grammar/grammar.ts";

/** How tokens are drawn, and when a sample ends. */
export type Sampling = {
  readonly maxNewTokens: number;
  /** No token that would end the sample is drawn before this number of tokens. */
  readonly minNewTokens?: number;
  /** 0 takes the likeliest token; the default is 1. */
  readonly temperature?: number;
  /** Draw from the k likeliest tokens; 0 or -1 for all. */
  readonly topK?: number;
  /** Draw from the smallest set of likeliest tokens whose probabilities sum to `topP`. */
  readonly topP?: number;
  /** Exclude tokens less likely than `minP` times the likeliest. */
  readonly minP?: number;
  /** Divides the positive logits of tokens that occurred, prompt included, and multiplies the negative ones. */
  readonly repetitionPenalty?: number;
  /** Subtracted from the logits of tokens that were drawn before. */
  readonly presencePenalty?: number;
  /** Subtracted from the logits of tokens once for each time they were drawn before. */
  readonly frequencyPenalty?: number;
  /** Added to the logits, by token id. */
  readonly logitBias?: Readonly<Record<number, number>>;
  /** The same seed gives the same tokens, whatever else runs; without one, each request gets a random seed. */
  readonly seed?: number;
  /** Token ids that end a sample, besides the model's own. */
  readonly stopIds?: readonly number[];
  /** Texts that end a sample; `Sample.text` ends before them. */
  readonly stop?: readonly string[];
  /** Do not end at the model's own end-of-sequence tokens. */
  readonly ignoreEos?: boolean;
  /** The text that is sampled obeys it; only a sample that ends by its length may be incomplete. */
  readonly grammar?: Grammar;
  /** How many of the likeliest tokens to report at each position. */
  readonly topLogprobs?: number;
};

export type SampleRequest = Sampling & {
  readonly prompt: ArrayLike<number>;
  /** How many samples of the prompt; the prompt is computed once for all of them. */
  readonly n?: number;
  /** Decode as well: `SampledToken.text` and `Sample.text` are set. Stop texts imply it. */
  readonly wantsText?: boolean;
  /** Report the log-prob of each prompt token after the first, and this number of likeliest tokens at its position. */
  readonly promptLogprobs?: number;
  /** Ends the request at once; its promise is rejected with the signal's reason. */
  readonly signal?: AbortSignal;
  /** Called for each token as it is drawn. */
  readonly onToken?: (token: SampledToken) => void;
  /** Called for each sample as it ends, before the request as a whole does. */
  readonly onSample?: (sample: Sample) => void;
};

export type TokenLogprob = { readonly id: number; readonly logprob: number };

export type SampledToken = TokenLogprob & {
  /** Which of the request's samples. */
  readonly index: number;
  /** The likeliest tokens at this position, likeliest first; empty without `topLogprobs`. */
  readonly top: readonly TokenLogprob[];
  /** The text that became certain with this token: never half a character, never part of a stop text. */
  readonly text: string;
  /** With a grammar: the log-prob without it. */
  readonly policyLogprob?: number;
};

/** `stop`: a stop token or text; `length`: `maxNewTokens` or the end of the model's context. */
export type FinishReason = "stop" | "length";

export type Sample = {
  readonly index: number;
  /** The drawn tokens, with the one that ended the sample. */
  readonly ids: readonly number[];
  readonly logprobs: readonly number[];
  /** With a grammar: the log-probs without it, at the same temperature. */
  readonly policyLogprobs?: readonly number[];
  readonly top: readonly (readonly TokenLogprob[])[];
  /** Without special tokens and without the stop text. Empty without `wantsText` and `stop`. */
  readonly text: string;
  readonly finishReason: FinishReason;
  /** The token or text that ended it; null for the model's own end-of-sequence token, and for `length`. */
  readonly stopReason: number | string | null;
};

export type PromptToken = TokenLogprob & { readonly top: readonly TokenLogprob[] };

export type Completion = {
  readonly samples: readonly Sample[];
  /** One entry per prompt token, null for the first; absent without `SampleRequest.promptLogprobs`. */
  readonly promptLogprobs?: readonly (PromptToken | null)[];
  /** Prompt tokens that were not computed again, because an earlier prompt has the same prefix. */
  readonly cachedTokens: number;
};

/** The limits of a sampler. */
export type SamplerLimits = {
  /** Bytes for keys and values of past tokens. */
  readonly cacheBytes?: number;
  /** Sequences that are decoded together. */
  readonly maxSequences?: number;
  /** Prompt tokens computed in one step, between two steps of decoding. */
  readonly maxBatchedTokens?: number;
  /** Tokens of prompt and sample together; at most the model's context. */
  readonly maxLength?: number;
  /** Reuse the keys and values of common prefixes of prompts; on by default. */
  readonly hasPrefixCache?: boolean;
};

/** The load of a sampler, and its totals so far. */
export type SamplerStats = {
  readonly running: number;
  readonly waiting: number;
  /** Tokens whose keys and values are in the cache, and how many fit. */
  readonly cachedTokens: number;
  readonly cacheTokens: number;
  readonly promptTokens: number;
  /** The prompt tokens that were found in the cache. */
  readonly reusedTokens: number;
  readonly generatedTokens: number;
  readonly finishedSamples: number;
  /** Sequences that lost their slot to another one and were computed again later. */
  readonly preemptions: number;
};
