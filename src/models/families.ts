/**
 * The model families, as data: each row says of which parts a family's layers are made, and what it fixes about them.
 *
 * Values are those of Hugging Face transformers: which keys of config.json the family reads, and what an absent key
 * means. A new family whose layers are made of known parts is a new row here. Only `config.ts` and what writes a
 * config.json read this table; everything else reads the model's parts.
 */
import type { GatedTraits } from "./parts/gated.ts";
import type { GroupedQueryTraits } from "./parts/grouped-query.ts";
import type { AttentionTraits, FeedForwardTraits, NormTraits, PositionTraits } from "./parts/parts.ts";

export type Family = "llama" | "mistral" | "qwen2" | "qwen3" | "gemma" | "gemma2";

/** Which layers have a sliding window: none, all, those from `max_window_layers` on, or every other one. */
export type WindowRule = "never" | "every" | "late" | "alternating";

export type FamilyRow = {
  /** Begins the class names of transformers: `Llama` -> `LlamaForCausalLM`. */
  readonly className: string;
  /** `max_position_embeddings` when absent. */
  readonly maxPositions: number;
  /** `tie_word_embeddings` when absent. */
  readonly isTied: boolean;
  /** Embeddings are multiplied by sqrt(width). */
  readonly hasScaledEmbedding: boolean;
  readonly attention: AttentionTraits;
  readonly mlp: FeedForwardTraits;
  readonly norm: NormTraits;
  /** Norms after attention and feed-forward, besides those before. */
  readonly hasOutputNorms: boolean;
  readonly position: PositionTraits;
  readonly windows: WindowRule;
  /** Reads `final_logit_softcapping`. */
  readonly hasCappedLogits: boolean;
};

/** Rows that others begin from have parts of one kind, so that their traits can be spread. */
type Dense = FamilyRow & { readonly attention: GroupedQueryTraits; readonly mlp: GatedTraits };

const llama: Dense = {
  className: "Llama",
  maxPositions: 2048,
  isTied: false,
  hasScaledEmbedding: false,
  attention: {
    kind: "grouped-query",
    kvHeads: null,
    headDim: null,
    bias: "config",
    headNorm: null,
    isCapped: false,
  },
  mlp: { kind: "gated", activationKey: "hidden_act", activation: "silu", geluIsTanh: false, bias: "config" },
  norm: { kind: "rms", offset: 0 },
  hasOutputNorms: false,
  position: { kind: "rope" },
  windows: "never",
  hasCappedLogits: false,
};

const qwen2: Dense = {
  ...llama,
  className: "Qwen2",
  maxPositions: 32768,
  attention: { ...llama.attention, kvHeads: 32, bias: "qkv" },
  mlp: { ...llama.mlp, bias: "never" },
  windows: "late",
};

const gemma: Dense = {
  ...llama,
  className: "Gemma",
  maxPositions: 8192,
  isTied: true,
  hasScaledEmbedding: true,
  attention: { ...llama.attention, kvHeads: 16, headDim: 256 },
  mlp: { ...llama.mlp, activation: "gelu_pytorch_tanh", geluIsTanh: true, bias: "never" },
  norm: { kind: "rms", offset: 1 },
};

/** Every family that loads, by the `model_type` of its config.json. */
export const families: Record<Family, FamilyRow> = {
  llama,
  mistral: {
    ...llama,
    className: "Mistral",
    maxPositions: 131072,
    attention: { ...llama.attention, kvHeads: 8, bias: "never" },
    mlp: { ...llama.mlp, bias: "never" },
    windows: "every",
  },
  qwen2,
  qwen3: {
    ...qwen2,
    className: "Qwen3",
    attention: { ...qwen2.attention, headDim: 128, bias: "config", headNorm: { offset: 0 } },
  },
  gemma,
  gemma2: {
    ...gemma,
    className: "Gemma2",
    attention: { ...gemma.attention, kvHeads: 4, isCapped: true },
    mlp: { ...gemma.mlp, activationKey: "hidden_activation", geluIsTanh: false },
    hasOutputNorms: true,
    windows: "alternating",
    hasCappedLogits: true,
  },
};

/** Whether a `model_type` is one of the table's. */
export function isFamily(modelType: string): modelType is Family {
  return Object.hasOwn(families, modelType);
}
