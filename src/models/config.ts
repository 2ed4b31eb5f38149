/**
 * A Hugging Face config.json, in the spelling of transformers 4 or 5, made into one value: an embedding, a list of
 * layers made of parts, and a head.
 *
 * Everything in which two models differ is in that value; nothing after this file looks at a family's name or at the
 * raw keys again, except to save or to print them. An absent key means what it means in transformers for that family.
 */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { codeOf, messageOf, UserError } from "../util/errors.ts";
import {
  absent,
  anySchema,
  checkFields,
  configSchema,
  type Fields,
  type HeadFields,
  objectSchema,
} from "./config-fields.ts";
import { type Family, type FamilyRow, families, isFamily } from "./families.ts";
import { type Layer, layerParameters, typeOf } from "./layers.ts";
import { type Head, type HeadConfig, heads } from "./parts/heads.ts";
import { type ConfigFile, type LayerType, type ParameterSpec, placed } from "./parts/part.ts";
import { attentionPart, feedForwardPart, type Norm, normPart, type Position, positionScheme } from "./parts/parts.ts";
import { type TokenEmbedding, tokenEmbedding } from "./parts/token-embedding.ts";

export type { Head } from "./parts/heads.ts";
export type { ParameterSpec } from "./parts/part.ts";

export type ModelConfig = {
  /** For messages, and for the class name that transformers reads. */
  readonly family: Family;
  readonly vocabSize: number;
  readonly maxPositions: number;
  readonly embedding: TokenEmbedding;
  readonly layers: readonly Layer[];
  /** The norm after the last layer. */
  readonly norm: Norm;
  /** What stands on top: next-token logits, one value per token, or one score per sequence. */
  readonly head: Head;
  readonly headConfig: HeadConfig;
  /** config.json as read, for saving. */
  readonly raw: Readonly<Record<string, unknown>>;
};

/** What is known of a model of any family: enough to train it where transformers computes. */
export type AnyModelConfig = Pick<ModelConfig, "vocabSize" | "maxPositions" | "head" | "raw"> & {
  readonly family: string;
};

/** Read and parse the config.json of a model folder. */
export async function readConfig(dir: string): Promise<ModelConfig> {
  return parseConfig(await readJson(dir), join(dir, "config.json"));
}

/** The same for a model of any family. */
export async function readAnyConfig(dir: string): Promise<AnyModelConfig> {
  return parseAnyConfig(await readJson(dir), join(dir, "config.json"));
}

/** The content of a config.json of any family: of one that does not load here, the keys that all of them have. */
export function parseAnyConfig(content: unknown, source: string): AnyModelConfig {
  const raw = checkFields(objectSchema, content, source);
  const { model_type: family } = raw;
  if (typeof family !== "string" || isFamily(family)) return parseConfig(raw, source);
  checkNotQuantised(raw, source);
  const text = typeof raw.text_config === "object" ? { ...raw, ...raw.text_config } : raw;
  const fields = checkFields(anySchema, text, source);
  const { max_position_embeddings, n_positions, n_ctx, max_seq_len } = fields;
  return {
    family,
    vocabSize: fields.vocab_size,
    raw,
    head: headOf(fields, source),
    maxPositions: max_position_embeddings ?? n_positions ?? n_ctx ?? max_seq_len ?? Infinity,
  };
}

async function readJson(dir: string): Promise<unknown> {
  const path = join(dir, "config.json");
  let text: string;
  try {
    text = await readFile(path, "utf8");
  } catch (error) {
    if (codeOf(error) !== "ENOENT" && codeOf(error) !== "ENOTDIR" && codeOf(error) !== "EISDIR") throw error;
    throw new UserError(
      `${path} is not there. A model is a Hugging Face folder with config.json, *.safetensors and tokenizer.json; ` +
        "check the path.",
      { cause: error },
    );
  }
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new UserError(`${path} is not JSON: ${messageOf(error)}. Download or copy the file again.`, { cause: error });
  }
}

