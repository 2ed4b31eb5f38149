/**
 * A Hugging Face config.json, in the spelling of transformers 4 or 5, made into one normalised value.
 *
 * Everything that tells two models apart is a field of `ModelConfig`; nothing after this file looks at a family's name
 * or at the raw keys again, except to save them. An absent key means what it means in transformers for that family;
 * the five sizes have no sensible default and must be there.
 */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import * as z from "zod";
import { codeOf, messageOf, UserError } from "../util/errors.ts";
import { type Family, type FamilyRow, families, isFamily } from "./families.ts";
import { type RopeConfig, resolveRope, ropeSchema } from "./rope.ts";

/** What stands on top of the last layer: next-token logits, one value per token, or one score per sequence. */
export type Head = "lm" | "value" | "score";

export type ModelConfig = {
  readonly family: Family;
  readonly vocabSize: number;
  readonly width: number;
  readonly hidden: number;
  readonly layers: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly normEps: number;
  readonly activation: "silu" | "gelu" | "geluTanh";
  /** The language-model head is the embedding; of no meaning for other heads. */
  readonly tiedHead: boolean;
  readonly qkvBias: boolean;
  readonly outBias: boolean;
  readonly mlpBias: boolean;
  /** RMSNorm over each head of queries and keys, before the rotation. */
  readonly qkNorm: boolean;
  /** Norms multiply by (normOffset + weight). */
  readonly normOffset: 0 | 1;
  /** Embeddings are multiplied by this. */
  readonly embedScale: number;
  /** Norms after attention and after feed-forward too. */
  readonly postNorms: boolean;
  /** Scores are query·key times this, then `softcap * tanh(score / softcap)`. */
  readonly attentionScale: number;
  readonly attentionSoftcap: number | null;
  /** Caps the logits of a language-model head; values and scores are not capped. */
  readonly logitSoftcap: number | null;
  /** Per layer: keys seen are those with position - window < key <= position; null = all before. */
  readonly windows: readonly (number | null)[];
  readonly rope: RopeConfig;
  readonly maxPositions: number;
  readonly head: Head;
  /** The value or score head has a bias. */
  readonly scoreBias: boolean;
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

/** The content of a config.json of any family: one that is not ours is read as far as all of transformers' agree. */
export function parseAnyConfig(content: unknown, source: string): AnyModelConfig {
  const raw = check(z.record(z.string(), z.unknown(), "an object"), content, source);
  const { model_type: family } = raw;
  if (typeof family !== "string" || isFamily(family)) return parseConfig(raw, source);
  checkWhole(raw, source);
  const fields = check(anySchema, typeof raw.text_config === "object" ? { ...raw, ...raw.text_config } : raw, source);
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
export function parseConfig(raw: unknown, source: string): ModelConfig {
  const record = check(z.record(z.string(), z.unknown(), "an object"), raw, source);
  const family = familyOf(record.model_type, source);
  checkWhole(record, source);
  const fields = check(configSchema, record, source);
  if (fields.use_bidirectional_attention) {
    throw new UserError(`${source}: \`use_bidirectional_attention\` is true. Only causal models are supported.`);
  }
  const row = families[family];
  const width = fields.hidden_size;
  const heads = fields.num_attention_heads;
  const kvHeads = kvHeadsOf(row, fields, source);
  const headDim = headDimOf(row, fields, source);
  const maxPositions = fields.max_position_embeddings ?? row.maxPositions;
  const attentionBias = row.attentionBias === "config" && (fields.attention_bias ?? false);
  const scaling = row.capped ? absent(fields.query_pre_attn_scalar, 256) : headDim;
  const config: ModelConfig = {
    family,
    vocabSize: fields.vocab_size,
    width,
    hidden: fields.intermediate_size,
    layers: fields.num_hidden_layers,
    heads,
    kvHeads,
    headDim,
    normEps: fields.rms_norm_eps ?? 1e-6,
    activation: activationOf(row, fields, source),
    tiedHead: fields.tie_word_embeddings ?? row.tiedHead,
    qkvBias: attentionBias || row.attentionBias === "qkv",
    outBias: attentionBias,
    mlpBias: row.mlpBias === "config" && (fields.mlp_bias ?? false),
    qkNorm: row.qkNorm,
    normOffset: row.normOffset,
    embedScale: row.scaledEmbedding ? Math.sqrt(width) : 1,
    postNorms: row.postNorms,
    attentionScale: scaling ** -0.5,
    attentionSoftcap: row.capped ? absent(fields.attn_logit_softcapping, 50) : null,
    logitSoftcap: row.capped ? absent(fields.final_logit_softcapping, 30) : null,
    windows: windowsOf(row, fields, source),
    rope: ropeOf(fields, { headDim, maxPositions, source }),
    maxPositions,
    head: "lm",
    scoreBias: false,
    raw: record,
  };
  return withHead(config, headOf(fields, source));
}

function checkWhole({ quantization_config: quantisation }: Readonly<Record<string, unknown>>, source: string): void {
  if (quantisation == null) return;
  const method = Object(quantisation).quant_method;
  throw new UserError(
    `${source}: \`quantization_config\` says that the weights are quantised${method ? ` (${method})` : ""}. ` +
      "Training needs whole weights: use the F32, F16 or BF16 checkpoint of the same model.",
  );
}

/** The same model with another head, such as a critic made from a language model. */
export function withHead(config: ModelConfig, head: Head): ModelConfig {
  return { ...config, head, scoreBias: head === "value" && config.raw.token_classification_bias !== false };
}

/** The class name endings of transformers, by head. */
export const headClasses: Record<Head, string> = {
  lm: "ForCausalLM",
  value: "ForTokenClassification",
  score: "ForSequenceClassification",
};

const size = z.int("a whole number of at least 1").min(1, "a whole number of at least 1");
const positive = z.number("a number above 0").positive("a number above 0");
const flag = z.boolean("true or false");

const headSchema = z.object({
  architectures: z.array(z.string("a name in quotes"), "a list of names").nullish(),
  id2label: z.record(z.string(), z.unknown(), "an object").nullish(),
  num_labels: size.nullish(),
});

const anySchema = z.object({
  ...headSchema.shape,
  vocab_size: size,
  max_position_embeddings: size.nullish(),
  n_positions: size.nullish(),
  n_ctx: size.nullish(),
  max_seq_len: size.nullish(),
});

const configSchema = z.object({
  ...headSchema.shape,
  vocab_size: size,
  hidden_size: size,
  intermediate_size: size,
  num_hidden_layers: size,
  num_attention_heads: size,
  num_key_value_heads: size.nullish(),
  head_dim: size.nullish(),
  rms_norm_eps: z.number("a number of at least 0").min(0, "a number of at least 0").nullish(),
  max_position_embeddings: size.nullish(),
  hidden_act: z.string("a name in quotes").nullish(),
  hidden_activation: z.string("a name in quotes").nullish(),
  tie_word_embeddings: flag.nullish(),
  attention_bias: flag.nullish(),
  mlp_bias: flag.nullish(),
  token_classification_bias: flag.nullish(),
  query_pre_attn_scalar: positive.optional(),
  attn_logit_softcapping: positive.nullish(),
  final_logit_softcapping: positive.nullish(),
  use_bidirectional_attention: flag.nullish(),
  sliding_window: size.nullish(),
  use_sliding_window: flag.nullish(),
  max_window_layers: z.int("a whole number").nullish(),
  layer_types: z.array(z.string("a name in quotes"), "a list of names").nullish(),
  rope_theta: positive.nullish(),
  partial_rotary_factor: positive.nullish(),
  original_max_position_embeddings: size.nullish(),
  rope_scaling: ropeSchema.nullish(),
  rope_parameters: ropeSchema.nullish(),
});
type Fields = z.infer<typeof configSchema>;

/** The default stands for an absent key only; null is a value of its own. */
function absent<T>(value: T | undefined, fallback: T): T {
  return value === undefined ? fallback : value;
}

/** Parse, or say which key of the file has which value and what it should be. */
function check<T>(schema: z.ZodType<T>, value: unknown, source: string): T {
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  const [issue] = result.error.issues;
  let found: unknown = value;
  for (const key of issue?.path ?? []) found = Object(found)[key];
  const where = issue?.path.length ? `\`${issue.path.join(".")}\`` : "the file";
  throw new UserError(
    found === undefined
      ? `${source}: ${where} is missing; it should be ${issue?.message}.`
      : `${source}: ${where} is ${JSON.stringify(found).slice(0, 80)}; it should be ${issue?.message}.`,
  );
}

function familyOf(modelType: unknown, source: string): Family {
  if (typeof modelType === "string" && isFamily(modelType)) return modelType;
  const found = modelType === undefined ? "missing" : JSON.stringify(modelType);
  throw new UserError(
    `${source}: \`model_type\` is ${found}. Supported are ${Object.keys(families).join(", ")}; with trainer.engine=ray all ` +
      "that transformers knows.",
  );
}

function kvHeadsOf(row: FamilyRow, fields: Fields, source: string): number {
  const heads = fields.num_attention_heads;
  const { num_key_value_heads: given } = fields;
  const kvHeads = given === null ? heads : (given ?? row.kvHeads ?? heads);
  if (heads % kvHeads === 0) return kvHeads;
  throw new UserError(
    `${source}: \`num_attention_heads\` is ${heads}, which ${kvHeads} key-value heads do not divide ` +
      `(\`num_key_value_heads\`${given === undefined ? ` is absent, ${row.className}'s default is ${kvHeads}` : ""}).`,
  );
}

function headDimOf(row: FamilyRow, fields: Fields, source: string): number {
  const { hidden_size: width, num_attention_heads: heads } = fields;
  const headDim = fields.head_dim ?? row.headDim ?? width / heads;
  if (!Number.isInteger(headDim)) {
    throw new UserError(
      `${source}: \`hidden_size\` is ${width}, which \`num_attention_heads\` ${heads} does not divide. ` +
        "Correct one of them, or give `head_dim`.",
    );
  }
  if (headDim % 2 === 0) return headDim;
  throw new UserError(`${source}: a head has ${headDim} dimensions; rotary embedding needs an even number.`);
}

const activations: Record<string, ModelConfig["activation"] | undefined> = {
  silu: "silu",
  swish: "silu",
  gelu: "gelu",
  gelu_python: "gelu",
  gelu_pytorch_tanh: "geluTanh",
  gelu_python_tanh: "geluTanh",
  gelu_new: "geluTanh",
  gelu_fast: "geluTanh",
};

function activationOf(row: FamilyRow, fields: Fields, source: string): ModelConfig["activation"] {
  const name = fields[row.activationKey] ?? row.activation;
  const activation = Object.hasOwn(activations, name) ? activations[name] : undefined;
  if (activation === undefined) {
    const known = Object.keys(activations).join(", ");
    throw new UserError(`${source}: \`${row.activationKey}\` is "${name}". Supported are ${known}.`);
  }
  return activation === "gelu" && row.geluIsTanh ? "geluTanh" : activation;
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

function ropeOf(fields: Fields, about: { headDim: number; maxPositions: number; source: string }): RopeConfig {
  const scaling = fields.rope_scaling && Object.keys(fields.rope_scaling).length > 0 ? fields.rope_scaling : null;
  return resolveRope({
    fields: scaling ?? fields.rope_parameters ?? {},
    key: scaling ? "rope_scaling" : "rope_parameters",
    file: about.source,
    theta: fields.rope_theta,
    partialRotaryFactor: fields.partial_rotary_factor,
    originalPositions: fields.original_max_position_embeddings,
    maxPositions: about.maxPositions,
    headDim: about.headDim,
  });
}

function headOf(fields: z.infer<typeof headSchema>, source: string): Head {
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

export type ParameterRole =
  | "embedding"
  | "attentionNorm"
  | "q"
  | "k"
  | "v"
  | "o"
  | "qBias"
  | "kBias"
  | "vBias"
  | "oBias"
  | "qNorm"
  | "kNorm"
  | "attentionPostNorm"
  | "mlpNorm"
  | "gate"
  | "up"
  | "down"
  | "gateBias"
  | "upBias"
  | "downBias"
  | "mlpPostNorm"
  | "finalNorm"
  | "lmHead"
  | "score"
  | "scoreBias";

export type ParameterSpec = {
  /** The tensor's name in a checkpoint of transformers. */
  readonly name: string;
  /** Linear weights are [out, in]. */
  readonly shape: readonly number[];
  readonly role: ParameterRole;
  /** The layer it belongs to; null outside the layers. */
  readonly layer: number | null;
  /** Other names the same tensor may be stored under: a tied head. */
  readonly aliases: readonly string[];
};

/** Every parameter of the model, in transformers' names, order and layout; a tied head is not one of its own. */
export function parameterSpecs(config: ModelConfig): ParameterSpec[] {
  const { width, hidden, vocabSize, headDim } = config;
  const specs: ParameterSpec[] = [];
  const add = (role: ParameterRole, name: string, shape: readonly number[], layer: number | null = null) =>
    specs.push({ name, shape, role, layer, aliases: role === "embedding" && config.tiedHead ? [headName] : [] });

  add("embedding", "model.embed_tokens.weight", [vocabSize, width]);
  for (let layer = 0; layer < config.layers; layer++) {
    const inLayer = (role: ParameterRole, name: string, shape: readonly number[]) =>
      add(role, `model.layers.${layer}.${name}`, shape, layer);
    const q = config.heads * headDim;
    const kv = config.kvHeads * headDim;
    inLayer("q", "self_attn.q_proj.weight", [q, width]);
    if (config.qkvBias) inLayer("qBias", "self_attn.q_proj.bias", [q]);
    inLayer("k", "self_attn.k_proj.weight", [kv, width]);
    if (config.qkvBias) inLayer("kBias", "self_attn.k_proj.bias", [kv]);
    inLayer("v", "self_attn.v_proj.weight", [kv, width]);
    if (config.qkvBias) inLayer("vBias", "self_attn.v_proj.bias", [kv]);
    inLayer("o", "self_attn.o_proj.weight", [width, q]);
    if (config.outBias) inLayer("oBias", "self_attn.o_proj.bias", [width]);
    if (config.qkNorm) inLayer("qNorm", "self_attn.q_norm.weight", [headDim]);
    if (config.qkNorm) inLayer("kNorm", "self_attn.k_norm.weight", [headDim]);
    inLayer("gate", "mlp.gate_proj.weight", [hidden, width]);
    if (config.mlpBias) inLayer("gateBias", "mlp.gate_proj.bias", [hidden]);
    inLayer("up", "mlp.up_proj.weight", [hidden, width]);
    if (config.mlpBias) inLayer("upBias", "mlp.up_proj.bias", [hidden]);
    inLayer("down", "mlp.down_proj.weight", [width, hidden]);
    if (config.mlpBias) inLayer("downBias", "mlp.down_proj.bias", [width]);
    inLayer("attentionNorm", "input_layernorm.weight", [width]);
    // The norm called `post_attention` stands before the feed-forward, except where there are norms after, too.
    inLayer(config.postNorms ? "attentionPostNorm" : "mlpNorm", "post_attention_layernorm.weight", [width]);
    if (config.postNorms) inLayer("mlpNorm", "pre_feedforward_layernorm.weight", [width]);
    if (config.postNorms) inLayer("mlpPostNorm", "post_feedforward_layernorm.weight", [width]);
  }
  add("finalNorm", "model.norm.weight", [width]);
  if (config.head === "lm") {
    if (!config.tiedHead) add("lmHead", headName, [vocabSize, width]);
  } else {
    add("score", "score.weight", [1, width]);
    if (config.scoreBias) add("scoreBias", "score.bias", [1]);
  }
  return specs;
}

const headName = "lm_head.weight";
