/** What the server needs from a model: an engine's `Model` has it, and so has the small sampler of the protocol tests. */
import type { ModelConfig } from "../models/config.ts";
import type { Completion, SampleRequest, SamplerStats } from "../rollout/request.ts";

/** A model that samples. */
export type ServedModel = {
  readonly config: Pick<ModelConfig, "vocabSize" | "maxPositions">;
  sample(request: SampleRequest): Promise<Completion>;
  samplerStats(): SamplerStats;
  /** Load weights of the same shapes from a Hugging Face folder; nothing is sampled meanwhile. */
  load(folder: string): Promise<void>;
};
