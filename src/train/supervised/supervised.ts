/**
 * The loop of supervised runs: batches of rows, one optimizer step each, validation, checkpoints.
 *
 * `learnOn` is the whole run, read downwards; what is learnt of a row is its caller's. A run that is killed at any
 * moment and started again goes on from its last checkpoint and ends with the same weights and metrics, byte for byte:
 * the order of rows depends on the seed, the arithmetic on the rows, and metrics past the checkpoint are written anew.
 */
import { join } from "node:path";
import { z } from "zod";
import { rowSharding } from "../../config/ray/ray.ts";
import type { RewardConfig } from "../../config/reward/schema.ts";
import type { SftConfig } from "../../config/sft/schema.ts";
import { Loader } from "../../data/loader.ts";
import type { ForwardOptions, Model, ModelSpec, TokenRow } from "../../engine/contract.ts";
import { learningRate } from "../../nn/schedule.ts";
import type { Checkpoint } from "../../run/checkpoint.ts";
import { claimRun } from "../../run/run.ts";
import { UserError } from "../../util/errors.ts";
import { counted, formatCount } from "../../util/format.ts";
import { clearStatus, info } from "../../util/log.ts";
import type { TrainContext } from "../context.ts";
import { microOf, sayFinished, saySkipped, sayStart, sayStopped, scheduleOf, trackRun } from "../course.ts";
import { type Attempt, onEngine } from "../open-engine.ts";
import { Progress } from "../progress.ts";

/** What a run learns, and from what. */
export type Subject<Row> = {
  readonly verb: "sft" | "reward";
  /** The folder of the model in a checkpoint. */
  readonly role: "actor" | "reward";
  /** What one of `train` is called. */
  readonly noun: string;
  readonly model: ModelSpec;
  readonly train: readonly Row[];
  readonly validation: readonly Row[];
  /** Of the encoded training rows. */
  readonly fingerprint: string;
  /** Make the gradient of a batch; returns its metrics and the sequences it ran. */
  learn(model: Model, batch: readonly Row[], options: Passes): Promise<Learnt>;
  /** What a validation measures. */
  measure(model: Model, rows: readonly Row[], options: ForwardOptions): Promise<Record<string, number>>;
  /** Change what was saved of the model, where it needs that. */
  finish?(folder: string): Promise<void>;
  /** Say what the last validation means. */
  conclude?(measured: Record<string, number>): void;
};

/** How passes are run, each with a name for the progress line. */
export type Passes = { pass(name: string): ForwardOptions };
export type Learnt = { readonly metrics: Record<string, number>; readonly rows: readonly TokenRow[] };

/** What a checkpoint remembers besides weights and optimizer. */
const State = z.object({
  verb: z.string(),
  loader: z.unknown(),
  fingerprint: z.string(),
  totalTokens: z.number(),
  skippedSteps: z.number(),
});
type State = z.infer<typeof State>;

/** Train to the end, or until the signal is aborted. */
export async function learnRows<Row>(
  config: SftConfig | RewardConfig,
  subject: Subject<Row>,
  context: TrainContext,
): Promise<void> {
  await onEngine(config, context, (attempt) => learnOn(attempt, config, subject, context));
}

