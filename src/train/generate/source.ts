/** What samples for a generation: the model of the config in this process, or the servers that it names. */
import { createHash } from "node:crypto";
import { readdir, stat } from "node:fs/promises";
import { join } from "node:path";
import type { GenerateConfig } from "../../config/generate/schema.ts";
import { Remote } from "../../rollout/remote.ts";
import { loadTokenizer, type Tokenizer } from "../../text/tokenizer.ts";
import type { TrainContext } from "../context.ts";
import { fetchModel } from "../fetch-model.ts";
import { findModel } from "../local-model.ts";
import { promptOptions } from "../prompt-options.ts";
import type { Settings } from "./journal.ts";
import { chatResponder, type Encoding, type Responder, tokenResponder } from "./responder.ts";

/** What samples, and the settings that its samples depend on. */
export type Source = { readonly responder: Responder; readonly settings: Settings };

/** Open what the config says. */
export async function openResponder(config: GenerateConfig, context: TrainContext): Promise<Source> {
  const { model, rollout } = config;
  if (rollout.base_url.length === 0) return localSource(config, context);
  const remote = await Remote.open(
    {
      baseUrls: rollout.base_url,
      setting: "`rollout.base_url`",
      model: model.path,
      modelSetting: "`model.path`",
      apiKey: context.env.OPENAI_API_KEY,
    },
    context.signal,
  );
  if (rollout.endpoint === "chat")
    return { responder: chatResponder(remote), settings: settingsOf(config, "chat", null) };
  const folder = await fetchModel(model.tokenizer_path ?? model.path, context);
  const maxLength = rollout.max_model_len ?? rollout.prompt_length + rollout.response_length;
  const encoding = encodingOf(config, await loadTokenizer(folder), { maxLength, vocabSize: null });
  const sampler = { open: async () => remote, close: async () => {} };
  return { responder: tokenResponder(sampler, encoding), settings: settingsOf(config, "completions", null) };
}

async function localSource(config: GenerateConfig, context: TrainContext): Promise<Source> {
  const { model, rollout, trainer } = config;
  const { max_model_len: maxLength } = rollout;
  const limits = {
    maxSequences: rollout.max_num_seqs,
    maxBatchedTokens: rollout.max_num_batched_tokens,
    hasPrefixCache: rollout.enable_prefix_caching,
    ...(maxLength === null ? {} : { maxLength }),
  };
  const local = await findModel({ path: model.path, tokenizerPath: model.tokenizer_path, ...trainer, limits }, context);
  const encoding = encodingOf(config, local.tokenizer, contextOf(config, local.config));
  const responder = tokenResponder(local.sampler, encoding);
  return { responder, settings: settingsOf(config, "this process", await fingerprint(local.folder)) };
}

type Context = Pick<Encoding, "maxLength" | "vocabSize">;

/** Tokens of prompt and response together, and the tokens that the model knows. */
export function contextOf(
  { rollout }: GenerateConfig,
  { maxPositions, vocabSize }: { readonly maxPositions: number; readonly vocabSize: number | null },
): Context {
  return { maxLength: Math.min(rollout.max_model_len ?? maxPositions, maxPositions), vocabSize };
}

/** How the prompts of a generation become tokens. */
export function encodingOf(
  config: GenerateConfig,
  tokenizer: Tokenizer,
  { maxLength, vocabSize }: Context,
): Required<Encoding> {
  const isModels = config.rollout.max_model_len === null;
  return {
    ...promptOptions(config),
    tokenizer,
    vocabSize,
    maxLength,
    maxLengthSetting: isModels ? "the model's context" : "`rollout.max_model_len`",
  };
}

function settingsOf({ data, model, rollout }: GenerateConfig, where: string, weights: string | null): Settings {
  const here = {
    "model.tokenizer_path": model.tokenizer_path,
    "model.custom_chat_template": model.custom_chat_template,
    "data.truncation": data.truncation,
    "data.apply_chat_template_kwargs": data.apply_chat_template_kwargs,
    "rollout.prompt_length": rollout.prompt_length,
    "rollout.max_model_len": rollout.max_model_len,
  };
  return {
    "model.path": model.path,
    "files of model.path": weights,
    "where it is sampled": where,
    "data.n_samples": data.n_samples,
    "rollout.temperature": rollout.do_sample ? rollout.temperature : 0,
    "rollout.top_k": rollout.top_k,
    "rollout.top_p": rollout.top_p,
    "rollout.ignore_eos": rollout.ignore_eos,
    "rollout.response_length": rollout.response_length,
    "rollout.seed": rollout.seed,
    ...(where === "chat" ? {} : here),
  };
}

/** Differs when a file of the model has changed. */
async function fingerprint(folder: string): Promise<string> {
  const hash = createHash("sha256");
  for (const name of (await readdir(folder)).sort()) {
    if (!/\.(safetensors|json|jinja)$/.test(name)) continue;
    const { size, mtimeMs } = await stat(join(folder, name));
    hash.update(`${name} ${size} ${mtimeMs}\n`);
  }
  return hash.digest("hex").slice(0, 16);
}
