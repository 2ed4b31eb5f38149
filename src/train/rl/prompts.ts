/** The prompts of a run: read, tokenized once, and checked before a model is opened. */
import { createHash } from "node:crypto";
import { findAdvantage } from "../../algos/advantages/registry.ts";
import { isNamed } from "../../config/hooks.ts";
import { checkDataSource, rewardTree } from "../../config/ppo/reward-tree.ts";
import type { PpoConfig } from "../../config/ppo/schema.ts";
import { actorSettings } from "../../config/ppo/settings.ts";
import type { DatasetRequest } from "../../data/hooks.ts";
import { encodeRlRows, type Filtered, loadRlRows, type RlRow } from "../../data/rl-rows.ts";
import { placeOf, type Row } from "../../data/row.ts";
import { checkSampling } from "../../engine/device-sampling.ts";
import { readConfig } from "../../models/config.ts";
import { loadTokenizer, type Tokenizer } from "../../text/tokenizer.ts";
import { UserError } from "../../util/errors.ts";
import { counted } from "../../util/format.ts";
import { info } from "../../util/log.ts";
import type { TrainContext } from "../context.ts";
import { fetchChangedModel, fetchModel } from "../fetch-model.ts";
import { type LoadedHook, loadHook } from "../load-hook.ts";
import { readTrainable } from "../open-engine.ts";
import { promptOptions } from "../prompt-options.ts";
import { type SplitReader, splitReader } from "../split-rows.ts";
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
  /** What chooses among the training prompts and adds to them, where the user has written it. */
  readonly hooks: {
    readonly sampler: LoadedHook<"sampler"> | null;
    readonly generator: LoadedHook<"generator"> | null;
  };
};

/** Read the prompts, and check what can be checked before a model is opened. */
export async function loadPrompts(config: PpoConfig, context: TrainContext): Promise<Prompts> {
  const { data, actor_rollout_ref: all, trainer } = config;
  findAdvantage(config.algorithm.adv_estimator);
  actorSettings(config);
  const folder = await fetchChangedModel(all.model, context);
  await readTrainable(config, folder);
  await checkSampler(config, folder);
  const tokenizerPath = all.model.tokenizer_path;
  const tokenizer = await loadTokenizer(tokenizerPath === null ? folder : await fetchModel(tokenizerPath, context));
  const hooks = await loadHooks(config);
  const read = await splitReader(data, tokenizer);
  const load = (split: Split) => loadSplit(config, tokenizer, split, read);
  const train = await load({ split: "train", maxSamples: data.train_max_samples, shuffle: data.shuffle });
  const validation = await load({ split: "val", maxSamples: data.val_max_samples, shuffle: data.validation_shuffle });
  checkCounts(config, train, validation);
  checkBest(trainer, validation.length);
  checkSources(config, [...train, ...validation]);
  return { train, validation, fingerprint: fingerprintOf(train), tokenizer, folder, hooks };
}

async function loadHooks({ data }: PpoConfig): Promise<Prompts["hooks"]> {
  const { class_path: path, class_name: name, value } = data.sampler;
  return {
    sampler: await loadHook("sampler", "data.sampler", { path, name, value }),
    generator: await loadHook("generator", "data.datagen", data.datagen),
  };
}

/** There must be prompts for a step, and to validate on where nothing else is to be done. */
function checkCounts({ data, trainer }: PpoConfig, train: readonly Prompt[], validation: readonly Prompt[]): void {
  const isDataset = isNamed(data.custom_cls);
  if (train.length < data.train_batch_size) {
    throw new UserError(
      `\`data.${isDataset ? "custom_cls" : "train_files"}\` gives ${counted(train.length, "prompt")}, fewer than the ${data.train_batch_size} of one step ` +
        "(`data.train_batch_size`). Lower it, or give more prompts.",
    );
  }
  if (trainer.val_only && validation.length === 0)
    throw new UserError("`trainer.val_only` is true, and the dataset of `data.custom_cls` gives no row for `val`.");
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

type Split = {
  readonly split: DatasetRequest["split"];
  readonly maxSamples: number;
  readonly shuffle: boolean;
};

async function loadSplit(
  config: PpoConfig,
  tokenizer: Tokenizer,
  { split, maxSamples, shuffle }: Split,
  read: SplitReader,
): Promise<Prompt[]> {
  const seed = config.data.seed ?? config.trainer.seed;
  const options = { ...rowOptions(config), maxSamples, shuffle, seed };
  return promptsOf(await loadRlRows((maxRows) => read(split, maxRows), tokenizer, options), tokenizer);
}

/** Rows as prompts, without those that are left out. */
export function encodePrompts(rows: readonly Row[], tokenizer: Tokenizer, config: PpoConfig): Prompt[] {
  return promptsOf(encodeRlRows(rows, tokenizer, rowOptions(config)), tokenizer);
}

const rowOptions = (config: PpoConfig) => ({
  promptKey: config.data.prompt_key,
  rewardFnKey: config.data.reward_fn_key,
  filterOverlongPrompts: config.data.filter_overlong_prompts,
  ...promptOptions(config),
});

function promptsOf({ prompts, overlong, refused }: Filtered, tokenizer: Tokenizer): Prompt[] {
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
