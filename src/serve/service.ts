/** What all endpoints share: the model, its tokenizer, the request limiter and the metrics. */
import type { Tokenizer } from "../text/tokenizer.ts";
import type { Metrics } from "./metrics.ts";
import type { RequestLimiter } from "./request-limiter.ts";
import type { ServedModel } from "./served-model.ts";

export type Service = {
  readonly model: ServedModel;
  readonly tokenizer: Tokenizer;
  /** The names of the model; answers contain the first one. */
  readonly names: readonly [string, ...string[]];
  /** Tokens of prompt and answer together. */
  readonly maxLength: number;
  /** A chat template that replaces the tokenizer's own. */
  readonly chatTemplate: string | null;
  readonly limiter: RequestLimiter;
  readonly metrics: Metrics;
};
