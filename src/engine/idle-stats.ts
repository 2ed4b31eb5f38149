/** The statistics of a model from which nothing has been sampled yet. */
import type { SamplerStats } from "../rollout/request.ts";

export const idleStats: SamplerStats = {
  running: 0,
  waiting: 0,
  cachedTokens: 0,
  cacheTokens: 0,
  promptTokens: 0,
  reusedTokens: 0,
  generatedTokens: 0,
  finishedSamples: 0,
  preemptions: 0,
};
