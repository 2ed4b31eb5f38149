/**
 * The models of a run, each in a role: which roles a config asks for, which folder and head each model has, and which are
 * trained. A new role is one row of the table. Reward models are as many as the config names.
 *
 * Trained roles are saved in checkpoints and restored from there (`role-checkpoint.ts`); the others are opened from their
 * own folder. The reference is the model that training began with.
 */
import { stat } from "node:fs/promises";
import { join } from "node:path";
import type { CheckpointSettings } from "../../config/ppo/checkpoint.ts";
import { modelParts, type PartOf } from "../../config/ppo/reward-tree.ts";
import type { PpoConfig } from "../../config/ppo/schema.ts";
import { needsReference } from "../../config/ppo/settings.ts";
import { rewardPlace } from "../../config/ray/pool.ts";
import { roleSharding } from "../../config/ray/ray.ts";
import type { Engine, Model, ModelSpec } from "../../engine/contract.ts";
import { readAnyConfig } from "../../models/config.ts";
import type { SamplerLimits } from "../../rollout/request.ts";
import type { Checkpoint } from "../../run/checkpoint.ts";
import { roleDir, type TrainedRole } from "../../run/names.ts";
import { loadTokenizer } from "../../text/tokenizer.ts";
import { invariant, UserError } from "../../util/errors.ts";
import type { TrainContext } from "../context.ts";
import { fetchChangedModel, fetchModel } from "../fetch-model.ts";
import { rewardModelSpec } from "../reward-scorer.ts";
import type { Prompts } from "./prompts.ts";
import { openSaved, saveCalls } from "./role-checkpoint.ts";

export type RoleName = "actor" | "reference" | "critic";

/** The models of a run; a role that the config does not ask for is absent. */
export type Roles = { readonly actor: Model } & { readonly [Name in Exclude<RoleName, "actor">]?: Model } & {
  /** By their config keys: `reward_model`, `reward.models.NAME`. */
  readonly rewardModels: ReadonlyMap<string, Model>;
};

type RoleRow = {
  /** Its folder in a checkpoint; null for a role that is not trained. */
  readonly savedAs: TrainedRole | null;
  /** What a checkpoint holds of it; null for a role that is not trained. */
  checkpoint(config: PpoConfig): CheckpointSettings | null;
  isNeeded(config: PpoConfig): boolean;
  /** How the model is opened at the beginning of a run. */
  spec(config: PpoConfig, prompts: Prompts, context: TrainContext): Promise<ModelSpec>;
};

const roleTable: Readonly<Record<RoleName, RoleRow>> = {
  actor: {
    savedAs: "actor",
    checkpoint: (config) => config.actor_rollout_ref.actor.checkpoint,
    isNeeded: () => true,
    async spec(config, { folder, tokenizer }) {
      const sharding = roleSharding(config, "actor");
      return { folder, tokenizerFolder: tokenizer.dir, sampler: samplerLimits(config), sharding };
    },
  },
  reference: {
    savedAs: null,
    checkpoint: () => null,
    isNeeded: needsReference,
    async spec(config, { folder, tokenizer }) {
      return { folder, tokenizerFolder: tokenizer.dir, sharding: roleSharding(config, "reference") };
    },
  },
  critic: {
    savedAs: "critic",
    checkpoint: ({ critic }) => critic.checkpoint,
    isNeeded: ({ critic }) => critic.enable,
    async spec(config, prompts, context) {
      const { tokenizer_path: tokenizerPath } = config.critic.model;
      const folder = await fetchChangedModel(config.critic.model, context);
      await checkSameTokens(folder, prompts);
      return {
        folder,
        tokenizerFolder: tokenizerPath === null ? folder : await fetchModel(tokenizerPath, context),
        head: "value",
        seed: config.trainer.seed,
        sharding: roleSharding(config, "critic"),
      };
    },
  },
};

/** How a reward model is opened. */
async function rewardSpec(
  config: PpoConfig,
  { key, model: { model } }: PartOf<"model">,
  context: TrainContext,
): Promise<ModelSpec> {
  invariant(model.path !== null, "a reward model has a path");
  const folder = await fetchModel(model.path, context);
  const { seed } = config.trainer;
  const spec = await rewardModelSpec({ key: `${key}.model.path`, path: model.path, folder, seed });
  return { ...spec, ...rewardPlace(config) };
}

/** What sampling from the actor may use. */
export function samplerLimits({ actor_rollout_ref: { rollout } }: PpoConfig): SamplerLimits {
  return {
    maxSequences: rollout.max_num_seqs,
    maxBatchedTokens: rollout.max_num_batched_tokens,
    maxLength: rollout.max_model_len ?? rollout.prompt_length + rollout.response_length,
    hasPrefixCache: rollout.enable_prefix_caching,
  };
}

