/** The job of a sampling side, and the answer to a round: the same for ours and for the peers. */
import * as z from "zod";

export const rolloutJobSchema = z.object({
  /** A Hugging Face folder, and for llama.cpp the file made from it. */
  folder: z.string(),
  file: z.string().nullable(),
  threads: z.int(),
  prompts: z.array(z.array(z.int())),
  newTokens: z.int(),
});
export type RolloutJob = z.infer<typeof rolloutJobSchema>;

/** The answer to the command `step`: every prompt continued by `newTokens` tokens, sampled at temperature 1. */
export const roundSchema = z.object({
  seconds: z.number(),
  peakBytes: z.number(),
  /** The part of it for weights and for the tokens in the cache; only ours reports it. */
  heldBytes: z.number().optional(),
  /** The first prompt's continuation, to be checked against the model itself. */
  ids: z.array(z.int()),
  logprobs: z.array(z.number()),
});
export type Round = z.infer<typeof roundSchema>;

/** The answer to `score` with a continuation of the first prompt: the log-probs of a forward pass. */
export const scoreSchema = z.object({ logprobs: z.array(z.number()) });

/** Where the time of decoding goes, in seconds of one round, and further times of the sampler. */
export const splitSchema = z.object({
  round: z.number(),
  /** Time inside the graph, by kind of operation. */
  products: z.number(),
  attention: z.number(),
  otherOperations: z.number(),
  /** Moving keys and values between slots. */
  cacheMoves: z.number(),
  drawing: z.number(),
  scheduling: z.number(),
  /** Eight samples of one prompt of 256 tokens, and one, to their first token; and a step of decoding eight. */
  group: z.object({ eight: z.number(), one: z.number() }),
  /** Seconds per step of 8 rows at each context length. */
  contexts: z.array(z.object({ length: z.int(), seconds: z.number() })),
});
export type Split = z.infer<typeof splitSchema>;
