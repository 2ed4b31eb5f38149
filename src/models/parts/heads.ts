/**
 * What stands on top of the last layer: next-token logits, one value per token, or one score per sequence.
 *
 * A value head and a score head are the same part; they differ in the tokens that are read.
 */
import { headLogits } from "../../graph/formulas.ts";
import * as o from "../../graph/ops.ts";
import { costOf, linear, type Part, parameter } from "./part.ts";
import { LM_HEAD } from "./token-embedding.ts";

export type Head = "lm" | "value" | "score";

export type HeadConfig = {
  readonly vocabSize: number;
  readonly width: number;
  /** The weight of a language-model head is the embedding; of no meaning for other heads. */
  readonly isTied: boolean;
  /** Caps the logits of a language-model head; values and scores are not capped. */
  readonly softcap: number | null;
  /** A value or score head has a bias. */
  readonly hasBias: boolean;
};

/** A cost per token that the head reads. */
const lm: Part<HeadConfig> = {
  parameters: ({ vocabSize, width, isTied }) => (isTied ? [] : [parameter("lm", LM_HEAD, [vocabSize, width])]),

  /** The logits of rows [n, width], [n, vocabulary]. */
  build: (hidden, { softcap }, at) => ({
    out: headLogits(hidden, at.parameter("lm"), { softcap, temperature: 1 }),
  }),

  cache: () => [],

  cost: ({ vocabSize, width }, context) =>
    costOf(
      2 * width * vocabSize,
      { limit: 3 * vocabSize, train: 2.3 * vocabSize, forward: 2 * vocabSize, prefill: 0 },
      context,
    ),
};

const scalar: Part<HeadConfig> = {
  parameters: ({ width, hasBias }) => linear("score", "score", [1, width], hasBias),

  /** The value or score of rows [n, width], [n]. */
  build: (hidden, _, at) => ({ out: o.reshape(at.linear("score", hidden), [hidden.shape[0]!]) }),

  cache: () => [],

  // The limit is that of a language-model head, so that a critic is cut into the same micro-batches as its actor.
  cost: ({ vocabSize, width }, context) =>
    costOf(2 * width, { limit: 3 * vocabSize, train: 2.3, forward: 2, prefill: 0 }, context),
};

export const heads: Record<Head, Part<HeadConfig>> = { lm, value: scalar, score: scalar };