/** Normalise the content of a config.json; `source` is the file's name for messages. */
export function parseConfig(content: unknown, source: string): ModelConfig {
  const raw = checkFields(objectSchema, content, source);
  const family = familyOf(raw.model_type, !("vision_config" in raw || "audio_config" in raw), source);
  checkNotQuantised(raw, source);
  const fields = checkFields(configSchema, raw, source);
  if (fields.use_bidirectional_attention) {
    throw new UserError(`${source}: \`use_bidirectional_attention\` is true. Only causal models are supported.`);
  }
  const row = families[family];
  const maxPositions = fields.max_position_embeddings ?? row.maxPositions;
  const file: ConfigFile = { fields, raw, source, className: row.className, maxPositions };
  const { vocab_size: vocabSize, hidden_size: width } = fields;
  const isTied = fields.tie_word_embeddings ?? row.isTied;
  const layers = layersOf(row, file);
  const config: ModelConfig = {
    family,
    vocabSize,
    maxPositions,
    embedding: { vocabSize, width, scale: row.hasScaledEmbedding ? Math.sqrt(width) : 1, isTied },
    layers,
    norm: normPart(row.norm).read(row.norm, file),
    head: "lm",
    headConfig: {
      vocabSize,
      width,
      isTied,
      softcap: row.hasCappedLogits ? absent(fields.final_logit_softcapping, 30) : null,
      hasBias: false,
    },
    raw,
  };
  return withHead(config, headOf(fields, source));
}

function checkNotQuantised({ quantization_config: given }: Readonly<Record<string, unknown>>, source: string): void {
  if (given == null) return;
  const method = Object(given).quant_method;
  throw new UserError(
    `${source}: \`quantization_config\` says that the weights are quantised${method ? ` (${method})` : ""}. ` +
      "Training needs whole weights: use the F32, F16 or BF16 checkpoint of the same model.",
  );
}

/** The same model with another head, such as a critic made from a language model. */
export function withHead(config: ModelConfig, head: Head): ModelConfig {
  const hasBias = head === "value" && config.raw.token_classification_bias !== false;
  return { ...config, head, headConfig: { ...config.headConfig, hasBias } };
}

/** The class name endings of transformers, by head. */
const headClasses: Record<Head, string> = {
  lm: "ForCausalLM",
  value: "ForTokenClassification",
  score: "ForSequenceClassification",
};

/** The class name that transformers has for the model. */
export function classNameOf({ family, head }: ModelConfig): string {
  return families[family].className + headClasses[head];
}

/** Whether weights of one model may be loaded into the other: models of one family. Shapes are checked when loading. */
export function isSameArchitecture(a: AnyModelConfig, b: AnyModelConfig): boolean {
  return a.family === b.family;
}

/** The position schemes of a model, each once, in the order of the layers. */
export function positionsOf({ layers }: Pick<ModelConfig, "layers">): readonly Position[] {
  return [...new Set(layers.map(({ position }) => position))];
}

/** Sequences whose lengths give the same number have the same position tables in every layer. */
export function positionRegime(schemes: readonly Position[], length: number): number {
  // A regime is a range of lengths, named by its first one; where several overlap, the last beginning counts.
  return schemes.reduce((first, scheme) => Math.max(first, positionScheme(scheme).regime(scheme, length)), 0);
}

function familyOf(modelType: unknown, isTextOnly: boolean, source: string): Family {
  if (typeof modelType === "string" && isFamily(modelType)) return modelType;
  const found = modelType === undefined ? "missing" : JSON.stringify(modelType);
  const others = isTextOnly
    ? "; with trainer.engine=ray all causal language models of transformers."
    : ". Models that read images or sound are not supported, on Ray neither.";
  throw new UserError(
    `${source}: \`model_type\` is ${found}. Supported are ${Object.keys(families).join(", ")}${others}`,
  );
}

