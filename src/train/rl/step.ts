/**
 * One step of reinforcement learning: produce and collect episodes, learn from them, give the new weights to the sampler.
 * The sections and their timers are verl's, in verl's order.
 */
import { findAdvantage } from "../../algos/advantages/registry.ts";
import { throughputMetrics, timingMetrics } from "../../algos/metrics/timing-metrics.ts";
import { workerCount } from "../../config/ray/ray.ts";
import { dumpSamples } from "../../track/samples.ts";
import { Clock } from "../clock.ts";
import type { OnSkipped } from "../skipped-updates.ts";
import { type Batch, collect, greedyScores, sampleRounds } from "./collect.ts";
import type { RlContext } from "./context.ts";
import { type Episode, promptLength, responseLength } from "./episode.ts";
import { type Learnt, learn } from "./learn.ts";
import { mfuMetrics } from "./mfu.ts";
import type { RlState } from "./state.ts";
import { samplesOf } from "./validate.ts";

export type StepResult = Learnt & Pick<Batch, "episodes" | "groups">;

/** Take a step from the state that the step before left. */
export async function takeStep(
  context: RlContext,
  step: number,
  { klControl, skippedInARow }: Pick<RlState, "klControl" | "skippedInARow">,
): Promise<StepResult> {
  const { config, rollout, roles, progress } = context;
  const clock = new Clock();

  const { episodes, groups, metrics } = await clock.time("gen", () =>
    collect(context, step, sampleRounds(context, step, clock)),
  );
  const hasBaselines = findAdvantage(config.algorithm.adv_estimator).needs.includes("baselines");
  const baselines = hasBaselines ? await clock.time("gen_max", () => greedyScores(context, episodes, step)) : null;
  const onSkipped = keepFirst(context, step, skippedInARow);
  const learnt = await learn(context, episodes, { step, baselines, klControl, onSkipped, clock });
  await clock.time("update_weights", () => rollout.push(roles.actor));

  const { rollout_data_dir: dumps } = config.trainer;
  if (dumps !== null) await clock.time("dump_rollout_generations", () => dumpSamples(dumps, step, samplesOf(episodes)));
  progress.say("step done");
  return {
    ...learnt,
    episodes,
    groups,
    metrics: { ...metrics, ...learnt.metrics, ...stepMetrics(context, episodes, { step, clock }) },
  };
}

/** Keep only the first of consecutive skipped updates, the one that shows the cause. */
function keepFirst({ saveSkipped }: RlContext, step: number, skippedInARow: number): OnSkipped {
  let isKept = skippedInARow > 0;
  return async (skipped) => {
    if (isKept) return;
    isKept = true;
    await saveSkipped(step, skipped);
  };
}

function stepMetrics(
  context: RlContext,
  episodes: readonly Episode[],
  { step, clock }: { readonly step: number; readonly clock: Clock },
): Record<string, number> {
  const promptTokens = episodes.reduce((sum, episode) => sum + promptLength(episode), 0);
  const responseTokens = episodes.reduce((sum, episode) => sum + responseLength(episode), 0);
  const seconds = clock.seconds();
  const workers = workerCount(context.config);
  return {
    "training/global_step": step,
    ...timingMetrics(seconds, { promptTokens, responseTokens }),
    ...throughputMetrics({ tokens: promptTokens + responseTokens, stepSeconds: seconds.step, workers }),
    ...mfuMetrics(context, episodes, seconds),
  };
}
