/** The table of token embeddings: one row per token of the vocabulary. */
import * as o from "../../graph/ops.ts";
import { type Dim, times } from "../../graph/shape.ts";
import { costOf, type Part, parameter } from "./part.ts";

export type TokenEmbedding = {
  readonly vocabSize: number;
  readonly width: number;
  /** Embeddings are multiplied by this. */
  readonly scale: number;
  /** The weight of the language-model head is this table. */
  readonly isTied: boolean;
};

/** The head's name in checkpoints. */
export const LM_HEAD = "lm_head.weight";

export const tokenEmbedding: Part<TokenEmbedding> = {
  parameters: ({ vocabSize, width, isTied }) => {
    const table = parameter("", "weight", [vocabSize, width]);
    return [{ ...table, pieces: table.pieces.map((piece) => ({ ...piece, aliases: isTied ? [LM_HEAD] : [] })) }];
  },

  /** Token ids [batch, time] to rows [batch * time, width]. */
  build: (ids, { scale }, at) => {
    const [batch, time] = ids.shape as [Dim, Dim]; // the ids of a batch
    const embedded = o.take(at.parameter(""), o.reshape(ids, [times(batch, time)]));
    return { out: scale === 1 ? embedded : o.mul(embedded, scale) };
  },

  cache: () => [],

  cost: (_, context) => costOf(0, { limit: 0, train: 0, forward: 0, prefill: 0 }, context),
};
