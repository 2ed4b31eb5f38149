/** Validation: every prompt of the validation files answered and scored, with verl's metric names. */
import { type Info, validationMetrics } from "../../algos/metrics/validation-metrics.ts";
import { samplingSettings } from "../../config/ppo/settings.ts";
import { rewardColumns } from "../../rewards/placement.ts";
import { chooseSamples, dumpSamples, type Sample } from "../../track/samples.ts";
import { UserError } from "../../util/errors.ts";
import { Clock } from "../clock.ts";
import type { TrainingRun } from "../with-run.ts";
import { type Best, betterBest } from "./best.ts";
import type { RlContext } from "./context.ts";
import { type Episode, turnCount } from "./episode.ts";
import { inOrder, produce } from "./produce.ts";
import { rolloutGroups, rowsToLog } from "./rollout-log.ts";

type At = {
  readonly step: number;
  /** The best validation so far. */
  readonly best: Best | null;
  /** Ends the sampling. */
  readonly signal: AbortSignal;
};

type Validated = { readonly metrics: Record<string, number>; readonly best: Best | null };

/** Validate a step of a run: its metrics, what people look at, and the best model so far. */
export async function validate(context: RlContext, run: TrainingRun, { step, best, signal }: At): Promise<Validated> {
  const { trainer } = context.config;
  const clock = new Clock();
  const episodes = await answerAll(context, step, signal);
  const samples = samplesOf(episodes);
  const { log_val_generations: shown, validation_data_dir: dumps } = trainer;
  if (shown > 0) run.trackers.logSamples(step, chooseSamples(samples, shown));
  if (dumps !== null) await dumpSamples(dumps, step, samples);
  const metrics = metricsOf(episodes);
  if (trainer.logged_tokens > 0 && step > (run.start?.step ?? -1)) {
    // The same prompts every time, so that their answers can be compared.
    const logged = rowsToLog(context.config, episodes, "validation");
    await run.folder.logRollouts(step, "val", rolloutGroups(episodes, { logged }, context.rollout));
  }
  const better = trainer.best_metric === null ? null : betterBest(trainer.best_metric, { step, metrics, best });
  if (better !== null) await run.folder.saveBest((dir) => context.roles.actor.save(dir), better);
  return { metrics: { ...metrics, "timing_s/testing": clock.seconds().step }, best: better ?? best };
}

/** The scored responses to all validation prompts. */
async function answerAll(context: RlContext, step: number, signal: AbortSignal): Promise<Episode[]> {
  const { config, prompts, rollout, progress } = context;
  const groups = await inOrder(
    produce(rollout, prompts.validation, {
      sampling: samplingSettings(config, "val"),
      n: config.actor_rollout_ref.rollout.val_kwargs.n,
      round: `validation ${step}`,
      version: step,
      signal,
      say: (what) => progress.say(`validation: ${what}`),
    }),
  );
  const scored = groups.flatMap(({ episodes }) => episodes).filter(({ score }) => score !== null);
  if (scored.length > 0) return scored;
  throw new UserError("No response of the validation could be scored; see the warnings above.");
}

/** The metrics `val-core/…` and `val-aux/…`. */
function metricsOf(episodes: readonly Episode[]): Record<string, number> {
  const columns = rewardColumns(episodes.map(({ score }) => score!));
  const infos = Object.entries(columns).filter((entry): entry is [string, Info[]] => entry[1].every(isInfo));
  const metrics = validationMetrics({
    dataSources: episodes.map(({ prompt }) => prompt.row.dataSource),
    uids: episodes.map(({ group }) => group),
    turns: episodes.map(turnCount),
    infos: { reward: episodes.map(({ score }) => score!.score), ...Object.fromEntries(infos) },
  });
  return { ...metrics };
}

const isInfo = (value: unknown): value is Info =>
  value === null || ["number", "boolean", "string"].includes(typeof value);

/** Episodes as people read them. */
export function samplesOf(episodes: readonly Episode[]): Sample[] {
  return episodes.map(({ prompt: { text: input, row }, text, score }) => ({
    input,
    output: text,
    score: score?.score ?? Number.NaN,
    gts: row.rewardModel?.ground_truth ?? null,
    extra: score?.extra ?? {},
  }));
}
