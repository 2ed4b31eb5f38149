/**
 * Reinforcement learning: sample, score, estimate advantages, update, in verl's order and with verl's names.
 *
 * `trainOn` is the whole run and `takeStep` one step of it, both read downwards. What tells one algorithm from another
 * is a value looked up by name: the advantage estimator, the policy loss, the KL estimate, the correction. A run that is
 * killed at any moment and started again ends with the same weights and metrics, byte for byte.
 *
 * The sampler is the trainer: where nothing is cut off its distribution, its log-probs are the old ones and no pass
 * computes them anew. A few episodes of each step are computed anew all the same, and the gap is logged.
 */
import { findAdvantage } from "../../algos/advantages/registry.ts";
import { totals } from "../../algos/advantages/token-rows.ts";
import type { Rows } from "../../algos/batch.ts";
import { correct } from "../../algos/correction/correct.ts";
import type { KlControl } from "../../algos/kl/control.ts";
import { penalizeRewards } from "../../algos/kl/reward-penalty.ts";
import { extraName } from "../../algos/losses/token-loss.ts";
import { valueLoss } from "../../algos/losses/value-loss.ts";
import { dataMetrics } from "../../algos/metrics/data-metrics.ts";
import { throughputMetrics, timingMetrics } from "../../algos/metrics/timing-metrics.ts";
import type { PpoConfig } from "../../config/ppo/schema.ts";
import {
  advantageSettings,
  correctionSettings,
  criticSettings,
  groupFilter,
  rewardColumns,
  rowSelection,
} from "../../config/ppo/settings.ts";
import { Loader, type LoaderState } from "../../data/loader.ts";
import { claimRun } from "../../run/run.ts";
import { dumpSamples } from "../../track/samples.ts";
import { clearStatus, info, warn } from "../../util/log.ts";
import { Random } from "../../util/random.ts";
import { Clock } from "../clock.ts";
import type { TrainContext } from "../context.ts";
import { checkSkipped, sayFinished, sayStart, sayStopped, trackRun } from "../course.ts";
import { type Attempt, onEngine } from "../open-engine.ts";
import { Progress } from "../progress.ts";
import { betterBest } from "./best.ts";
import { componentsOf, type Episode, groupsOf, masksOf, scoresOf } from "./episode.ts";
import { gather, greedyScores } from "./gather.ts";
import { checkSampler, isCorrecting, isSamplerTrusted, logprobsOf, valuesOf } from "./passes.ts";
import { unlessStopped } from "./rollouts.ts";
import type { Scene, Skipped } from "./scene.ts";
import {
  actorDir,
  announce,
  loadPrompts,
  openPlayer,
  openRoles,
  type Prompts,
  type RlState,
  saveRoles,
  stateAt,
} from "./setup.ts";
import { actorTeacher } from "./teach.ts";
import { type Lesson, plainRow, update, updateOptions } from "./update.ts";
import { samplesOf, validate } from "./validate.ts";
import { type Known, rolloutGroups, watchedRows } from "./watch.ts";

/** Train to the end, or until the signal is aborted. */
export async function trainRl(config: PpoConfig, context: TrainContext): Promise<void> {
  const prompts = await loadPrompts(config, context);
  await onEngine(config, context, (attempt) => trainOn(attempt, config, prompts, context));
}

