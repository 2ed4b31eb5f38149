/**
 * How long the sections of a step took, per token too, and how many tokens a worker gets through in a second
 * (verl's `compute_timing_metrics` and `compute_throughout_metrics`).
 *
 * Departures: no tokens give 0 ms per token, as in verl 0.9, where 0.7 raises; a step of no duration has no throughput.
 */
import { invariant } from "../../util/errors.ts";
import type { Metrics } from "./metrics.ts";

/** Sections whose time grows with the tokens, and which tokens those are. */
const tokensOf = {
  gen: "response",
  ref: "all",
  values: "all",
  adv: "all",
  update_critic: "all",
  update_actor: "all",
} as const;

/** `timing_s/{section}`, and `timing_per_token_ms/{section}` for sections whose time grows with the tokens. */
export function timingMetrics(
  seconds: Readonly<Record<string, number>>,
  { promptTokens, responseTokens }: { readonly promptTokens: number; readonly responseTokens: number },
): Metrics {
  const tokens = { response: responseTokens, all: promptTokens + responseTokens };
  const metrics: Record<string, number> = {};
  for (const [section, value] of Object.entries(seconds)) metrics[`timing_s/${section}`] = value;
  for (const [section, which] of Object.entries(tokensOf)) {
    const value = seconds[section];
    if (value === undefined) continue;
    metrics[`timing_per_token_ms/${section}`] = tokens[which] === 0 ? 0 : (value * 1000) / tokens[which];
  }
  return metrics;
}

/** Tokens of the step, its duration, and tokens per second and worker. */
export function throughputMetrics({
  tokens,
  stepSeconds,
  workers = 1,
}: {
  readonly tokens: number;
  readonly stepSeconds: number;
  readonly workers?: number;
}): Metrics {
  invariant(workers >= 1, `a step has at least one worker, not ${workers}`);
  return {
    "perf/total_num_tokens": tokens,
    "perf/time_per_step": stepSeconds,
    ...(stepSeconds > 0 ? { "perf/throughput": tokens / (stepSeconds * workers) } : {}),
  };
}
