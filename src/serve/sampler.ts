/** What the server needs of a model: an engine's `Model` is one, and so is the small sampler of the protocol tests. */
import type { ModelConfig } from "../models/config.ts";
import type { Completion, SampleRequest, SamplerStats } from "../rollout/request.ts";

/** A model that samples. */
export type ServedModel = {
  readonly config: Pick<ModelConfig, "vocabSize" | "maxPositions">;
  sample(request: SampleRequest): Promise<Completion>;
  samplerStats(): SamplerStats;
  /** Take new weights of the same shapes from a Hugging Face folder; nothing is being sampled meanwhile. */
  load(folder: string): Promise<void>;
};