async function trainOn(
  { engine, resumeMode, saved }: Attempt,
  config: PpoConfig,
  prompts: Prompts,
  context: TrainContext,
): Promise<void> {
  const { data, trainer } = config;
  const batchSize = groupFilter(config) ? (data.gen_batch_size ?? data.train_batch_size) : data.train_batch_size;
  const seed = data.seed ?? trainer.seed;
  const loader = new Loader({ rows: prompts.train.length, batchSize, shuffle: data.shuffle, seed, dropLast: true });
  const totalSteps = trainer.total_training_steps ?? trainer.total_epochs * loader.batchesPerEpoch;
  await using claim = await claimRun(trainer.default_local_dir, {
    resumeMode,
    resumeFromPath: trainer.resume_from_path,
    keep: trainer.max_actor_ckpt_to_keep,
  });
  const { start } = claim;
  const firstStep = (start?.step ?? 0) + 1;
  if (start !== null && firstStep > totalSteps && !trainer.val_only)
    return sayFinished(start.step, totalSteps, actorDir(start.dir));
  let { klControl, skippedInARow, best } = stateAt(start, config, loader, prompts.fingerprint);
  await engine.checkFolder?.(claim.dir);
  const roles = await openRoles(config, prompts, { engine, start }, context);
  await using player = await openPlayer(config, { ...prompts, actor: roles.actor, engine, dir: claim.dir }, context);
  await using trackers = await trackRun(config, { start, totalSteps, env: context.env });
  const run = await claim.begin({ ...config, trainer: { ...trainer, total_training_steps: totalSteps } });
  announce(config, prompts, roles, totalSteps);
  sayStart(start, run.dir);
  await player.push(roles.actor);

  using progress = new Progress(firstStep, totalSteps);
  const { signal } = context;
  const check = async (step: number, until: AbortSignal) => {
    const begun = performance.now();
    const checked = await validate(player, prompts.validation, { step, progress, tracker: trackers, signal: until });
    if (trainer.logged_tokens > 0 && step > (start?.step ?? -1)) await run.logRollouts(step, "val", checked.rollouts);
    const better = trainer.best_metric && betterBest(trainer.best_metric, { step, metrics: checked.metrics, best });
    if (better) {
      best = better;
      await run.saveBest((dir) => roles.actor.save(dir), better);
    }
    return { ...checked.metrics, "timing_s/testing": (performance.now() - begun) / 1000 };
  };
  let keptStep = 0;
  const keepSkipped = async (step: number, { model, rows, ...about }: Skipped) => {
    if (skippedInARow > 0 || keptStep === step) return; // the first of a row of them tells most
    keptStep = step;
    const kept = await run.saveSkipped(step, (dir) => model.save(dir), { step, ...about, rows: rows.map(plainRow) });
    warn(`The weights and the batch of an update without a finite gradient (${about.gradNorm}) are in ${kept}.`);
  };
  const log = async (step: number, metrics: Record<string, number>) => {
    await run.logMetrics(step, metrics);
    trackers.log(step, metrics);
  };
  const save = async (step: number, position: LoaderState) => {
    progress.say("saving");
    const { fingerprint } = prompts;
    const state: RlState = { loader: position, fingerprint, klControl, skippedInARow, best };
    await run.saveCheckpoint(step, (dir) => saveRoles(roles, dir), state);
    savedStep = step;
    saved();
  };
  const stop = async (step: number) => {
    await trackers.close("stopped");
    sayStopped(step, totalSteps, run.dir);
  };
  let savedStep = firstStep - 1;
  if (trainer.val_only) {
    const metrics = await check(savedStep, signal);
    if (start === null) await run.logMetrics(0, metrics); // else the file ends with the checkpoint's step
    trackers.log(savedStep, metrics);
    return await trackers.close("finished");
  }
  if (start === null && trainer.val_before_train && prompts.validation.length > 0) await log(0, await check(0, signal));
  for (let step = firstStep; step <= totalSteps; step++) {
    progress.begin(step);
    const scene: Scene = { config, prompts, roles, player, loader, progress, totalSteps, keepSkipped, signal };
    const position = loader.state();
    const taken = await unlessStopped(signal, takeStep(scene, step, klControl));
    if (taken === null) {
      // Sampling was cut short, so nothing has been learnt since the step before.
      if (step - 1 > savedStep) await save(step - 1, position);
      return await stop(step - 1);
    }
    klControl = taken.klControl;
    skippedInARow = taken.hasSkipped ? skippedInARow + 1 : 0;
    checkSkipped(step, skippedInARow, trainer.max_skipped_updates);

    const isDue = (every: number) => every > 0 && (step === totalSteps || step % every === 0);
    const validated = prompts.validation.length > 0 && isDue(trainer.test_freq) ? await check(step, NEVER) : {};
    progress.end();
    if (trainer.logged_tokens > 0) await run.logRollouts(step, "train", rolloutGroups(taken.episodes, taken, prompts));
    await log(step, { ...taken.metrics, ...validated });

    if (signal.aborted || isDue(trainer.save_freq)) await save(step, loader.state());
    if (signal.aborted) return await stop(step);
  }
  await trackers.close("finished");
  clearStatus();
  info(`Done: ${totalSteps} steps. The run folder is ${run.dir}.`);
}

