/**
 * What `--dry-run` says after the resolved config: the roles with their parameters and memory, the rows and steps, and
 * the time of a step as a short probe of the model suggests. All of it goes to stderr: stdout holds the config alone.
 *
 * Nothing is downloaded and no run folder is touched. What would stop the run (a missing file, rows that do not fit)
 * stops the dry run with the same message; a model that a run would have to download first is only named.
 */
import type { PpoConfig } from "../config/ppo/schema.ts";
import { rewardWay } from "../config/ppo/settings.ts";
import { workerCount } from "../config/ray/ray.ts";
import type { RewardConfig } from "../config/reward/schema.ts";
import type { SftConfig } from "../config/sft/schema.ts";
import { Loader } from "../data/loader.ts";
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
import { rewardPlan, rlPlan, sftPlan } from "../train/estimate/step-plan.ts";
import { loadPrompts } from "../train/rl/prompts.ts";
import { loadPairs } from "../train/supervised/preference-data.ts";
import { loadExamples } from "../train/supervised/sft-data.ts";
import { UserError } from "../util/errors.ts";
import { counted, formatBytes, formatCount, formatSeconds } from "../util/format.ts";
import { clearStatus, info, status, warn } from "../util/log.ts";
import { thisMachine } from "../util/machine.ts";

/** A run as it would be. */
type Preview = {
  readonly plan: StepPlan;
  readonly folder: string;
  readonly sampler: SamplerLimits;
  /** `64 prompts of 48 tokens`. */
  readonly rows: string;
  /** `3 steps of 8 x 8`. */
  readonly steps: string;
  readonly totalSteps: number;
  /** What the time was worked out for, and what it leaves out. */
  readonly assuming: string;
  readonly trainer: SftConfig["trainer"] | PpoConfig["trainer"] | RewardConfig["trainer"];
};

type Verb<Config> = {
  /** Every model that the run opens. */
  models(config: Config): readonly (string | null)[];
  look(config: Config, context: TrainContext): Promise<Preview>;
};

/** Steps whose batches are looked at, fewer where they have many rows: sequences differ, and the largest decide. */
const STEPS = 4;
const MOST_ROWS = 4096;

const ppo: Verb<PpoConfig> = {
  models: (config) => [
    config.actor_rollout_ref.model.path,
    config.actor_rollout_ref.model.tokenizer_path,
    ...(config.critic.enable ? [config.critic.model.path, config.critic.model.tokenizer_path] : []),
    rewardWay(config).kind === "model" ? config.reward_model.model.path : null,
  ],
  async look(config, context) {
    const { data, trainer, actor_rollout_ref: all } = config;
    const prompts = await loadPrompts(config, context);
    const { train, validation, folder } = prompts;
    const batchSize = config.algorithm.filter_groups.enable
      ? (data.gen_batch_size ?? data.train_batch_size)
      : data.train_batch_size;
    const seed = data.seed ?? trainer.seed;
    const loader = new Loader({ rows: train.length, batchSize, shuffle: data.shuffle, seed, dropLast: true });
    const totalSteps = trainer.total_training_steps ?? trainer.total_epochs * loader.batchesPerEpoch;
    const batches = firstBatches(loader, totalSteps, data.train_batch_size * all.rollout.n).map((indices) =>
      indices.slice(0, data.train_batch_size).map((index) => train[index]!.ids),
    );
    const model = rewardWay(config).kind === "model" ? config.reward_model.model.path : null;
    const plan = rlPlan(
      config,
      {
        actor: await readModel(folder, context),
        critic: config.critic.enable ? await readModel(config.critic.model.path, context) : null,
        rewardModel: model === null ? null : await readModel(model, context),
      },
      batches,
    );
    const { rollout } = all;
    const isElsewhere = (rollout.base_url ?? []).length > 0;
    return {
      plan,
      folder,
      totalSteps,
      trainer,
      sampler: {
        maxSequences: rollout.max_num_seqs,
        maxBatchedTokens: rollout.max_num_batched_tokens,
        maxLength: rollout.max_model_len ?? rollout.prompt_length + rollout.response_length,
      },
      rows: `${counted(train.length, "prompt")} of ${meanLength(batches.flat())} tokens${toValidate(validation)}`,
      steps: `${counted(totalSteps, "step")} of ${data.train_batch_size} x ${rollout.n}`,
      assuming:
        `Responses are taken to have ${rollout.response_length} tokens; ` +
        `${isElsewhere ? "sampling by the servers, " : ""}rewards, validation and saving come on top.`,
    };
  },
};

