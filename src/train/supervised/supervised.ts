/**
 * The loop of supervised runs: batches of rows, one optimizer step each, validation, checkpoints.
 *
 * `takeSteps` is the loop, read downwards; what is learnt from a batch belongs to the task. A run that is killed at any
 * moment and started again resumes from its last checkpoint and ends with the same weights and metrics, byte for byte:
 * the order of rows depends on the seed, the arithmetic on the rows, and metrics past the checkpoint are written again.
 */
import { z } from "zod";
import { rowSharding } from "../../config/ray/ray.ts";
import type { RewardConfig } from "../../config/reward/schema.ts";
import type { SftConfig } from "../../config/sft/schema.ts";
import type { Loader } from "../../data/loader.ts";
import type { Engine, ForwardOptions, Model, ModelSpec, TokenRow } from "../../engine/contract.ts";
import type { Checkpoint } from "../../run/checkpoint.ts";
import { checkpointPath, optimizerDir, roleDir } from "../../run/names.ts";
import { UserError } from "../../util/errors.ts";
import { counted, formatCount } from "../../util/format.ts";
import { info } from "../../util/log.ts";
import type { TrainContext } from "../context.ts";
import { sayDone } from "../endings.ts";
import { microOf } from "../micro-batching.ts";
import { onEngine } from "../open-engine.ts";
import { optimizerStep } from "../optimizer.ts";
import { checkModels, type RunModels } from "../same-models.ts";
import { warnSkipped } from "../skipped-updates.ts";
import { supervisedSteps } from "../steps.ts";
import { type TrainingRun, withRun } from "../with-run.ts";

/** What a supervised run trains, and on what. */
export type SupervisedTask<Row> = {
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
type State = z.infer<typeof State> & { readonly models: RunModels };

/** Train to the end, or until the signal is aborted. */
export async function trainRows<Row>(
  config: SftConfig | RewardConfig,
  task: SupervisedTask<Row>,
  context: TrainContext,
): Promise<void> {
  await onEngine(config, context, (launch) => {
    const { loader, totalSteps } = supervisedSteps(config, task.train.length);
    const plan = {
      totalSteps,
      keep: config.trainer.max_ckpt_to_keep,
      role: task.role,
      open: (start: Checkpoint | null) => open(config, task, { loader, start, engine: launch.engine }),
      announce: ({ model }: Opened) => announce(config, model, task, totalSteps),
      train: (opened: Opened, run: TrainingRun) => takeSteps(config, task, { ...opened, loader }, run),
    };
    return withRun(launch, config, plan, context);
  });
}

type Opened = AsyncDisposable & { readonly model: Model; readonly state: State };
type Opening = { readonly loader: Loader; readonly start: Checkpoint | null; readonly engine: Engine };

async function open<Row>(
  config: SftConfig | RewardConfig,
  task: SupervisedTask<Row>,
  { loader, start, engine }: Opening,
): Promise<Opened> {
  const kept = stateAt(start, task, loader);
  const state = { ...kept, models: await checkModels(start, { model: task.model }) };
  const spec: ModelSpec = { ...task.model, sharding: rowSharding(config) };
  const model = await engine.open(start === null ? spec : { ...spec, folder: modelDir(task, start.dir) });
  if (start !== null) await model.loadOptimizer(optimizerDir(modelDir(task, start.dir)));
  return { model, state, [Symbol.asyncDispose]: async () => undefined }; // the engine closes its models
}

type Training = { readonly model: Model; readonly state: State; readonly loader: Loader };

/** Learn a batch, validate, log, save; again for every step. */
async function takeSteps<Row>(
  config: SftConfig | RewardConfig,
  task: SupervisedTask<Row>,
  { model, state: initial, loader }: Training,
  run: TrainingRun,
): Promise<void> {
  const { progress, totalSteps, signal } = run;
  const pass = (name: string): ForwardOptions => ({
    micro: microOf(config.data),
    onMicroBatch: progress.phase(name),
  });
  const write = async (dir: string) => {
    const folder = modelDir(task, dir);
    await model.save(folder);
    await task.finish?.(folder);
    await model.saveOptimizer(optimizerDir(folder));
  };
  let state = initial;
  let validated: Record<string, number> | null = null;
  for (let step = run.firstStep; step <= totalSteps; step++) {
    progress.begin(step);
    const { indices, isEpochEnd } = loader.next();
    const batch = indices.map((index) => task.train[index]!);
    const learnt = await task.learn(model, batch, { pass });
    const optimizer = optimizerStep(config.optim, { step, totalSteps, maxNorm: config.optim.clip_grad });
    const { gradNorm, isSkipped } = await model.step(optimizer);
    const tokens = learnt.rows.reduce((total, row) => total + row.ids.length, 0);
    state = {
      ...state,
      loader: loader.state(),
      totalTokens: state.totalTokens + tokens,
      skippedSteps: state.skippedSteps + (isSkipped ? 1 : 0),
    };
    if (isSkipped) warnSkipped(step, gradNorm, state.skippedSteps);
    const timings = progress.trained(tokens);
    const metrics = { ...learnt.metrics, ...stepMetrics({ gradNorm, lr: optimizer.lr, tokens, state }) };

    // Whether a step is validated does not depend on an interrupt: the metrics are those of a run without one.
    const isDue = (every: number | "after_each_epoch") =>
      step === totalSteps || (every === "after_each_epoch" ? isEpochEnd : every > 0 && step % every === 0);
    if (task.validation.length > 0 && isDue(config.trainer.test_freq)) {
      validated = await task.measure(model, task.validation, pass("validating"));
      Object.assign(metrics, validated);
    }
    progress.end();
    await run.log(step, { ...metrics, ...timings });
    const isStopping = signal.aborted;
    if (isStopping || isDue(config.trainer.save_freq)) await run.save(step, write, state);
    if (isStopping) return await run.stop(step);
  }
  await run.finish();
  if (validated !== null) task.conclude?.(validated);
  const folder = modelDir(task, checkpointPath(run.folder.dir, totalSteps));
  await sayDone(totalSteps, { folder, role: task.role });
}

type Taken = { readonly gradNorm: number; readonly lr: number; readonly tokens: number; readonly state: State };

const stepMetrics = ({ gradNorm, lr, tokens, state }: Taken): Record<string, number> => ({
  "train/grad_norm": gradNorm,
  "train/lr": lr,
  "train/global_tokens": tokens,
  "train/total_tokens(B)": state.totalTokens / 1e9,
  "train/skipped_steps": state.skippedSteps,
});

const modelDir = ({ role }: Pick<SupervisedTask<never>, "role">, checkpoint: string): string =>
  roleDir(checkpoint, role);

/** Where a run starts, but for its model; a checkpoint of another verb or of other rows is refused. */
function stateAt<Row>(
  start: Checkpoint | null,
  { verb, fingerprint }: SupervisedTask<Row>,
  loader: Loader,
): Omit<State, "models"> {
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

function announce<Row>(
  config: SftConfig | RewardConfig,
  model: Model,
  { train, validation, noun }: SupervisedTask<Row>,
  totalSteps: number,
): void {
  const rows = `${counted(train.length, noun)}${validation.length > 0 ? `, ${formatCount(validation.length)} to validate on` : ""}`;
  const size = `${model.config.family}, ${formatCount(model.parameterCount)} parameters`;
  const steps = `${counted(totalSteps, "step")} of ${config.data.train_batch_size}`;
  info(`Training ${config.model.path} (${size}) on ${rows}: ${steps}.`);
}
