/** The job of a training side, and the answer to a step: the same for ours and for torch. */
import * as z from "zod";
import type { OptimizerStep, TokenLoss, TokenRow } from "../src/engine/contract.ts";
import { div, mul, neg, sum } from "../src/graph/ops.ts";

export const jobSchema = z.object({
  /** A Hugging Face folder. */
  folder: z.string(),
  threads: z.int(),
  /** Token ids, one row per sequence; all but the first of each are trained on. */
  rows: z.array(z.array(z.int())),
  optimizer: z.object({
    lr: z.number(),
    betas: z.tuple([z.number(), z.number()]),
    eps: z.number(),
    weightDecay: z.number(),
    maxNorm: z.number(),
  }),
  /** torch only: compile the model first. */
  compile: z.boolean(),
});
export type TrainJob = z.infer<typeof jobSchema>;

/** The answer to the command `step`. */
export const stepSchema = z.object({
  seconds: z.number(),
  loss: z.number(),
  gradNorm: z.number(),
  /** The peak memory of the process so far. */
  peakBytes: z.number(),
});
export type Step = z.infer<typeof stepSchema>;

/** torch's defaults except for the learning rate, which changes the loss visibly in a few steps. */
export const optimizer = {
  lr: 2e-5,
  betas: [0.9, 0.999],
  eps: 1e-8,
  weightDecay: 0.01,
  maxNorm: 1,
} satisfies OptimizerStep;

/** The mean negative log-likelihood of the tokens that count. */
export const meanLoss: TokenLoss = {
  key: "mean",
  heads: ["logprobs"],
  scalars: ["count"],
  build: ({ logprobs, mask, count }) => ({ loss: div(neg(sum(mul(logprobs!, mask))), count!) }),
};

/** The job's sequences for our engine, and how many of their tokens count. */
export function batchOf(job: Pick<TrainJob, "rows">): { readonly rows: readonly TokenRow[]; readonly count: number } {
  const rows = job.rows.map((ids) => ({ ids: Int32Array.from(ids), mask: ids.map((_, t) => Number(t > 0)) }));
  return { rows, count: rows.reduce((total, { ids }) => total + ids.length - 1, 0) };
}

/** The answer of `train-shares.ts`: where the time of one step of ours goes, in seconds. */
export const sharesSchema = z.object({
  /** One call of the training graph, and the part of it inside the graph. */
  run: z.number(),
  graph: z.number(),
  products: z.object({ seconds: z.number(), flops: z.number() }),
  /** How much longer a call takes when every output is copied. */
  copies: z.number(),
  /** Rows added to the embedding's gradient, norm, AdamW. */
  optimizer: z.number(),
  plain: z.object({ shape: z.string(), flopsPerSecond: z.number() }),
  /** The graph's operations by time, longest first. */
  operations: z.array(z.object({ name: z.string(), seconds: z.number() })),
});
export type Shares = z.infer<typeof sharesSchema>;
