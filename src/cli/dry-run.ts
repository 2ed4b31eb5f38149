/**
 * What `--dry-run` of a training verb says after the resolved config: the roles with their parameters and memory, the
 * rows and steps, and the time of a step as a short probe of the model suggests. All of it goes to stderr: stdout holds
 * the config alone.
 *
 * Nothing is downloaded and the run folder is not touched. What would stop the run (a missing file, rows that do not fit)
 * stops the dry run with the same message. A model that a run would have to download first is only named. What differs
 * between the verbs is in their `*-plan.ts`.
 */
import { type EngineConfig, workerCount } from "../config/ray/ray.ts";
import type { Loader } from "../data/loader.ts";
import { type ModelConfig, readConfig } from "../models/config.ts";
import { resolveModel } from "../models/hub.ts";
import { openRepo } from "../models/hub-repo.ts";
import { openWeights } from "../models/weights.ts";
import type { SamplerLimits } from "../rollout/request.ts";
import type { TrainContext } from "../train/context.ts";
import {
  PROGRAM_BYTES,
  parameterCount,
  type Role,
  roleMemory,
  type StepPlan,
  stepSeconds,
  totalOf,
} from "../train/estimate/estimate.ts";
import { type Probed, probe } from "../train/estimate/probe.ts";
import { UserError } from "../util/errors.ts";
import { counted, formatBytes, formatCount, formatSeconds } from "../util/format.ts";
import { clearStatus, info, status, warn } from "../util/log.ts";
import { thisMachine } from "../util/machine.ts";

/** A run as it would be. */
export type RunPlan = Pick<EngineConfig, "trainer"> & {
  /** What one step does with the models. */
  readonly plan: StepPlan;
  /** The folder of the model to probe. */
  readonly folder: string;
  readonly sampler: SamplerLimits;
  /** `64 prompts of 48 tokens`. */
  readonly rows: string;
  /** `3 steps of 8 x 8`. */
  readonly steps: string;
  readonly totalSteps: number;
  /** What the time is estimated for, and what it does not include. */
  readonly assumptions: string;
};

/** What a training verb says about the runs of a config. */
export type RunPlanner<Config> = {
  /** Every model that the run opens. */
  models(config: Config): readonly (string | null)[];
  plan(config: Config, context: TrainContext): Promise<RunPlan>;
};

/** Say what a run would be. */
export async function sayPlan<Config>(
  planner: RunPlanner<Config>,
  config: Config,
  context: TrainContext,
): Promise<void> {
  const offline = { ...context, env: { ...context.env, HF_HUB_OFFLINE: "1" } };
  for (const path of planner.models(config)) {
    if (path === null || (await isHere(path, offline))) continue;
    info(`${path} is not on this machine: a run downloads it first. Sizes and times are known once it is there.`);
    return;
  }
  const run = await planner.plan(config, offline);
  const { device, threads, engine } = run.trainer;
  sayRoles(run.plan);
  const fits = engine === "ray" || sayMemory(run.plan);
  info(`${run.rows}: ${run.steps}.`);
  if (engine === "ray") {
    const workers = counted(workerCount(run), "worker");
    return info(
      `Weights, gradients and optimizer are divided among ${workers}; activations and what sampling keeps are each worker's ` +
        "own (docs/sizing.md). The time of a step is not measured: it depends on the workers.",
    );
  }
  if (!fits) return info("The time of a step is not measured: the models would not fit.");
  status("measuring a step");
  const started = performance.now();
  const probed = await probe(run.plan, { ...run, device, threads, signal: context.signal }).finally(clearStatus);
  sayTime(run, probed, (performance.now() - started) / 1000);
}

/** Whether a model is a folder or in the hub's cache; a path that cannot be a name on the hub is refused. */
async function isHere(path: string, context: TrainContext): Promise<boolean> {
  try {
    await resolveModel(path, context);
    return true;
  } catch (error) {
    if (error instanceof UserError && openRepo("model", path, context) !== null) return false;
    throw error;
  }
}

/** The config of a model; of its weights only the headers are read. */
export async function readModel(path: string, context: TrainContext): Promise<ModelConfig> {
  const folder = await resolveModel(path, context);
  const config = await readConfig(folder);
  await openWeights(folder);
  return config;
}

/** One line per role. */
function sayRoles(plan: StepPlan): void {
  const roles = plan.roles.map((role) => ({ role, memory: roleMemory(plan, role) }));
  const width = Math.max(...roles.map(({ role }) => role.name.length));
  for (const { role, memory } of roles) {
    const parts = Object.entries(memory).filter(([, bytes]) => bytes > 0);
    info(
      `${role.name.padEnd(width)}  ${about(role)}: ${parts.map(([name, bytes]) => `${name} ${formatBytes(bytes)}`).join(", ")}`,
    );
  }
}

/** One line for all roles; returns whether they fit into the memory. */
function sayMemory(plan: StepPlan): boolean {
  const bytes = plan.roles.reduce((total, role) => total + totalOf(roleMemory(plan, role)), PROGRAM_BYTES);
  const machine = thisMachine();
  const whose = machine.isLimited ? "the container's" : "this machine's";
  info(`Memory, an estimate: ${formatBytes(bytes)} of ${whose} ${formatBytes(machine.memory)}.`);
  if (bytes <= machine.memory) return true;
  warn(
    "That is more than there is. Take a smaller model, or lower what one pass holds: " +
      "`ppo_micro_batch_size_per_gpu`, `micro_batch_size_per_gpu`, `max_token_len_per_gpu`, `data.max_length`, `rollout.max_num_seqs`.",
  );
  return false;
}

const about = ({ config }: Role): string => `${config.family}, ${formatCount(parameterCount(config))} parameters`;

function sayTime(
  { plan, totalSteps, assumptions }: RunPlan,
  { rates, compileSeconds }: Probed,
  probeSeconds: number,
): void {
  const phases = [...stepSeconds(plan, rates)];
  const step = phases.reduce((total, [, seconds]) => total + seconds, 0);
  const parts =
    phases.length > 1 ? ` (${phases.map(([name, seconds]) => `${name} ${duration(seconds)}`).join(", ")})` : "";
  info(
    `Time, an estimate from a probe of ${duration(probeSeconds)}: ${duration(step)} per step${parts}, ` +
      `${duration(step * totalSteps)} for ${counted(totalSteps, "step")}, and about ${duration(compileSeconds)} to compile at first. ` +
      assumptions,
  );
}

function duration(seconds: number): string {
  if (seconds < 1) return `${Math.round(1000 * seconds)}ms`;
  return seconds < 10 ? `${seconds.toFixed(1)}s` : formatSeconds(seconds);
}

/** Steps whose batches are looked at: sequences differ, and the largest ones decide. */
const PLANNED_STEPS = 4;
/** Fewer steps where they would have more rows than this. */
const MAX_ROWS = 4096;

/** The row indices of the first few steps; `rowsPerStep` counts all sequences of a step. */
export function firstBatches(loader: Loader, totalSteps: number, rowsPerStep: number): (readonly number[])[] {
  const length = Math.max(1, Math.min(PLANNED_STEPS, totalSteps, Math.floor(MAX_ROWS / rowsPerStep)));
  return Array.from({ length }, () => loader.next().indices);
}

/** ` and 8 to validate on`, or nothing. */
export const toValidate = (rows: readonly unknown[]): string =>
  rows.length > 0 ? ` and ${formatCount(rows.length)} to validate on` : "";

/** The mean length of some rows, as a whole number. */
export const meanLength = (rows: readonly Int32Array[]): number =>
  Math.round(rows.reduce((total, { length }) => total + length, 0) / rows.length);
