/** The job of a side of the RL bench, and the answer to a step: the same for ours and for the peer. */
import * as z from "zod";

export const rlJobSchema = z.object({
  folder: z.string(),
  threads: z.int(),
  /** A file of rows with a prompt and a ground truth, in verl's columns. */
  data: z.string(),
  prompts: z.int(),
  samples: z.int(),
  newTokens: z.int(),
  /** Every response is as long as allowed. */
  isFull: z.boolean(),
  lr: z.number(),
  steps: z.int(),
});
export type RlJob = z.infer<typeof rlJobSchema>;

/** The answer to the command `step`: one GRPO step. */
export const rlStepSchema = z.object({
  seconds: z.number(),
  peakBytes: z.number(),
  /** Tokens per response, on average. */
  meanLength: z.number(),
  reward: z.number(),
  /** Seconds by verl's timer names, and the useful share of the update's work; only ours reports them. */
  split: z.record(z.string(), z.number()).optional(),
  usefulShare: z.number().optional(),
});
export type RlStep = z.infer<typeof rlStepSchema>;