async function learnOn<Row>(
  { engine, resumeMode, saved }: Attempt,
  config: SftConfig | RewardConfig,
  subject: Subject<Row>,
  { signal, env }: TrainContext,
): Promise<void> {
  const { train, validation, fingerprint } = subject;
  const { seed, test_freq: testFreq, save_freq: saveFreq } = config.trainer;
  const batchSize = config.data.train_batch_size;
  const loader = new Loader({ rows: train.length, batchSize, shuffle: true, seed, dropLast: true });
  const totalSteps = config.trainer.total_training_steps ?? config.trainer.total_epochs * loader.batchesPerEpoch;
  const schedule = scheduleOf(config.optim, totalSteps);
  const { betas, weight_decay: weightDecay, clip_grad: maxNorm } = config.optim;
  const modelDir = (checkpoint: string) => join(checkpoint, subject.role);
  const optimizerDir = (checkpoint: string) => join(modelDir(checkpoint), "optimizer");

  const { default_local_dir: dir, resume_from_path: resumeFromPath } = config.trainer;
  await using claim = await claimRun(dir, { resumeMode, resumeFromPath, keep: config.trainer.max_ckpt_to_keep });
  const { start } = claim;
  if (start !== null && start.step >= totalSteps) return sayFinished(start.step, totalSteps, modelDir(start.dir));
  const state = stateAt(start, subject, loader);
  const spec: ModelSpec = { ...subject.model, sharding: rowSharding(config) };
  await engine.checkFolder?.(claim.dir);
  const model = await engine.open(start === null ? spec : { ...spec, folder: modelDir(start.dir) });
  if (start !== null) await model.loadOptimizer(optimizerDir(start.dir));
  // Before the run begins: a tracker that refuses costs an earlier run nothing.
  await using trackers = await trackRun(config, { start, totalSteps, env });
  const run = await claim.begin({ ...config, trainer: { ...config.trainer, total_training_steps: totalSteps } });
  announce(config, model, { ...subject, totalSteps });
  sayStart(start, dir);

  let { totalTokens, skippedSteps } = state;
  let measured: Record<string, number> | null = null;
  const firstStep = (start?.step ?? 0) + 1;
  using progress = new Progress(firstStep, totalSteps);
  const pass = (name: string): ForwardOptions => ({
    micro: microOf(config.data),
    onMicroBatch: progress.phase(name),
  });
  for (let step = firstStep; step <= totalSteps; step++) {
    const { indices, isEpochEnd } = loader.next();
    const lr = learningRate(schedule, step - 1);

    progress.begin(step);
    const batch = indices.map((index) => train[index]!);
    const learnt = await subject.learn(model, batch, { pass });
    const { gradNorm, isSkipped } = await model.step({ lr, betas, eps: 1e-8, weightDecay, maxNorm });
    if (isSkipped) saySkipped(step, gradNorm, ++skippedSteps);
    const tokens = learnt.rows.reduce((total, row) => total + row.ids.length, 0);
    totalTokens += tokens;
    const timings = progress.trained(tokens);
    const metrics: Record<string, number> = {
      ...learnt.metrics,
      "train/grad_norm": gradNorm,
      "train/lr": lr,
      "train/global_tokens": tokens,
      "train/total_tokens(B)": totalTokens / 1e9,
      "train/skipped_steps": skippedSteps,
    };

    // Whether a step is validated does not depend on an interrupt: the metrics are to be those of an unbroken run.
    const isDue = (every: number | "after_each_epoch") =>
      step === totalSteps || (every === "after_each_epoch" ? isEpochEnd : every > 0 && step % every === 0);
    if (validation.length > 0 && isDue(testFreq)) {
      measured = await subject.measure(model, validation, pass("validating"));
      Object.assign(metrics, measured);
    }
    progress.end();
    await run.logMetrics(step, { ...metrics, ...timings });
    trackers.log(step, { ...metrics, ...timings });

    const isStopping = signal.aborted;
    if (isStopping || isDue(saveFreq)) {
      progress.say("saving");
      const save = async (folder: string) => {
        await model.save(modelDir(folder));
        await subject.finish?.(modelDir(folder));
        await model.saveOptimizer(optimizerDir(folder));
      };
      const after: State = { verb: subject.verb, loader: loader.state(), fingerprint, totalTokens, skippedSteps };
      await run.saveCheckpoint(step, save, after);
      saved();
    }
    if (!isStopping) continue;
    await trackers.close("stopped");
    return sayStopped(step, totalSteps, run.dir);
  }
  await trackers.close("finished");
  clearStatus();
  if (measured !== null) subject.conclude?.(measured);
  info(`Done: ${counted(totalSteps, "step")}. The model is in ${modelDir(join(run.dir, `global_step_${totalSteps}`))}`);
}

/** Where a run starts; a checkpoint of another verb or of other rows is refused. */
function stateAt<Row>(start: Checkpoint | null, { verb, fingerprint }: Subject<Row>, loader: Loader): State {
  if (start === null) return { verb, loader: null, fingerprint, totalTokens: 0, skippedSteps: 0 };
  const { data } = State.safeParse(start.state);
  if (data?.verb !== verb) {
    throw new UserError(
      `${start.dir} is not a checkpoint of \`trainyard ${verb}\`. Choose another one, or another run folder.`,
    );
  }
  loader.restore(data.loader);
  if (data.fingerprint === fingerprint) return data;
  throw new UserError(
    `${start.dir} was made with other training rows. Give the same files, limits and template, or start over with ` +
      "`trainer.resume_mode=disable`.",
  );
}

type Course<Row> = Pick<Subject<Row>, "train" | "validation" | "noun"> & { readonly totalSteps: number };

function announce<Row>(config: SftConfig | RewardConfig, model: Model, course: Course<Row>): void {
  const { train, validation, noun, totalSteps } = course;
  const rows = `${counted(train.length, noun)}${validation.length > 0 ? `, ${formatCount(validation.length)} to validate on` : ""}`;
  const size = `${model.config.family}, ${formatCount(model.parameterCount)} parameters`;
  const steps = `${counted(totalSteps, "step")} of ${config.data.train_batch_size}`;
  info(`Training ${config.model.path} (${size}) on ${rows}: ${steps}.`);
}