// Safe: `roleTable` has a row for every role and no other.
const roleNames = Object.keys(roleTable) as RoleName[];

/** How the models of a run begin; a role that the config does not ask for is absent. */
export type RoleSpecs = { readonly [Name in RoleName]?: ModelSpec } & {
  /** By their config keys. */
  readonly rewardModels: ReadonlyMap<string, ModelSpec>;
};

/** Find the models of the roles that the config asks for. */
export async function roleSpecs(config: PpoConfig, prompts: Prompts, context: TrainContext): Promise<RoleSpecs> {
  const specs: Partial<Record<RoleName, ModelSpec>> = {};
  for (const name of roleNames)
    if (roleTable[name].isNeeded(config)) specs[name] = await roleTable[name].spec(config, prompts, context);
  const rewardModels = new Map<string, ModelSpec>();
  // In the order of their keys, so that the order in which the config names them changes nothing.
  const parts = modelParts(config).toSorted((a, b) => (a.key < b.key ? -1 : 1));
  for (const part of parts) rewardModels.set(part.key, await rewardSpec(config, part, context));
  return { ...specs, rewardModels };
}

/** Open the roles of a run, as they were at a checkpoint or new. */
export async function openRoles(
  config: PpoConfig,
  specs: RoleSpecs,
  { engine, start }: { readonly engine: Engine; readonly start: Checkpoint | null },
): Promise<Roles> {
  const open = async (name: RoleName, given: ModelSpec): Promise<Model> => {
    const { savedAs, checkpoint } = roleTable[name];
    const settings = checkpoint(config);
    if (start === null || savedAs === null || settings === null) return engine.open(given);
    return openSaved(engine, given, {
      folder: roleDir(start.dir, savedAs),
      role: savedAs,
      contents: settings.load_contents,
    });
  };
  const roles: Partial<Record<RoleName, Model>> = {};
  for (const name of roleNames) {
    const spec = specs[name];
    if (spec !== undefined) roles[name] = await open(name, spec);
  }
  const rewardModels = new Map<string, Model>();
  for (const [key, spec] of specs.rewardModels) rewardModels.set(key, await engine.open(spec));
  return { ...roles, actor: roles.actor!, rewardModels }; // every config asks for the actor
}

/** Write what the config asks for of the trained roles into a checkpoint; in the background, as they are now. */
export async function saveRoles(config: PpoConfig, roles: Roles, dir: string): Promise<void> {
  const calls = roleNames.flatMap((name) => {
    const [model, { savedAs, checkpoint }] = [roles[name], roleTable[name]];
    const settings = checkpoint(config);
    if (model === undefined || savedAs === null || settings === null) return [];
    return saveCalls(model, roleDir(dir, savedAs), settings.save_contents);
  });
  if (!savesInBackground(config)) {
    for (const call of calls) await call();
    return;
  }
  // All are begun now, before any later call on a model: then a later update waits for them.
  const failed = (await Promise.allSettled(calls.map((call) => call()))).find((result) => result.status === "rejected");
  if (failed !== undefined) throw failed.reason; // when nothing writes into the folder any more
}

/** Whether checkpoints are written while the next step samples: one folder holds all roles, so one that asks is enough. */
export function savesInBackground(config: PpoConfig): boolean {
  if (config.trainer.engine === "ray") return false; // its workers do one thing at a time
  return roleNames.some((name) => roleTable[name].isNeeded(config) && roleTable[name].checkpoint(config)?.async_save);
}

/** A critic reads the actor's tokens, so both must have the same vocabulary. */
async function checkSameTokens(critic: string, { folder: actor, tokenizer }: Prompts): Promise<void> {
  const [ofCritic, ofActor] = [await readAnyConfig(critic), await readAnyConfig(actor)];
  if (ofCritic.vocabSize < ofActor.vocabSize)
    throw new UserError(
      `The critic ${critic} has a vocabulary of ${ofCritic.vocabSize} and the actor ${actor} one of ${ofActor.vocabSize}: ` +
        "it would not know all of the actor's tokens. Choose a critic with the same tokenizer.",
    );
  const hasTokenizer = await stat(join(critic, "tokenizer.json")).catch(() => null);
  if (hasTokenizer === null) return;
  const other = await loadTokenizer(critic);
  for (let id = 0; id < tokenizer.vocabSize; id++) {
    const [own, theirs] = [tokenizer.tokenText(id), id < other.vocabSize ? other.tokenText(id) : undefined];
    if (own === theirs) continue;
    throw new UserError(
      `The critic ${critic} has another tokenizer than the actor ${actor}: the token ${id} is ${JSON.stringify(own)} to the ` +
        `actor and ${theirs === undefined ? "unknown" : JSON.stringify(theirs)} to the critic. Choose a critic with the same tokenizer.`,
    );
  }
}