/** Layers of one type share their parts' configs, since nothing in them differs. */
function layersOf(row: FamilyRow, file: ConfigFile): Layer[] {
  const attention = attentionPart(row.attention).read(row.attention, file);
  const mlp = feedForwardPart(row.mlp).read(row.mlp, file);
  const norm = normPart(row.norm).read(row.norm, file);
  const out = row.hasOutputNorms ? norm : null;
  const norms = { attention: norm, attentionOut: out, mlp: norm, mlpOut: out };
  const windows = windowsOf(row, file.fields, file.source);
  const positionOf = positionsByType(row, file, attentionPart(attention).rotatedSize(attention));
  return windows.map((window) => ({ attention, mlp, norms, position: positionOf(typeOf({ window })), window }));
}

/** The position scheme of each layer type; equal ones are the same value. */
function positionsByType(row: FamilyRow, file: ConfigFile, size: number): (type: LayerType) => Position {
  const known = new Map<string, Position>();
  return (type) => {
    const position = positionScheme(row.position).read(row.position, file, { size, type });
    const key = JSON.stringify(position);
    known.set(key, known.get(key) ?? position);
    return known.get(key) ?? position;
  };
}

function windowsOf(row: FamilyRow, fields: Fields, source: string): readonly (number | null)[] {
  const layers = Array.from({ length: fields.num_hidden_layers }, (_, layer) => layer);
  if (row.windows === "never") return layers.map(() => null);
  const isOff = row.windows === "late" && !fields.use_sliding_window;
  const window = isOff ? null : absent(fields.sliding_window, 4096);
  if (row.windows === "every") return layers.map(() => window);
  const late = fields.max_window_layers ?? 28;
  const isSliding = (layer: number) => (row.windows === "late" ? window !== null && layer >= late : layer % 2 === 0);
  const types =
    fields.layer_types ?? layers.map((layer) => (isSliding(layer) ? "sliding_attention" : "full_attention"));
  if (types.length !== layers.length) {
    throw new UserError(
      `${source}: \`layer_types\` has ${types.length} entries and \`num_hidden_layers\` is ${layers.length}.`,
    );
  }
  return types.map((type, layer) => {
    if (type === "full_attention" || type === "attention") return null;
    if (type !== "sliding_attention") {
      throw new UserError(
        `${source}: \`layer_types.${layer}\` is "${type}". Supported are full_attention and sliding_attention.`,
      );
    }
    if (window !== null) return window;
    const off = isOff ? "`use_sliding_window` is not true" : "`sliding_window` is null";
    throw new UserError(`${source}: \`layer_types.${layer}\` is "sliding_attention", but ${off}.`);
  });
}

function headOf(fields: HeadFields, source: string): Head {
  const architecture = fields.architectures?.[0];
  if (architecture === undefined || architecture.endsWith("Model")) return "lm";
  const heads: readonly Head[] = ["lm", "value", "score"];
  const head = heads.find((candidate) => architecture.endsWith(headClasses[candidate]));
  if (head === undefined) {
    const known = Object.values(headClasses).map((ending) => `*${ending}`);
    throw new UserError(`${source}: \`architectures\` says ${architecture}. Supported are ${known.join(", ")}.`);
  }
  const labels = fields.id2label ? Object.keys(fields.id2label).length : (fields.num_labels ?? 2);
  if (head === "lm" || labels === 1) return head;
  throw new UserError(
    `${source}: ${architecture} has ${labels} labels (\`id2label\`; absent means 2). ` +
      "Value and reward heads have one: use a checkpoint saved with num_labels=1.",
  );
}

/** Every parameter of the model, in transformers' names, order and layout; a tied head is not one of its own. */
export function parameterSpecs(config: ModelConfig): ParameterSpec[] {
  const { embedding, layers, norm, head, headConfig } = config;
  return [
    ...placed(tokenEmbedding.parameters(embedding), "embedding", "model.embed_tokens."),
    ...layers.flatMap(layerParameters),
    ...placed(normPart(norm).parameters(norm), "norm", "model.norm."),
    ...placed(heads[head].parameters(headConfig), "head", ""),
  ];
}
