/** Validation: every prompt of the validation files answered and scored, with verl's metric names. */
import { type Info, validationMetrics } from "../../algos/metrics/validation-metrics.ts";
import type { PpoConfig } from "../../config/ppo/schema.ts";
import { samplingSettings } from "../../config/ppo/settings.ts";
import { rewardColumns } from "../../rewards/placement.ts";
import { chooseSamples, dumpSamples, type Sample } from "../../track/samples.ts";
import { UserError } from "../../util/errors.ts";
import { Random } from "../../util/random.ts";
import { Clock } from "../clock.ts";
import type { TrainingRun } from "../with-run.ts";
import { type Best, betterBest } from "./best.ts";
import type { RlContext } from "./context.ts";
import { type Episode, turnCount } from "./episode.ts";
import { inOrder, produce } from "./produce.ts";
import type { Prompt } from "./prompts.ts";
import { rolloutGroups, rowsToLog } from "./rollout-log.ts";

type At = {
  readonly step: number;
  /** The best validation so far. */
  readonly best: Best | null;
  /** Ends the sampling. */
  readonly signal: AbortSignal;
};

type Validated = { readonly metrics: Record<string, number>; readonly best: Best | null };

/**
 * Validate a step of a run: its metrics, what people look at, and the best model so far. The step of the checkpoint that
 * the run starts from changes nothing in the run folder.
 */
export async function validate(context: RlContext, run: TrainingRun, { step, best, signal }: At): Promise<Validated> {
  const { trainer } = context.config;
  const clock = new Clock();
  const episodes = await answerAll(context, step, signal);
  const samples = samplesOf(episodes);
  const { log_val_generations: shown, validation_data_dir: dumps } = trainer;
  if (shown > 0) run.trackers.logSamples(step, chooseSamples(samples, shown));
  if (dumps !== null) await dumpSamples(dumps, step, samples);
  const metrics = metricsOf(episodes);
  const isNew = step > (run.start?.step ?? -1);
  if (trainer.logged_tokens > 0 && isNew) {
    // The same prompts every time, so that their answers can be compared.
    const sorted = inFileOrder(episodes, context.prompts.validation);
    const logged = rowsToLog(context.config, sorted, "validation");
    await run.folder.logRollouts(step, "val", rolloutGroups(sorted, { logged }, context.rollout));
  }
  const better =
    trainer.best_metric === null || !isNew ? null : betterBest(trainer.best_metric, { step, metrics, best });
  if (better !== null) await run.folder.saveBest((dir) => context.roles.actor.save(dir), better);
  return { metrics: { ...metrics, "timing_s/testing": clock.seconds().step }, best: better ?? best };
}

/** The scored responses to all validation prompts. */
async function answerAll(context: RlContext, step: number, signal: AbortSignal): Promise<Episode[]> {
  const { config, prompts, rollout, progress } = context;
  const groups = await inOrder(
    produce(rollout, validationOrder(config, prompts.validation, step), {
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

/** The prompts in the order of the files, or with `data.validation_shuffle` in one that depends on the seed and the step. */
function validationOrder({ data, trainer }: PpoConfig, prompts: readonly Prompt[], step: number): readonly Prompt[] {
  if (!data.validation_shuffle) return prompts;
  const order = new Random(data.seed ?? trainer.seed, "validation_shuffle", step).permutation(prompts.length);
  return Array.from(order, (index) => prompts[index]!);
}

/** The episodes in the order of their prompts in the files. */
function inFileOrder(episodes: readonly Episode[], prompts: readonly Prompt[]): readonly Episode[] {
  const places = new Map(prompts.map((prompt, place) => [prompt, place]));
  return episodes.toSorted((a, b) => places.get(a.prompt)! - places.get(b.prompt)!);
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
