/**
 * Grouped-query attention: each key and value head serves several query heads; with as many of both it is multi-head
 * attention, with one it is multi-query attention.
 */
import type { Node } from "../../graph/node.ts";
import * as o from "../../graph/ops.ts";
import { type Dim, times } from "../../graph/shape.ts";
import { cachedHeadDim } from "../../nn/attention.ts";
import { UserError } from "../../util/errors.ts";
import { absent } from "../config-fields.ts";
import { type AttentionKind, type ConfigFile, costOf, linear, type Place, parameter } from "./part.ts";
import { type RmsNorm, rmsNorm } from "./rms-norm.ts";

export type GroupedQueryTraits = {
  readonly kind: "grouped-query";
  /** `num_key_value_heads` when absent; null = one per query head. */
  readonly kvHeads: number | null;
  /** `head_dim` when absent; null = width / heads. */
  readonly headDim: number | null;
  /** `config` = all four projections have biases if `attention_bias`, `qkv` = always but not on the output. */
  readonly bias: "config" | "qkv" | "never";
  /** RMSNorm over each head of queries and keys; it multiplies by (offset + weight). */
  readonly headNorm: { readonly offset: 0 | 1 } | null;
  /** Reads `query_pre_attn_scalar` and `attn_logit_softcapping`. */
  readonly isCapped: boolean;
};

export type GroupedQuery = {
  readonly kind: "grouped-query";
  readonly width: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly hasQkvBias: boolean;
  readonly hasOutBias: boolean;
  /** Norm over each head of queries and keys, before the rotation. */
  readonly headNorm: RmsNorm | null;
  /** Scores are query·key times this, then `softcap * tanh(score / softcap)`. */
  readonly scale: number;
  readonly softcap: number | null;
};

export const groupedQuery: AttentionKind<GroupedQueryTraits, GroupedQuery> = {
  read: (traits, file) => {
    const { fields } = file;
    const kvHeads = kvHeadsOf(traits, file);
    const headDim = headDimOf(traits, file);
    const hasBias = traits.bias === "config" && (fields.attention_bias ?? false);
    const { headNorm } = traits;
    return {
      kind: "grouped-query",
      width: fields.hidden_size,
      heads: fields.num_attention_heads,
      kvHeads,
      headDim,
      hasQkvBias: hasBias || traits.bias === "qkv",
      hasOutBias: hasBias,
      headNorm: headNorm && { ...rmsNorm.read({ kind: "rms", offset: headNorm.offset }, file), width: headDim },
      scale: (traits.isCapped ? absent(fields.query_pre_attn_scalar, 256) : headDim) ** -0.5,
      softcap: traits.isCapped ? absent(fields.attn_logit_softcapping, 50) : null,
    };
  },

  rotatedSize: ({ headDim }) => headDim,

  parameters: ({ width, heads, kvHeads, headDim, hasQkvBias, hasOutBias, headNorm }) => {
    const [q, kv] = [heads * headDim, kvHeads * headDim];
    const start = headNorm === null ? 0 : 1 - headNorm.offset;
    return [
      ...linear("q", "self_attn.q_proj", [q, width], hasQkvBias),
      ...linear("k", "self_attn.k_proj", [kv, width], hasQkvBias),
      ...linear("v", "self_attn.v_proj", [kv, width], hasQkvBias),
      ...linear("o", "self_attn.o_proj", [width, q], hasOutBias),
      ...(headNorm === null ? [] : [parameter("qNorm", "self_attn.q_norm.weight", [headDim], start)]),
      ...(headNorm === null ? [] : [parameter("kNorm", "self_attn.k_norm.weight", [headDim], start)]),
    ];
  },

  build: (x, { heads, kvHeads, headDim, headNorm, scale, softcap }, at) => {
    const { batch, time, window } = at;
    const query = normHeads(at.linear("q", x), headNorm, at.within("qNorm"));
    const key = normHeads(at.linear("k", x), headNorm, at.within("kNorm"));
    const shape = { batch, time, heads, kvHeads, headDim, valueDim: headDim, scale, softcap, window };
    return { out: at.linear("o", at.mix({ query, key, value: at.linear("v", x) }, shape)) };
  },

  cache: ({ kvHeads, headDim }) => [
    { name: "key", heads: kvHeads, size: cachedHeadDim(headDim) },
    { name: "value", heads: kvHeads, size: cachedHeadDim(headDim) },
  ],

  cost: ({ width, heads, kvHeads, headDim, headNorm, softcap }, context) => {
    const [q, kv] = [heads * headDim, kvHeads * headDim];
    // Two operations for each weight; two for each number of a key and of a value that a query is multiplied with.
    const flops = 2 * width * (2 * q + 2 * kv) + 4 * q * context.keys;
    const normed = headNorm === null ? 0 : 1.5 * (q + kv);
    const scores = heads * context.length;
    const floats = {
      limit: 8 * width + scores,
      train: 5.2 * width + 2.1 * kv + normed + scores * (softcap === null ? 0.9 : 2.9),
      forward: 2 * width,
      prefill: 4 * width,
    };
    return costOf(flops, floats, context);
  },
};

/** RMSNorm of each head of rows [rows, heads * headDim]. */
function normHeads(x: Node, config: RmsNorm | null, at: Place): Node {
  if (config === null) return x;
  const [rows, columns] = x.shape as [Dim, number]; // made by `linear` from a weight of known width
  const heads = o.reshape(x, [times(rows, columns / config.width), config.width]);
  return o.reshape(rmsNorm.build(heads, config, at).out, x.shape);
}

function kvHeadsOf(traits: GroupedQueryTraits, { fields, source, className }: ConfigFile): number {
  const heads = fields.num_attention_heads;
  const { num_key_value_heads: given } = fields;
  const kvHeads = given === null ? heads : (given ?? traits.kvHeads ?? heads);
  if (heads % kvHeads === 0) return kvHeads;
  throw new UserError(
    `${source}: \`num_attention_heads\` is ${heads}, which ${kvHeads} key-value heads do not divide ` +
      `(\`num_key_value_heads\`${given === undefined ? ` is absent, ${className}'s default is ${kvHeads}` : ""}).`,
  );
}

function headDimOf(traits: GroupedQueryTraits, { fields, source }: ConfigFile): number {
  const { hidden_size: width, num_attention_heads: heads } = fields;
  const headDim = fields.head_dim ?? traits.headDim ?? width / heads;
  if (!Number.isInteger(headDim)) {
    throw new UserError(
      `${source}: \`hidden_size\` is ${width}, which \`num_attention_heads\` ${heads} does not divide. ` +
        "Correct one of them, or give `head_dim`.",
    );
  }
  if (headDim % 2 === 0) return headDim;
  throw new UserError(`${source}: a head has ${headDim} dimensions; rotary embedding needs an even number.`);
}
