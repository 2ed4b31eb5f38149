/** A config.json as text, for a folder that transformers 4 and 5 both load. */
import { classNameOf, type ModelConfig } from "./config.ts";
import { typeOf } from "./layers.ts";
import type { LayerType } from "./parts/part.ts";
import { type Position, positionScheme } from "./parts/parts.ts";
import type { WriteDtype } from "./safetensors.ts";

/** The text of config.json: the head and dtype of what is saved, the rotary embedding in both spellings. */
export function configText(config: ModelConfig, dtype: WriteDtype): string {
  const torchDtype = dtype === "F32" ? "float32" : "bfloat16";
  const labels = { id2label: { 0: "LABEL_0" }, label2id: { LABEL_0: 0 } };
  const values = {
    ...config.raw,
    ...(config.head === "lm" ? {} : labels),
    ...positionKeys(config),
    architectures: [classNameOf(config)],
    dtype: torchDtype,
    torch_dtype: torchDtype,
  };
  // transformers 5 refuses 30 where it wants 30.0, and 4 warns. With an indent every number has its own line.
  const wholeFloat = new RegExp(`^( *"(?:${floatKeys.join("|")})": -?[0-9]+)(,?)$`, "gm");
  return `${JSON.stringify(values, null, 2).replaceAll(wholeFloat, "$1.0$2")}\n`;
}

const floatKeys = [
  "rms_norm_eps",
  "initializer_range",
  "attention_dropout",
  "attn_logit_softcapping",
  "final_logit_softcapping",
  "rope_theta",
  "factor",
  "low_freq_factor",
  "high_freq_factor",
  "attention_factor",
  "partial_rotary_factor",
];

/** The keys of the position schemes; layers of one type have one scheme. */
function positionKeys({ layers, raw }: ModelConfig): Record<string, unknown> {
  const byType = new Map<LayerType, Position>(layers.map((layer) => [typeOf(layer), layer.position]));
  const [first] = byType.values();
  return first === undefined ? {} : positionScheme(first).write(byType, raw);
}
