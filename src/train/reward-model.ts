/**
 * Reward-model training: of two conversations, score the preferred one higher; one optimizer step per batch of pairs.
 *
 * `trainReward` is the whole run, read downwards. As in `sft.ts`, a run that is killed at any moment and started again
 * ends with the same weights and metrics, byte for byte. Each step scores its pairs first, because the two sides of a
 * pair may run in different micro-batches: what the scores say about the loss (`preference-loss.ts`) is then the weight
 * of each score in the pass that makes the gradient.
 */
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { z } from "zod";
import { bradleyTerry, type PreferenceResult, weightedScores } from "../algos/preference-loss.ts";
import type { RewardConfig } from "../config/reward.ts";
import { Loader } from "../data/loader.ts";
import type { PreferencePair } from "../data/preference-rows.ts";
import type { ForwardOptions, Model, TokenRow } from "../engine/contract.ts";
import { EmbeddedEngine } from "../engine/embedded/engine.ts";
import { readConfig } from "../models/config.ts";
import { learningRate } from "../nn/schedule.ts";
import type { Checkpoint } from "../run/checkpoint.ts";
import { claimRun } from "../run/run.ts";
import { UserError } from "../util/errors.ts";
import { counted, formatCount } from "../util/format.ts";
import { clearStatus, info } from "../util/log.ts";
import type { TrainContext } from "./context.ts";
import { loadPairs } from "./preference-data.ts";
import { Progress } from "./progress.ts";
import { lastToken, scoreRows } from "./reward-scorer.ts";
import { fetchModel } from "./sft-data.ts";
import {
  checkSameRows,
  microOf,
  sayFinished,
  saySkipped,
  sayStart,
  sayStopped,
  scheduleOf,
  trackRun,
} from "./supervised.ts";

/** What a checkpoint remembers besides weights and optimizer. */
const RewardState = z.object({
  loader: z.unknown(),
  /** Of the encoded training pairs. */
  pairs: z.string(),
  totalTokens: z.number(),
  skippedSteps: z.number(),
});
type RewardState = z.infer<typeof RewardState>;
const newState: RewardState = { loader: null, pairs: "", totalTokens: 0, skippedSteps: 0 };

/** Train to the end, or until the signal is aborted. */
export async function trainReward(config: RewardConfig, { signal, env }: TrainContext): Promise<void> {
  const folder = await fetchModel(config.model.path, { signal, env });
  const modelConfig = await readConfig(folder); // a model that cannot be trained says so before all the pairs are read
  const pairs = await loadPairs(config, { folder, model: modelConfig }, { signal, env });
  const { train, validation, tokenizerFolder, fingerprint } = pairs;
  const { train_batch_size: batchSize } = config.data;
  const { seed, device, threads } = config.trainer;
  const loader = new Loader({ rows: train.length, batchSize, shuffle: true, seed, dropLast: true });
  const totalSteps = config.trainer.total_training_steps ?? config.trainer.total_epochs * loader.batchesPerEpoch;
  const schedule = scheduleOf(config.optim, totalSteps);
  const { betas, weight_decay: weightDecay, clip_grad: maxNorm } = config.optim;
  const micro = microOf(config.data);

  const { default_local_dir: dir, resume_mode: resumeMode, resume_from_path: resumeFromPath } = config.trainer;
  const engine = new EmbeddedEngine({ device, threads });
  try {
    await using claim = await claimRun(dir, { resumeMode, resumeFromPath, keep: config.trainer.max_ckpt_to_keep });
    const { start } = claim;
    if (start !== null && start.step >= totalSteps) return sayFinished(start.step, totalSteps, modelDir(start.dir));
    const state = start === null ? newState : parseState(start);
    const from = start === null ? folder : modelDir(start.dir);
    const model = await engine.open({ folder: from, tokenizerFolder, head: "score", seed });
    if (start !== null) {
      loader.restore(state.loader);
      checkSameRows(start.dir, state.pairs, fingerprint);
      await model.loadOptimizer(optimizerDir(start.dir));
    }
    // Before the run begins: a tracker that refuses costs an earlier run nothing.
    await using trackers = await trackRun(config, { start, totalSteps, env });
    const run = await claim.begin({ ...config, trainer: { ...config.trainer, total_training_steps: totalSteps } });
    let { totalTokens, skippedSteps } = state;
    const firstStep = (start?.step ?? 0) + 1;
    announce(config, model, { train, validation, totalSteps });
    sayStart(start, dir);

    let measured: PreferenceResult["metrics"] | null = null;
    using progress = new Progress(firstStep, totalSteps);
    for (let step = firstStep; step <= totalSteps; step++) {
      const { indices, isEpochEnd } = loader.next();
      const batch = indices.map((index) => train[index]!);
      const lr = learningRate(schedule, step - 1);

      progress.begin(step);
      const result = await compare(model, batch, { micro, onMicroBatch: progress.phase("scoring") });
      const rows = weighted(batch, result);
      await model.train(rows, weightedScores, { micro, onMicroBatch: progress.phase("training") });
      const { gradNorm, isSkipped } = await model.step({ lr, betas, eps: 1e-8, weightDecay, maxNorm });
      if (isSkipped) saySkipped(step, gradNorm, ++skippedSteps);
      const tokens = rows.reduce((total, row) => total + row.ids.length, 0);
      totalTokens += tokens;
      const timings = progress.trained(tokens);
      const metrics: Record<string, number> = {
        ...prefixed("train/", result.metrics),
        "train/grad_norm": gradNorm,
        "train/lr": lr,
        "train/global_tokens": tokens,
        "train/total_tokens(B)": totalTokens / 1e9,
        "train/skipped_steps": skippedSteps,
      };

      // Whether a step is validated does not depend on an interrupt: the metrics are to be those of an unbroken run.
      const isDue = (every: number | "after_each_epoch") =>
        step === totalSteps || (every === "after_each_epoch" ? isEpochEnd : every > 0 && step % every === 0);
      if (validation.length > 0 && isDue(config.trainer.test_freq)) {
        const onMicroBatch = progress.phase("validating");
        measured = (await compare(model, validation, { micro, onMicroBatch })).metrics;
        Object.assign(metrics, prefixed("val/", measured));
      }
      progress.end();
      await run.logMetrics(step, { ...metrics, ...timings });
      trackers.log(step, { ...metrics, ...timings });

      const isStopping = signal.aborted;
      if (isStopping || isDue(config.trainer.save_freq)) {
        progress.say("saving");
        const save = async (dir: string) => {
          await model.save(modelDir(dir));
          await namePadding(modelDir(dir), pairs.padId);
          await model.saveOptimizer(optimizerDir(dir));
        };
        const after: RewardState = { loader: loader.state(), pairs: fingerprint, totalTokens, skippedSteps };
        await run.saveCheckpoint(step, save, after);
      }
      if (!isStopping) continue;
      await trackers.close("stopped");
      return sayStopped(step, totalSteps, run.dir);
    }
    await trackers.close("finished");
    clearStatus();
    if (measured !== null) sayValidation(measured, validation.length);
    const last = modelDir(join(run.dir, `global_step_${totalSteps}`));
    info(`Done: ${counted(totalSteps, "step")}. The reward model is in ${last}`);
  } finally {
    clearStatus();
    await engine.close();
  }
}

