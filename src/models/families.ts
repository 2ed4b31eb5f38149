/**
 * The model families, as data: each row says what makes a family differ from Llama, and nothing else does.
 *
 * Values are those of Hugging Face transformers: which keys of config.json the family reads, what an absent key means,
 * and which parts the layer has. A new family whose layer is made of the same parts is a new row here.
 */

export type Family = "llama" | "mistral" | "qwen2" | "qwen3" | "gemma" | "gemma2";

/** Which layers have a sliding window: none, all, those from `max_window_layers` on, or every other one. */
export type WindowRule = "never" | "every" | "late" | "alternating";

export type FamilyRow = {
  /** Begins the class names of transformers: `Llama` -> `LlamaForCausalLM`. */
  readonly className: string;
  /** `num_key_value_heads` when absent; null = one per query head. */
  readonly kvHeads: number | null;
  /** `head_dim` when absent; null = width / heads. */
  readonly headDim: number | null;
  /** `max_position_embeddings` when absent. */
  readonly maxPositions: number;
  /** `tie_word_embeddings` when absent. */
  readonly tiedHead: boolean;
  readonly activationKey: "hidden_act" | "hidden_activation";
  /** The activation when its key is absent. */
  readonly activation: string;
  /** The first Gemma checkpoints say `gelu` and mean its tanh approximation. */
  readonly geluIsTanh: boolean;
  /** Biases of attention: `config` = all four projections if `attention_bias`, `qkv` = always but not on the output. */
  readonly attentionBias: "config" | "qkv" | "never";
  readonly mlpBias: "config" | "never";
  /** RMSNorm over each head of queries and keys. */
  readonly qkNorm: boolean;
  /** Norms multiply by (offset + weight). */
  readonly normOffset: 0 | 1;
  /** Embeddings are multiplied by sqrt(width). */
  readonly scaledEmbedding: boolean;
  /** Norms after attention and feed-forward, besides those before. */
  readonly postNorms: boolean;
  /** Reads `query_pre_attn_scalar` and the two soft caps. */
  readonly capped: boolean;
  readonly windows: WindowRule;
};

const llama: FamilyRow = {
  className: "Llama",
  kvHeads: null,
  headDim: null,
  maxPositions: 2048,
  tiedHead: false,
  activationKey: "hidden_act",
  activation: "silu",
  geluIsTanh: false,
  attentionBias: "config",
  mlpBias: "config",
  qkNorm: false,
  normOffset: 0,
  scaledEmbedding: false,
  postNorms: false,
  capped: false,
  windows: "never",
};

const qwen2: FamilyRow = {
  ...llama,
  className: "Qwen2",
  kvHeads: 32,
  maxPositions: 32768,
  attentionBias: "qkv",
  mlpBias: "never",
  windows: "late",
};

const gemma: FamilyRow = {
  ...llama,
  className: "Gemma",
  kvHeads: 16,
  headDim: 256,
  maxPositions: 8192,
  tiedHead: true,
  activation: "gelu_pytorch_tanh",
  geluIsTanh: true,
  mlpBias: "never",
  normOffset: 1,
  scaledEmbedding: true,
};

/** Every family that loads, by the `model_type` of its config.json. */
export const families: Record<Family, FamilyRow> = {
  llama,
  mistral: {
    ...llama,
    className: "Mistral",
    kvHeads: 8,
    maxPositions: 131072,
    attentionBias: "never",
    mlpBias: "never",
    windows: "every",
  },
  qwen2,
  qwen3: { ...qwen2, className: "Qwen3", headDim: 128, attentionBias: "config", qkNorm: true },
  gemma,
  gemma2: {
    ...gemma,
    className: "Gemma2",
    kvHeads: 4,
    activationKey: "hidden_activation",
    geluIsTanh: false,
    postNorms: true,
    capped: true,
    windows: "alternating",
  },
};

/** Whether a `model_type` is one of the table's. */
export function isFamily(modelType: string): modelType is Family {
  return Object.hasOwn(families, modelType);
}
