/**
 * Everything a reinforcement-learning run works with: prompts, models in their roles, rewards, trackers.
 *
 * Opened in an order in which mistakes show early: data and config before models, models before the run folder changes.
 */
import { createHash } from "node:crypto";
import { rm, stat } from "node:fs/promises";
import { join } from "node:path";
import { z } from "zod";
import { findAdvantage } from "../../algos/advantages/advantages.ts";
import type { KlControl } from "../../algos/kl.ts";
import type { PpoConfig } from "../../config/ppo/schema.ts";
import { actorSettings, correctionSettings, klSettings, needsReference } from "../../config/ppo/settings.ts";
import { roleSharding } from "../../config/ray/ray.ts";
import type { Loader } from "../../data/loader.ts";
import { encodePrompt, loadRlRows, type RlRow } from "../../data/rl-rows.ts";
import type { Engine, Model } from "../../engine/contract.ts";
import { readAnyConfig } from "../../models/config.ts";
import type { Checkpoint } from "../../run/checkpoint.ts";
import { rolloutWeightsPath } from "../../run/names.ts";
import { loadTokenizer, type Tokenizer } from "../../text/tokenizer.ts";
import { UserError } from "../../util/errors.ts";
import { counted, formatCount } from "../../util/format.ts";
import { info } from "../../util/log.ts";
import type { TrainContext } from "../context.ts";
import { fetchModel } from "../fetch-model.ts";
import { readTrainable } from "../open-engine.ts";
import { Best, checkBest } from "./best.ts";
import { openServers } from "./rollout-servers.ts";
import type { Player } from "./rollouts.ts";
import { openScoring } from "./scoring.ts";

/** What a checkpoint remembers besides weights and optimizers. */
const RlState = z.object({
  loader: z.unknown(),
  /** Of the training prompts. */
  fingerprint: z.string(),
  klControl: z.custom<KlControl>((value) => typeof value === "object" && value !== null && "kl_coef" in value),
  /** Steps in a row with an update that was skipped. */
  skippedInARow: z.number(),
  /** The best validation so far, where one is asked for. */
  best: Best.nullable(),
});
export type RlState = z.infer<typeof RlState>;

export type Prompts = {
  readonly train: readonly RlRow[];
  readonly validation: readonly RlRow[];
  readonly fingerprint: string;
  readonly tokenizer: Tokenizer;
  readonly folder: string;
};

/** Read the prompts, and check what can be checked before a model is opened. */
export async function loadPrompts(config: PpoConfig, context: TrainContext): Promise<Prompts> {
  const { data, actor_rollout_ref: all, trainer } = config;
  findAdvantage(config.algorithm.adv_estimator);
  actorSettings(config);
  const folder = await fetchModel(all.model.path, context);
  await readTrainable(config, folder);
  const tokenizerPath = all.model.tokenizer_path;
  const tokenizer = await loadTokenizer(tokenizerPath === null ? folder : await fetchModel(tokenizerPath, context));
  const load = async (files: readonly string[] | null, maxSamples: number, shuffle: boolean) => {
    if (files === null || files.length === 0) return [];
    const options = {
      promptKey: data.prompt_key,
      rewardFnKey: data.reward_fn_key,
      maxSamples,
      shuffle,
      seed: data.seed ?? trainer.seed,
      filterOverlongPrompts: data.filter_overlong_prompts,
      maxPromptLength: data.max_prompt_length,
      extra: data.apply_chat_template_kwargs,
      template: all.model.custom_chat_template,
    };
    const { rows, overlong, refused } = await loadRlRows(files, tokenizer, options);
    if (overlong + refused > 0)
      info(
        `${counted(overlong + refused, "prompt")} left out: ${overlong} too long, ${refused} refused by the template.`,
      );
    if (!options.filterOverlongPrompts) {
      const { extra, template, maxPromptLength } = options;
      for (const row of rows)
        encodePrompt(row, tokenizer, { extra, template, maxPromptLength, truncation: data.truncation });
    }
    return rows;
  };
  const train = await load(data.train_files, data.train_max_samples, data.shuffle);
  const validation = await load(data.val_files, data.val_max_samples, data.validation_shuffle);
  if (train.length < data.train_batch_size) {
    throw new UserError(
      `\`data.train_files\` gives ${counted(train.length, "prompt")}, fewer than the ${data.train_batch_size} of one step ` +
        "(`data.train_batch_size`). Lower it, or give more prompts.",
    );
  }
  checkBest(trainer, validation.length);
  return { train, validation, fingerprint: fingerprintOf(train), tokenizer, folder };
}

function fingerprintOf(rows: readonly RlRow[]): string {
  const hash = createHash("sha256");
  for (const { source } of rows) hash.update(`${JSON.stringify(source.values, plain)}\n`);
  return hash.digest("hex");
}

const plain = (_: string, value: unknown) => (typeof value === "bigint" ? `${value}n` : value);

/** The models of a run. */
export type Roles = {
  readonly actor: Model;
  readonly reference: Model | null;
  readonly critic: Model | null;
};