/** Score both sides of every pair, and say what that means for the loss. */
async function compare(
  model: Model,
  pairs: readonly PreferencePair[],
  options: ForwardOptions,
): Promise<PreferenceResult> {
  const scores = await scoreRows(model, sidesOf(pairs), options);
  const chosen = scores.slice(0, pairs.length);
  const rejected = scores.slice(pairs.length);
  return bradleyTerry({ chosen, rejected, margins: pairs.map(({ margin }) => margin) });
}

/** The conversations of some pairs: all that were chosen, then all that were rejected. */
function sidesOf(pairs: readonly PreferencePair[]): Int32Array[] {
  return [...pairs.map(({ chosen }) => chosen), ...pairs.map(({ rejected }) => rejected)];
}

/** The conversations with the weight that their score has in the loss. */
function weighted(pairs: readonly PreferencePair[], result: PreferenceResult): TokenRow[] {
  const weights = [...result.chosenWeights, ...result.rejectedWeights];
  return sidesOf(pairs).map((ids, i) => {
    const mask = lastToken(ids);
    return { ids, mask, extra: { weight: Float32Array.from(mask, (counts) => counts * weights[i]!) } };
  });
}

const prefixed = (prefix: string, metrics: PreferenceResult["metrics"]): Record<string, number> =>
  Object.fromEntries(Object.entries(metrics).map(([name, value]) => [prefix + name, value]));

/** Make config.json name the padding token, without which transformers refuses to score more than one row at a time. */
async function namePadding(dir: string, padId: number | null): Promise<void> {
  if (padId === null) return;
  const path = join(dir, "config.json");
  const text = await readFile(path, "utf8");
  const entry = `"pad_token_id": ${padId}`;
  const known = /"pad_token_id": [^,\n]+/;
  // By text, because the file spells some numbers in ways that JSON.stringify does not.
  await writeFile(path, known.test(text) ? text.replace(known, entry) : text.replace("{\n", `{\n  ${entry},\n`));
}

const modelDir = (checkpoint: string): string => join(checkpoint, "reward");
const optimizerDir = (checkpoint: string): string => join(checkpoint, "reward", "optimizer");

function parseState({ state, dir }: Checkpoint): RewardState {
  const parsed = RewardState.safeParse(state);
  if (parsed.success) return parsed.data;
  throw new UserError(`${dir} is not a checkpoint of \`trainyard reward\`. Choose another one, or another run folder.`);
}

type Course = {
  readonly train: readonly PreferencePair[];
  readonly validation: readonly PreferencePair[];
  readonly totalSteps: number;
};

function announce({ model: { path }, data }: RewardConfig, model: Model, course: Course): void {
  const { train, validation, totalSteps } = course;
  const pairs = `${counted(train.length, "pair")}${validation.length > 0 ? `, ${formatCount(validation.length)} to validate on` : ""}`;
  const size = `${model.config.family}, ${formatCount(model.parameterCount)} parameters`;
  info(`Training ${path} (${size}) on ${pairs}: ${counted(totalSteps, "step")} of ${data.train_batch_size}.`);
}

function sayValidation({ accuracy, margin }: PreferenceResult["metrics"], pairs: number): void {
  info(
    `${(100 * accuracy).toFixed(1)}% of ${counted(pairs, "held-out pair")} are ranked right; ` +
      `the chosen side leads by ${margin.toFixed(3)} on average.`,
  );
}
