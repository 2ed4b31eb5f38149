/** The prompts of a run: read, tokenized once, and checked before a model is opened. */
import { createHash } from "node:crypto";
import { findAdvantage } from "../../algos/advantages/registry.ts";
import { checkDataSource, rewardTree } from "../../config/ppo/reward-tree.ts";
import type { PpoConfig } from "../../config/ppo/schema.ts";
import { actorSettings } from "../../config/ppo/settings.ts";
import { loadRlRows, type RlRow } from "../../data/rl-rows.ts";
import { placeOf } from "../../data/row.ts";
import { checkSampling } from "../../engine/device-sampling.ts";
import { readConfig } from "../../models/config.ts";
import { loadTokenizer, type Tokenizer } from "../../text/tokenizer.ts";
import { UserError } from "../../util/errors.ts";
import { counted } from "../../util/format.ts";
import { info } from "../../util/log.ts";
import type { TrainContext } from "../context.ts";
import { fetchModel } from "../fetch-model.ts";
import { readTrainable } from "../open-engine.ts";
import { promptOptions } from "../prompt-options.ts";
import { checkBest } from "./best.ts";

/** One prompt: its row of the data, its tokens, and its text as the model reads it. */
export type Prompt = { readonly row: RlRow; readonly ids: Int32Array; readonly text: string };

export type Prompts = {
  readonly train: readonly Prompt[];
  readonly validation: readonly Prompt[];
  /** Equal for equal training rows, in order. */
  readonly fingerprint: string;
  readonly tokenizer: Tokenizer;
  /** The folder of the model that training begins with. */
  readonly folder: string;
};

/** Read the prompts, and check what can be checked before a model is opened. */
export async function loadPrompts(config: PpoConfig, context: TrainContext): Promise<Prompts> {
  const { data, actor_rollout_ref: all, trainer } = config;
  findAdvantage(config.algorithm.adv_estimator);
  actorSettings(config);
  const folder = await fetchModel(all.model.path, context);
  await readTrainable(config, folder);
  await checkSampler(config, folder);
  const tokenizerPath = all.model.tokenizer_path;
  const tokenizer = await loadTokenizer(tokenizerPath === null ? folder : await fetchModel(tokenizerPath, context));
  const load = (files: readonly string[] | null, maxSamples: number, shuffle: boolean) =>
    loadFiles(config, tokenizer, { files: files ?? [], maxSamples, shuffle });
  const train = await load(data.train_files, data.train_max_samples, data.shuffle);
  const validation = await load(data.val_files, data.val_max_samples, data.validation_shuffle);
  if (train.length < data.train_batch_size) {
    throw new UserError(
      `\`data.train_files\` gives ${counted(train.length, "prompt")}, fewer than the ${data.train_batch_size} of one step ` +
        "(`data.train_batch_size`). Lower it, or give more prompts.",
    );
  }
  checkBest(trainer, validation.length);
  checkSources(config, [...train, ...validation]);
  return { train, validation, fingerprint: fingerprintOf(train), tokenizer, folder };
}

/** Every data source must have something that scores it. */
function checkSources(config: PpoConfig, prompts: readonly Prompt[]): void {
  const tree = rewardTree(config);
  const seen = new Set<string>();
  for (const { row } of prompts) {
    if (seen.has(row.dataSource)) continue;
    seen.add(row.dataSource);
    try {
      checkDataSource(tree, row.dataSource);
    } catch (error) {
      if (!(error instanceof UserError)) throw error;
      throw new UserError(`${placeOf(row.source)}: ${error.message}`, { cause: error });
    }
  }
}

/** Where the actor itself samples, its device must be able to. */
async function checkSampler({ trainer, actor_rollout_ref: { rollout } }: PpoConfig, folder: string): Promise<void> {
  if (trainer.engine !== "embedded" || rollout.base_url.length > 0) return;
  const limit = rollout.max_model_len ?? rollout.prompt_length + rollout.response_length;
  checkSampling(await readConfig(folder), trainer.device, limit);
}

type Files = { readonly files: readonly string[]; readonly maxSamples: number; readonly shuffle: boolean };

async function loadFiles(
  config: PpoConfig,
  tokenizer: Tokenizer,
  { files, maxSamples, shuffle }: Files,
): Promise<Prompt[]> {
  const { data, trainer } = config;
  if (files.length === 0) return [];
  const { prompts, overlong, refused } = await loadRlRows(files, tokenizer, {
    promptKey: data.prompt_key,
    rewardFnKey: data.reward_fn_key,
    maxSamples,
    shuffle,
    seed: data.seed ?? trainer.seed,
    filterOverlongPrompts: data.filter_overlong_prompts,
    ...promptOptions(config),
  });
  const leftOut = overlong + refused;
  if (leftOut > 0)
    info(`${counted(leftOut, "prompt")} left out: ${overlong} too long, ${refused} refused by the template.`);
  return prompts.map(({ row, ids }) => ({ row, ids, text: tokenizer.decode(ids) }));
}

function fingerprintOf(prompts: readonly Prompt[]): string {
  const hash = createHash("sha256");
  for (const { row } of prompts) hash.update(`${JSON.stringify(row.source.values, plain)}\n`);
  return hash.digest("hex");
}

const plain = (_: string, value: unknown) => (typeof value === "bigint" ? `${value}n` : value);
