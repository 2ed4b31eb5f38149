/**
 * Reinforcement learning: a run of `trainyard ppo`, from its config to its last checkpoint.
 *
 * What differs between algorithms is a value looked up by name: the advantage estimator, the policy loss, the KL estimate,
 * the correction. A step is in `step.ts`, the order of steps in a driver (`in-turns.ts`).
 */

import { rewardTree, routedServers } from "../../config/ppo/reward-tree.ts";
import type { PpoConfig } from "../../config/ppo/schema.ts";
import { correctionSettings } from "../../config/ppo/settings.ts";
import type { Engine, Model, TokenRow } from "../../engine/contract.ts";
import type { Checkpoint, Retention } from "../../run/checkpoint.ts";
import type { Run } from "../../run/run.ts";
import { counted, formatCount } from "../../util/format.ts";
import { info, warn } from "../../util/log.ts";
import type { TrainContext } from "../context.ts";
import { onEngine } from "../open-engine.ts";
import { checkModels } from "../same-models.ts";
import { type TrainingRun, withRun } from "../with-run.ts";
import { rewardApiKey } from "./api-key.ts";
import type { RlContext } from "./context.ts";
import { trainInTurns } from "./in-turns.ts";
import { type MachineExpiry, machineExpiry } from "./machine-expiry.ts";
import { loadPrompts, type Prompts } from "./prompts.ts";
import { openRoles, type Roles, roleSpecs } from "./roles.ts";
import { openRolloutClient } from "./rollout-client.ts";
import { type RlState, stateAt } from "./state.ts";
import { openTrainRows, type TrainRows } from "./train-rows.ts";
import { validate } from "./validate.ts";

/** Train to the end, or until the signal is aborted. */
export async function trainRl(config: PpoConfig, context: TrainContext): Promise<void> {
  for (const part of [...rewardTree(config).parts, routedServers(config)])
    if (part !== null) rewardApiKey(part, context.env); // a missing key is found before a model is opened
  const prompts = await loadPrompts(config, context);
  const { trainer } = config;
  const expiry = machineExpiry(context.env, trainer.esi_redundant_time);
  await onEngine(config, context, (launch) => {
    const { rows, totalSteps } = openTrainRows(config, prompts);
    const plan = {
      totalSteps,
      ...retentionOf(config),
      isRepeatable: trainer.val_only,
      role: "actor" as const,
      open: (start: Checkpoint | null, dir: string) =>
        open(config, { prompts, rows, engine: launch.engine, start, dir }, context),
      announce: ({ roles }: Opened) => announce(config, prompts, roles, totalSteps),
      train: (opened: Opened, run: TrainingRun) => train(config, { ...opened, prompts, rows, expiry }, run),
    };
    return withRun(launch, config, plan, context);
  });
}

/** A checkpoint stays as long as one of its models does. */
function retentionOf({ critic: { enable: hasCritic }, trainer }: PpoConfig): Retention {
  const { max_actor_ckpt_to_keep: actor, max_critic_ckpt_to_keep: critic } = trainer;
  if (!hasCritic || actor === null || critic === null) return { keep: actor, keepOf: {} };
  return { keep: Math.max(actor, critic), keepOf: { actor, critic } };
}

type Opened = AsyncDisposable & Pick<RlContext, "roles" | "rollout" | "peak"> & { readonly state: RlState };

type Opening = {
  readonly prompts: Prompts;
  readonly rows: TrainRows;
  readonly engine: Engine;
  readonly start: Checkpoint | null;
  /** The run folder. */
  readonly dir: string;
};

async function open(
  config: PpoConfig,
  { prompts, rows, engine, start, dir }: Opening,
  context: TrainContext,
): Promise<Opened> {
  const kept = stateAt(start, config, rows, prompts.fingerprint);
  const specs = await roleSpecs(config, prompts, context);
  const { rewardModels, ...others } = specs;
  const nameOf = (key: string) => (key === "reward_model" ? "reward model" : `reward model (\`${key}\`)`);
  const scorers = [...rewardModels].map(([key, spec]) => [nameOf(key), spec] as const);
  const models = await checkModels(start, { ...others, ...Object.fromEntries(scorers) });
  const state = { ...kept, models };
  const roles = await openRoles(config, specs, { engine, start });
  const { tokenizer } = prompts;
  const rollout = await openRolloutClient(config, { roles, tokenizer, engine, dir }, context);
  const peak = (await engine.measurePeak?.()) ?? null;
  return { state, roles, rollout, peak, [Symbol.asyncDispose]: () => rollout[Symbol.asyncDispose]() };
}

type Training = Pick<RlContext, "prompts" | "rows" | "roles" | "rollout" | "peak"> & {
  readonly state: RlState;
  readonly expiry: MachineExpiry;
};

async function train(config: PpoConfig, { state, expiry, ...parts }: Training, run: TrainingRun): Promise<void> {
  const { progress, totalSteps, signal, folder } = run;
  const saveSkipped = skippedSaver(folder);
  const context: RlContext = { ...parts, config, progress, totalSteps, signal, saveSkipped };
  await parts.rollout.push(parts.roles.actor);
  if (config.trainer.val_only) return await validateOnly(context, run, state);
  await trainInTurns(context, run, { initial: state, expiry });
}

async function validateOnly(context: RlContext, run: TrainingRun, { best }: RlState): Promise<void> {
  const step = run.firstStep - 1;
  const { metrics } = await validate(context, run, { step, best, signal: run.signal });
  if (run.start === null) await run.folder.logMetrics(0, metrics); // else the file ends with the checkpoint's step
  run.trackers.log(step, metrics);
  await run.finish();
}

/** Saves the weights and the batch of an update without a finite gradient, so that it can be computed again. */
function skippedSaver(folder: Run): RlContext["saveSkipped"] {
  return async (step, { model, rows, ...about }) => {
    const kept = await folder.saveSkipped(step, (dir) => model.save(dir), { step, ...about, rows: rows.map(plainRow) });
    warn(`The weights and the batch of an update without a finite gradient (${about.gradNorm}) are in ${kept}.`);
  };
}

/** A row as JSON; a number that is not finite becomes null there. */
const plainRow = ({ ids, mask, extra = {} }: TokenRow) => ({
  ids: [...ids],
  mask: Array.from(mask),
  extra: Object.fromEntries(Object.entries(extra).map(([name, values]) => [name, Array.from(values)])),
});

/** Say what is about to be trained on what. */
function announce(
  config: PpoConfig,
  { train, validation }: Prompts,
  { actor, critic, reference }: Roles,
  totalSteps: number,
): void {
  const size = (model: Model) => `${model.config.family}, ${formatCount(model.parameterCount)} parameters`;
  const others = [critic && `a critic (${size(critic)})`, reference && "a reference"].filter(Boolean);
  const { rollout, actor: settings } = config.actor_rollout_ref;
  const { adv_estimator: estimator } = config.algorithm;
  const loss = correctionSettings(config).isBypass ? "bypass_mode" : settings.policy_loss.loss_mode;
  info(
    `Training ${config.actor_rollout_ref.model.path} (${size(actor)})${others.length > 0 ? ` with ${others.join(" and ")}` : ""} ` +
      `by ${estimator} and the loss ${loss} on ${counted(train.length, "prompt")}` +
      `${validation.length > 0 ? `, ${formatCount(validation.length)} to validate on` : ""}: ${counted(totalSteps, "step")} of ` +
      `${config.data.train_batch_size} x ${rollout.n}.`,
  );
}
