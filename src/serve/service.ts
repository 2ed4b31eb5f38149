/** What every endpoint works with: the model, its tokenizer, and the parts of the server that are shared. */
import type { Tokenizer } from "../text/tokenizer.ts";
import type { Gate } from "./gate.ts";
import type { Metrics } from "./metrics.ts";
import type { ServedModel } from "./sampler.ts";

export type Service = {
  readonly model: ServedModel;
  readonly tokenizer: Tokenizer;
  /** The names the model answers to; the first is the one it gives. */
  readonly names: readonly [string, ...string[]];
  /** Tokens of prompt and answer together. */
  readonly maxLength: number;
  /** A chat template in the place of the tokenizer's own. */
  readonly chatTemplate: string | null;
  readonly gate: Gate;
  readonly metrics: Metrics;
};