/** Validation of a step that is learnt is not cut short: the step's metrics are those of an unbroken run. */
const NEVER = AbortSignal.any([]);

/** What a step did. */
export type Taken = {
  readonly metrics: Record<string, number>;
  readonly episodes: readonly Episode[];
  /** Rows of the episodes to look at, and what is known of their tokens. */
  readonly watched: readonly number[];
  readonly known: Known;
  readonly klControl: KlControl;
  readonly hasSkipped: boolean;
};

/** One step: gen with reward, old_log_prob, ref, values, adv, update_critic, update_actor. */
export async function takeStep(scene: Scene, step: number, klControl: KlControl): Promise<Taken> {
  const { config, progress } = scene;
  const { actor, reference, critic } = scene.roles;
  const { algorithm, trainer } = config;
  const estimator = findAdvantage(algorithm.adv_estimator);
  const correction = correctionSettings(config);
  const clock = new Clock();

  const { episodes, metrics } = await clock.time("gen", () => gather(scene, step));
  const scores = scoresOf(episodes);
  const rolloutLogprobs: Rows = episodes.map(({ logprobs }) => logprobs);
  let mask: Rows = masksOf(episodes);
  const baselines = estimator.needs.includes("baselines")
    ? await clock.time("gen_max", () => greedyScores(scene, episodes, step))
    : undefined;

  const isAnew = !correction.isBypass && !isSamplerTrusted(scene);
  const old = isAnew
    ? await clock.time("old_log_prob", () => logprobsOf(scene, actor, "old_log_prob", { episodes, mask }))
    : null;
  const oldLogprobs = old?.logprobs ?? rolloutLogprobs;
  const watched = watchedRows(config, episodes, `step ${step}`);
  const checked = await checkSampler(scene, { episodes, mask, old, watched });
  Object.assign(metrics, checked.metrics);
  const ref = reference && (await clock.time("ref", () => logprobsOf(scene, reference, "ref", { episodes, mask })));
  const values = critic && (await clock.time("values", () => valuesOf(scene, critic, { episodes, mask })));

  const { rewards, advantages, returns, weights, control } = await clock.time("adv", async () => {
    const { kl_penalty: kind } = algorithm;
    const penalized =
      algorithm.use_kl_in_reward && ref !== null
        ? penalizeRewards({ scores, oldLogprobs, refLogprobs: ref.logprobs, mask }, { kind, control: klControl })
        : { rewards: scores, control: klControl, metrics: {} };
    const isDecoupled = isCorrecting(correction) && !correction.isBypass;
    const corrected = isDecoupled
      ? correct({ trainingLogprobs: oldLogprobs, rolloutLogprobs, mask }, correction)
      : null;
    mask = corrected?.mask ?? mask;
    Object.assign(metrics, penalized.metrics, corrected?.metrics);
    const evidence = {
      rewards: penalized.rewards,
      mask,
      groups: groupsOf(episodes),
      oldLogprobs,
      ...(values && { values }),
      ...(baselines && { baselines }),
      ...(old?.sumPiSquared && { sumPiSquared: old.sumPiSquared }),
      components: componentsOf(episodes, rewardColumns(config)),
      ...(corrected?.weights && { rolloutWeights: corrected.weights }),
    };
    const estimate = estimator.compute(evidence, advantageSettings(config));
    return { ...penalized, ...estimate, weights: corrected?.weights ?? null };
  });
  Object.assign(metrics, batchMetrics(scene, episodes, { mask, scores, rewards, advantages, returns, values }));

  const given: Record<string, Rows | null> = {
    oldLogprobs,
    refLogprobs: ref?.logprobs ?? null,
    oldValues: values,
    advantages,
    returns,
    rolloutWeights: weights,
  };
  const selection = rowSelection(config);
  const chosen = selection.select(totals(scores), new Random(trainer.seed, selection.name, step));
  const lesson = (rows: readonly number[], loss: Lesson["loss"]): Lesson => ({
    mask: rows.map((row) => mask[chosen[row]!]!),
    extra: Object.fromEntries(
      (loss.extra ?? []).flatMap((extra) => {
        const known = given[extraName(extra)];
        return known ? [[extraName(extra), rows.map((row) => known[chosen[row]!]!)]] : []; // the engine asks for the rest
      }),
    ),
    loss,
  });
  const pupils = chosen.map((row) => episodes[row]!);
  let hasSkipped = false;
  if (critic !== null) {
    const loss = valueLoss(criticSettings(config));
    const done = await clock.time("update_critic", () =>
      update(critic, pupils, async (rows) => lesson(rows, loss), updateOptions(scene, "critic", step)),
    );
    Object.assign(metrics, done.metrics);
    hasSkipped ||= done.skipped > 0;
  }
  if (step >= trainer.critic_warmup) {
    const teach = actorTeacher(scene, { step, pupils, lesson, isWeighted: weights !== null });
    const done = await clock.time("update_actor", () =>
      update(actor, pupils, teach, updateOptions(scene, "actor", step)),
    );
    Object.assign(metrics, done.metrics);
    hasSkipped ||= done.skipped > 0;
  }
  await clock.time("update_weights", () => scene.player.push(actor));
  const { rollout_data_dir: dumps } = trainer;
  if (dumps !== null) await clock.time("dump_rollout_generations", () => dumpSamples(dumps, step, samplesOf(episodes)));
  progress.say("step done");

  const promptTokens = episodes.reduce((sum, { promptIds }) => sum + promptIds.length, 0);
  const responseTokens = episodes.reduce((sum, { responseIds }) => sum + responseIds.length, 0);
  const seconds = clock.seconds();
  Object.assign(metrics, { "training/global_step": step });
  Object.assign(metrics, timingMetrics(seconds, { promptTokens, responseTokens }));
  Object.assign(metrics, throughputMetrics({ tokens: promptTokens + responseTokens, stepSeconds: seconds.step }));
  const known = { advantages, entropy: checked.entropy };
  return { metrics, episodes, watched, known, klControl: control, hasSkipped };
}

type BatchRows = {
  readonly mask: Rows;
  readonly scores: Rows;
  readonly rewards: Rows;
  readonly advantages: Rows;
  readonly returns: Rows;
  readonly values: Rows | null;
};

/** Episodes without a score are left out: a score of 0 would not be true of them. */
function batchMetrics({ config }: Scene, episodes: readonly Episode[], rows: BatchRows): Record<string, number> {
  const { prompt_length: maxPromptLength, response_length: maxResponseLength } = config.actor_rollout_ref.rollout;
  const isScored = (_: unknown, row: number) => episodes[row]!.score !== null;
  const { values } = rows;
  const scored = {
    mask: rows.mask.filter(isScored),
    scores: rows.scores.filter(isScored),
    rewards: rows.rewards.filter(isScored),
    advantages: rows.advantages.filter(isScored),
    returns: rows.returns.filter(isScored),
    promptLengths: episodes.filter(isScored).map(({ promptIds }) => promptIds.length),
    responseLengths: episodes.filter(isScored).map(({ responseIds }) => responseIds.length),
  };
  const options = { maxPromptLength, maxResponseLength };
  return dataMetrics({ ...scored, ...(values && { values: values.filter(isScored) }) }, options);
}