const sft: Verb<SftConfig> = {
  models: ({ model }) => [model.path, model.tokenizer_path],
  async look(config, context) {
    const { data, trainer, model } = config;
    const folder = await resolveModel(model.path, context);
    const read = await readModel(folder, context);
    const { train, validation } = await loadExamples(config, folder, context);
    const { loader, totalSteps } = supervised(config, train.length);
    const batches = firstBatches(loader, totalSteps, data.train_batch_size).map((indices) =>
      indices.map((index) => train[index]!),
    );
    return {
      plan: sftPlan(config, read, batches),
      folder,
      totalSteps,
      trainer,
      sampler: {},
      rows: `${counted(train.length, "row")} of ${meanLength(batches.flat().map(({ ids }) => ids))} tokens${toValidate(validation)}`,
      steps: `${counted(totalSteps, "step")} of ${data.train_batch_size}`,
      assuming: "Validation and saving come on top.",
    };
  },
};

const reward: Verb<RewardConfig> = {
  models: ({ model }) => [model.path, model.tokenizer_path],
  async look(config, context) {
    const { data, trainer, model } = config;
    const folder = await resolveModel(model.path, context);
    const read = await readModel(folder, context);
    const { train, validation } = await loadPairs(config, { folder, model: read }, context);
    const { loader, totalSteps } = supervised(config, train.length);
    const batches = firstBatches(loader, totalSteps, data.train_batch_size).map((indices) =>
      indices.flatMap((index) => [train[index]!.chosen, train[index]!.rejected]),
    );
    return {
      plan: rewardPlan(config, read, batches),
      folder,
      totalSteps,
      trainer,
      sampler: {},
      rows: `${counted(train.length, "pair")} of ${meanLength(batches.flat())} tokens a side${toValidate(validation)}`,
      steps: `${counted(totalSteps, "step")} of ${data.train_batch_size}`,
      assuming: "Validation and saving come on top.",
    };
  },
};

const verbs: Readonly<Record<string, Verb<never>>> = { ppo, sft, reward };

/** Say what a run of the verb would be; verbs that train nothing have nothing to say. */
export async function preview(name: string, config: unknown, context: TrainContext): Promise<void> {
  const verb = Object.hasOwn(verbs, name) ? verbs[name] : undefined;
  if (verb === undefined) return;
  const own = config as never; // resolved by the schema of the verb of that name
  const offline = { ...context, env: { ...context.env, HF_HUB_OFFLINE: "1" } };
  for (const path of verb.models(own)) {
    if (path === null || (await isHere(path, offline))) continue;
    info(`${path} is not on this machine: a run downloads it first. Sizes and times are known once it is there.`);
    return;
  }
  const look = await verb.look(own, offline);
  const { device, threads, engine } = look.trainer;
  sayRoles(look.plan);
  const isRoomy = engine === "ray" || sayMemory(look.plan);
  info(`${look.rows}: ${look.steps}.`);
  if (engine === "ray") {
    const workers = counted(workerCount(look), "worker");
    return info(
      `Weights, gradients and optimizer are divided among ${workers}; activations and what sampling keeps are each worker's ` +
        "own (docs/sizing.md). The time of a step is not measured: it depends on the workers.",
    );
  }
  if (!isRoomy) return info("The time of a step is not measured: the models would not fit.");
  status("measuring a step");
  const started = performance.now();
  const probed = await probe(look.plan, { ...look, device, threads, signal: context.signal }).finally(clearStatus);
  sayTime(look, probed, (performance.now() - started) / 1000);
}

/** Whether a model is a folder here or in the hub's cache; a path that no hub could have is refused. */
async function isHere(path: string, context: TrainContext): Promise<boolean> {
  try {
    await resolveModel(path, context);
    return true;
  } catch (error) {
    if (error instanceof UserError && openRepo("model", path, context) !== null) return false;
    throw error;
  }
}

/** A model's config; its weights are looked at as far as their headers. */
async function readModel(path: string, context: TrainContext): Promise<ModelConfig> {
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

/** One line for all roles; whether they fit into the memory. */
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
  { plan, totalSteps, assuming }: Preview,
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
      assuming,
  );
}

function duration(seconds: number): string {
  if (seconds < 1) return `${Math.round(1000 * seconds)}ms`;
  return seconds < 10 ? `${seconds.toFixed(1)}s` : formatSeconds(seconds);
}

function supervised({ data, trainer }: SftConfig | RewardConfig, rows: number): { loader: Loader; totalSteps: number } {
  const { seed, total_training_steps: steps, total_epochs: epochs } = trainer;
  const loader = new Loader({ rows, batchSize: data.train_batch_size, shuffle: true, seed, dropLast: true });
  return { loader, totalSteps: steps ?? epochs * loader.batchesPerEpoch };
}

function firstBatches(loader: Loader, totalSteps: number, rowsPerStep: number): (readonly number[])[] {
  const length = Math.max(1, Math.min(STEPS, totalSteps, Math.floor(MOST_ROWS / rowsPerStep)));
  return Array.from({ length }, () => loader.next().indices);
}

const toValidate = (rows: readonly unknown[]): string =>
  rows.length > 0 ? ` and ${formatCount(rows.length)} to validate on` : "";

const meanLength = (rows: readonly Int32Array[]): number =>
  Math.round(rows.reduce((total, { length }) => total + length, 0) / rows.length);
