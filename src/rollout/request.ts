/**
 * What is asked of a sampler, and what it gives back: token ids in, token ids with their log-probs out.
 *
 * A request asks for `n` samples of one prompt. Log-probs are those of the distribution the token was drawn from: after
 * penalties, temperature and the cuts of top-k, top-p and min-p (vLLM's `processed_logprobs`); at temperature 0, where
 * nothing is drawn, those of temperature 1 without cuts. Without penalties, bias and cuts they equal what `forward`
 * says of the same tokens.
 */

/** How tokens are drawn, and when a sample ends. */
export type Sampling = {
  readonly maxNewTokens: number;
  /** Until so many tokens were drawn, no token that would end the sample is. */
  readonly minNewTokens?: number;
  /** 0 takes the likeliest token; the default is 1. */
  readonly temperature?: number;
  /** Draw from the k likeliest tokens; 0 or -1 for all. */
  readonly topK?: number;
  /** Draw from the fewest likeliest tokens whose probabilities reach `topP`. */
  readonly topP?: number;
  /** Leave out tokens less likely than `minP` times the likeliest. */
  readonly minP?: number;
  /** Divides positive logits of tokens that occurred, prompt included, and multiplies negative ones. */
  readonly repetitionPenalty?: number;
  /** Taken off the logits of tokens that were drawn before. */
  readonly presencePenalty?: number;
  /** Taken off the logits of tokens for each time they were drawn before. */
  readonly frequencyPenalty?: number;
  /** Added to the logits, by token id. */
  readonly logitBias?: Readonly<Record<number, number>>;
  /** The same seed gives the same tokens, whatever else runs; absent, each request draws its own. */
  readonly seed?: number;
  /** Token ids that end a sample, besides the model's own. */
  readonly stopIds?: readonly number[];
  /** Texts that end a sample; `Sample.text` ends before them. */
  readonly stop?: readonly string[];
  /** Go on past the model's own end-of-sequence tokens. */
  readonly ignoreEos?: boolean;
  /** How many of the likeliest tokens to report at each place. */
  readonly topLogprobs?: number;
};

export type SampleRequest = Sampling & {
  readonly prompt: ArrayLike<number>;
  /** How many samples of the prompt; the prompt is read once for all of them. */
  readonly n?: number;
  /** Decode as well: `SampledToken.text` and `Sample.text` are filled. Stop texts imply it. */
  readonly wantsText?: boolean;
  /** Report the log-prob of each prompt token after the first, and so many of the likeliest ones in its place. */
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
  /** The likeliest tokens at this place, likeliest first; empty unless `topLogprobs` asks for them. */
  readonly top: readonly TokenLogprob[];
  /** The text that became certain with this token: never half a character, never part of a stop text. */
  readonly text: string;
};

/** `stop`: a stop token or text; `length`: `maxNewTokens` or the end of the model's context. */
export type FinishReason = "stop" | "length";

export type Sample = {
  readonly index: number;
  /** The drawn tokens, with the one that ended the sample. */
  readonly ids: readonly number[];
  readonly logprobs: readonly number[];
  readonly top: readonly (readonly TokenLogprob[])[];
  /** Without special tokens and without the stop text. Empty unless text was asked for. */
  readonly text: string;
  readonly finishReason: FinishReason;
  /** The token or text that ended it; null for an end-of-sequence token of the model's own, and for `length`. */
  readonly stopReason: number | string | null;
};

export type PromptToken = TokenLogprob & { readonly top: readonly TokenLogprob[] };

export type Completion = {
  readonly samples: readonly Sample[];
  /** One entry per prompt token, null for the first; absent unless asked for. */
  readonly promptLogprobs?: readonly (PromptToken | null)[];
  /** Prompt tokens that were not computed anew, because an earlier prompt began alike. */
  readonly cachedTokens: number;
};

/** What a sampler may use at once. */
export type SamplerLimits = {
  /** Bytes for keys and values of past tokens. */
  readonly cacheBytes?: number;
  /** Sequences that are decoded together. */
  readonly maxSequences?: number;
  /** Prompt tokens computed in one step, between two steps of decoding. */
  readonly maxBatchedTokens?: number;
  /** Tokens of prompt and sample together; the model's context unless it is shorter. */
  readonly maxLength?: number;
  /** Reuse what prompts begin alike with; on unless said otherwise. */
  readonly hasPrefixCache?: boolean;
};

/** How busy a sampler is, and what it did so far. */
export type SamplerStats = {
  readonly running: number;
  readonly waiting: number;
  /** Tokens whose keys and values are held, and how many could be. */
  readonly cachedTokens: number;
  readonly cacheTokens: number;
  readonly promptTokens: number;
  /** Of these, the ones that were found in the cache. */
  readonly reusedTokens: number;
  readonly generatedTokens: number;
  readonly finishedSamples: number;
  /** Sequences that gave up their place to let another go on, and were computed again later. */
  readonly preemptions: number;
};