export const actorDir = (checkpoint: string): string => join(checkpoint, "actor");
const criticDir = (checkpoint: string): string => join(checkpoint, "critic");
const optimizerDir = (role: string): string => join(role, "optimizer");

/** Open the roles, as they were at a checkpoint or new. The reference is the model that training began with. */
export async function openRoles(
  config: PpoConfig,
  { folder, tokenizer }: Prompts,
  { engine, start }: { readonly engine: Engine; readonly start: Checkpoint | null },
  context: TrainContext,
): Promise<Roles> {
  const { rollout } = config.actor_rollout_ref;
  const sampler = {
    maxSequences: rollout.max_num_seqs,
    maxBatchedTokens: rollout.max_num_batched_tokens,
    maxLength: rollout.max_model_len ?? rollout.prompt_length + rollout.response_length,
    hasPrefixCache: rollout.enable_prefix_caching,
  };
  const tokenizerFolder = tokenizer.dir;
  const actor = await engine.open({
    folder: start === null ? folder : actorDir(start.dir),
    tokenizerFolder,
    sampler,
    sharding: roleSharding(config, "actor"),
  });
  const reference = needsReference(config)
    ? await engine.open({ folder, tokenizerFolder, sharding: roleSharding(config, "reference") })
    : null;
  let critic: Model | null = null;
  if (config.critic.enable) {
    const { path, tokenizer_path: ofCritic } = config.critic.model;
    const own = await fetchModel(path, context);
    await checkSameTokens(own, { folder, tokenizer });
    critic = await engine.open({
      folder: start === null ? own : criticDir(start.dir),
      head: "value",
      seed: config.trainer.seed,
      sharding: roleSharding(config, "critic"),
      tokenizerFolder: ofCritic === null ? own : await fetchModel(ofCritic, context),
    });
  }
  if (start !== null) {
    await actor.loadOptimizer(optimizerDir(actorDir(start.dir)));
    await critic?.loadOptimizer(optimizerDir(criticDir(start.dir)));
  }
  return { actor, reference, critic };
}

/** A critic reads the actor's tokens, so it must mean the same by them. */
async function checkSameTokens(critic: string, { folder: actor, tokenizer }: TokensOf): Promise<void> {
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

type TokensOf = Pick<Prompts, "folder" | "tokenizer">;

/** Write the roles into a checkpoint. */
export async function saveRoles({ actor, critic }: Roles, dir: string): Promise<void> {
  await actor.save(actorDir(dir));
  await actor.saveOptimizer(optimizerDir(actorDir(dir)));
  if (critic === null) return;
  await critic.save(criticDir(dir));
  await critic.saveOptimizer(optimizerDir(criticDir(dir)));
}

/** Where a run starts. */
export function stateAt(start: Checkpoint | null, config: PpoConfig, loader: Loader, fingerprint: string): RlState {
  if (start === null) return { loader: null, fingerprint, klControl: klSettings(config), skippedInARow: 0, best: null };
  const parsed = RlState.safeParse(start.state);
  if (!parsed.success) {
    throw new UserError(
      `${start.dir} is not a checkpoint of \`trainyard ppo\`. Choose another one, or another run folder.`,
    );
  }
  if (parsed.data.fingerprint !== fingerprint) {
    throw new UserError(
      `${start.dir} was made with other prompts. Give the same files and limits, or start over with \`trainer.resume_mode=disable\`.`,
    );
  }
  loader.restore(parsed.data.loader);
  return parsed.data;
}

/** What samples and scores, until it is closed. */
export type OpenPlayer = Player &
  AsyncDisposable & {
    /** Whether it is the actor itself, whose log-probs are the trainer's. */
    readonly isActor: boolean;
    /** Whether it is another program that computes as exactly as the trainer. */
    readonly isExact: boolean;
    /** Make new weights known to what samples. */
    push(actor: Model): Promise<void>;
  };

type PlayerNeeds = {
  readonly actor: Model;
  readonly tokenizer: Tokenizer;
  readonly engine: Engine;
  /** The run folder, where weights for servers are written. */
  readonly dir: string;
};

/** What samples: the actor itself, or servers that are given its weights after every update. */
export async function openPlayer(config: PpoConfig, needs: PlayerNeeds, context: TrainContext): Promise<OpenPlayer> {
  const { actor, tokenizer, engine, dir } = needs;
  const weights = rolloutWeightsPath(dir);
  const servers = await openServers(config, { engine, tokenizer, folder: weights }, context);
  const scoring = await openScoring({ config, engine, tokenizer }, context);
  return {
    config,
    tokenizer,
    scoring,
    model: servers?.model ?? actor,
    isActor: servers === null,
    isExact: servers?.isExact ?? false,
    push: async (model) => servers?.push(model),
    [Symbol.asyncDispose]: async () => {
      await scoring.close();
      if (servers !== null) await rm(weights, { recursive: true, force: true });
    },
  };
}

/** Say what is about to be trained on what. */
export function announce(
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
