/** Validation: every prompt of the validation files answered and scored, with verl's metric names. */
import { type Info, validationMetrics } from "../../algos/metrics/validation-metrics.ts";
import { samplingSettings } from "../../config/ppo/settings.ts";
import type { RlRow } from "../../data/rl-rows.ts";
import { rewardColumns } from "../../rewards/placement.ts";
import type { NewGroup } from "../../run/rollouts.ts";
import { chooseSamples, dumpSamples, type Sample } from "../../track/samples.ts";
import type { Tracker } from "../../track/tracker.ts";
import { UserError } from "../../util/errors.ts";
import type { Progress } from "../progress.ts";
import type { Episode } from "./episode.ts";
import { type Player, rollOut } from "./rollouts.ts";
import { rolloutGroups, watchedRows } from "./watch.ts";

type Validation = {
  readonly step: number;
  readonly progress: Progress;
  readonly tracker: Tracker;
  readonly signal: AbortSignal;
};

type Validated = { readonly metrics: Record<string, number>; readonly rollouts: NewGroup[] };

/** Answer and score the rows; the metrics are those of `val-core/…` and `val-aux/…`. */
export async function validate(player: Player, rows: readonly RlRow[], at: Validation): Promise<Validated> {
  const { step, progress, tracker, signal } = at;
  const { trainer, actor_rollout_ref: all } = player.config;
  const episodes = await rollOut(player, rows, {
    sampling: samplingSettings(player.config, "val"),
    n: all.rollout.val_kwargs.n,
    round: `validation ${step}`,
    signal,
    say: (what) => progress.say(`validation: ${what}`),
  });
  const scored = episodes.filter(({ score }) => score !== null);
  if (scored.length === 0)
    throw new UserError("No response of the validation could be scored; see the warnings above.");
  const samples = samplesOf(scored);
  if (trainer.log_val_generations > 0) tracker.logSamples(step, chooseSamples(samples, trainer.log_val_generations));
  if (trainer.validation_data_dir !== null) await dumpSamples(trainer.validation_data_dir, step, samples);
  const columns = rewardColumns(scored.map(({ score }) => score!));
  const infos = Object.entries(columns).filter((entry): entry is [string, Info[]] => entry[1].every(isInfo));
  const metrics = validationMetrics({
    dataSources: scored.map(({ row }) => row.dataSource),
    uids: scored.map(({ group }) => group),
    infos: { reward: scored.map(({ score }) => score!.score), ...Object.fromEntries(infos) },
  });
  // The same prompts every time, so that their answers can be compared.
  const watched = trainer.logged_tokens > 0 ? watchedRows(player.config, scored, "validation") : [];
  return { metrics: { ...metrics }, rollouts: rolloutGroups(scored, { watched }, player) };
}

const isInfo = (value: unknown): value is Info =>
  value === null || ["number", "boolean", "string"].includes(typeof value);

/** Episodes as people read them. */
export function samplesOf(episodes: readonly Episode[]): Sample[] {
  return episodes.map(({ promptText, text, score, row }) => ({
    input: promptText,
    output: text,
    score: score?.score ?? Number.NaN,
    gts: row.rewardModel?.ground_truth ?? null,
    extra: score?.extra ?? {},
  }));
}
