/**
 * Supervised fine-tuning: learn the marked tokens of every row, one optimizer step per batch.
 *
 * `trainSft` is the whole run, read downwards. A run that is killed at any moment and started again goes on from its
 * last checkpoint and ends with the same weights and metrics, byte for byte: the order of rows depends on the seed, the
 * arithmetic on the rows, and metrics past the checkpoint are written anew.
 */
import { join } from "node:path";
import { z } from "zod";
import type { SftConfig } from "../config/sft.ts";
import { Loader } from "../data/loader.ts";
import type { MicroBatching, Model, TokenLoss, TokenRow } from "../engine/contract.ts";
import { EmbeddedEngine } from "../engine/embedded/engine.ts";
import { div, mul, neg, sum } from "../graph/ops.ts";
import { readConfig } from "../models/config.ts";
import { learningRate } from "../nn/schedule.ts";
import type { Checkpoint } from "../run/checkpoint.ts";
import { claimRun } from "../run/run.ts";
import { UserError } from "../util/errors.ts";
import { counted, formatCount } from "../util/format.ts";
import { clearStatus, info } from "../util/log.ts";
import type { TrainContext } from "./context.ts";
import { Progress } from "./progress.ts";
import { fetchModel, loadExamples } from "./sft-data.ts";
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

/** The mean negative log-likelihood of the tokens to learn, over the whole batch whatever its micro-batches. */
const sftLoss: TokenLoss = {
  key: "sft",
  heads: ["logprobs"],
  scalars: ["tokens"],
  build: ({ logprobs, mask, tokens }) => ({ loss: div(neg(sum(mul(logprobs!, mask))), tokens!) }),
};

/** What a checkpoint remembers besides weights and optimizer. */
const SftState = z.object({
  loader: z.unknown(),
  /** Of the encoded training rows. */
  fingerprint: z.string(),
  totalTokens: z.number(),
  skippedSteps: z.number(),
});
type SftState = z.infer<typeof SftState>;
const newState: SftState = { loader: null, fingerprint: "", totalTokens: 0, skippedSteps: 0 };

/** Train to the end, or until the signal is aborted. */
export async function trainSft(config: SftConfig, { signal, env }: TrainContext): Promise<void> {
  const folder = await fetchModel(config.model.path, { signal, env });
  await readConfig(folder); // a model that cannot be trained says so before all the rows are read
  const { train, validation, tokenizerFolder, fingerprint } = await loadExamples(config, folder, { signal, env });
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
    const model = await engine.open({ folder: start === null ? folder : modelDir(start.dir), tokenizerFolder });
    const state = start === null ? newState : parseState(start);
    if (start !== null) {
      loader.restore(state.loader);
      checkSameRows(start.dir, state.fingerprint, fingerprint);
      await model.loadOptimizer(optimizerDir(start.dir));
    }
    // Before the run begins: a tracker that refuses costs an earlier run nothing.
    await using trackers = await trackRun(config, { start, totalSteps, env });
    const run = await claim.begin({ ...config, trainer: { ...config.trainer, total_training_steps: totalSteps } });
    let { totalTokens, skippedSteps } = state;
    const firstStep = (start?.step ?? 0) + 1;
    announce({ config, model, train, validation, totalSteps });
    sayStart(start, dir);

    using progress = new Progress(firstStep, totalSteps);
    for (let step = firstStep; step <= totalSteps; step++) {
      const batch = loader.next();
      const rows = batch.indices.map((index) => train[index]!);
      const lr = learningRate(schedule, step - 1);

      progress.begin(step);
      const onMicroBatch = progress.phase("training");
      const { loss } = await model.train(rows, sftLoss, {
        micro,
        scalars: { tokens: countTargets(rows) },
        onMicroBatch,
      });
      const { gradNorm, isSkipped } = await model.step({ lr, betas, eps: 1e-8, weightDecay, maxNorm });
      if (isSkipped) saySkipped(step, gradNorm, ++skippedSteps);
      const tokens = rows.reduce((total, row) => total + row.ids.length, 0);
      totalTokens += tokens;
      const timings = progress.trained(tokens);
      const metrics: Record<string, number> = {
        "train/loss": loss!,
        "train/grad_norm": gradNorm,
        "train/lr": lr,
        "train/global_tokens": tokens,
        "train/total_tokens(B)": totalTokens / 1e9,
        "train/skipped_steps": skippedSteps,
      };

      // Whether a step is validated does not depend on an interrupt: the metrics are to be those of an unbroken run.
      const isDue = (every: number | "after_each_epoch") =>
        step === totalSteps || (every === "after_each_epoch" ? batch.isEpochEnd : every > 0 && step % every === 0);
      if (validation.length > 0 && isDue(config.trainer.test_freq))
        metrics["val/loss"] = await validate(model, validation, micro, progress);
      progress.end();
      await run.logMetrics(step, { ...metrics, ...timings });
      trackers.log(step, { ...metrics, ...timings });

      const isStopping = signal.aborted;
      if (isStopping || isDue(config.trainer.save_freq)) {
        progress.say("saving");
        const save = async (dir: string) => {
          await model.save(modelDir(dir));
          await model.saveOptimizer(optimizerDir(dir));
        };
        await run.saveCheckpoint(step, save, { loader: loader.state(), fingerprint, totalTokens, skippedSteps });
      }
      if (!isStopping) continue;
      await trackers.close("stopped");
      return sayStopped(step, totalSteps, run.dir);
    }
    await trackers.close("finished");
    clearStatus();
    info(
      `Done: ${counted(totalSteps, "step")}. The model is in ${modelDir(join(run.dir, `global_step_${totalSteps}`))}`,
    );
  } finally {
    clearStatus();
    await engine.close();
  }
}

/** The mean negative log-likelihood over all validation tokens. */
async function validate(
  model: Model,
  rows: readonly TokenRow[],
  micro: MicroBatching,
  progress: Progress,
): Promise<number> {
  const onMicroBatch = progress.phase("validating");
  const outputs = await model.forward(rows, ["logprobs"], { micro, onMicroBatch });
  let total = 0;
  for (const { logprobs } of outputs) for (const value of logprobs!) total -= value;
  return total / countTargets(rows);
}

/** Tokens to learn; the first token of a row has nothing before it to be predicted from. */
function countTargets(rows: readonly TokenRow[]): number {
  let count = 0;
  for (const { ids, mask } of rows) for (let t = 1; t < ids.length; t++) count += mask[t]!;
  return Math.max(1, count);
}

const modelDir = (checkpoint: string): string => join(checkpoint, "actor");
const optimizerDir = (checkpoint: string): string => join(checkpoint, "actor", "optimizer");

function parseState({ state, dir }: Checkpoint): SftState {
  const parsed = SftState.safeParse(state);
  if (parsed.success) return parsed.data;
  throw new UserError(`${dir} is not a checkpoint of \`trainyard sft\`. Choose another one, or another run folder.`);
}

type Announcement = {
  readonly config: SftConfig;
  readonly model: Model;
  readonly train: readonly TokenRow[];
  readonly validation: readonly TokenRow[];
  readonly totalSteps: number;
};

function announce({ config, model, train, validation, totalSteps }: Announcement): void {
  const rows = `${counted(train.length, "row")}${validation.length > 0 ? `, ${formatCount(validation.length)} to validate on` : ""}`;
  const size = `${model.config.family}, ${formatCount(model.parameterCount)} parameters`;
  info(
    `Training ${config.model.path} (${size}) on ${rows}: ${counted(totalSteps, "step")} of ${config.data.train_batch_size}.`,
  );
}
