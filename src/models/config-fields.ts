/**
 * The keys of config.json that we read, in the spelling of transformers 4 or 5, with their types.
 *
 * Parts read their own keys from the result (`Fields`). What an absent key means is said where it is read.
 */
import * as z from "zod";
import { UserError } from "../util/errors.ts";

const size = z.int("a whole number of at least 1").min(1, "a whole number of at least 1");
const positive = z.number("a number above 0").positive("a number above 0");
const flag = z.boolean("true or false");
const name = z.string("a name in quotes");
const names = z.array(name, "a list of names");
const factors = z.array(z.number("a number"), "a list of numbers");

const ropeFields = z.object(
  {
    rope_type: name.nullish(),
    type: name.nullish(),
    rope_theta: positive.nullish(),
    partial_rotary_factor: positive.nullish(),
    factor: positive.nullish(),
    original_max_position_embeddings: size.nullish(),
    attention_factor: positive.nullish(),
    beta_fast: z.number("a number").nullish(),
    beta_slow: z.number("a number").nullish(),
    mscale: z.number("a number").nullish(),
    mscale_all_dim: z.number("a number").nullish(),
    truncate: flag.nullish(),
    low_freq_factor: positive.nullish(),
    high_freq_factor: positive.nullish(),
    short_factor: factors.nullish(),
    long_factor: factors.nullish(),
  },
  "an object",
);
export type RopeFields = z.infer<typeof ropeFields>;

/** What may stand under `rope_parameters` or `rope_scaling`: one set of values, or one per layer type. */
const ropeSchema = ropeFields.extend({
  full_attention: ropeFields.nullish(),
  sliding_attention: ropeFields.nullish(),
});

/** The keys that say what stands on top of the last layer. */
const headSchema = z.object({
  architectures: names.nullish(),
  id2label: z.record(z.string(), z.unknown(), "an object").nullish(),
  num_labels: size.nullish(),
});
export type HeadFields = z.infer<typeof headSchema>;

/** The keys that configs of any family have. */
export const anySchema = z.object({
  ...headSchema.shape,
  vocab_size: size,
  max_position_embeddings: size.nullish(),
  n_positions: size.nullish(),
  n_ctx: size.nullish(),
  max_seq_len: size.nullish(),
});

/** The keys of the families that load here. The five sizes have no sensible default and must be given. */
export const configSchema = z.object({
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
  hidden_act: name.nullish(),
  hidden_activation: name.nullish(),
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
  layer_types: names.nullish(),
  rope_theta: positive.nullish(),
  partial_rotary_factor: positive.nullish(),
  original_max_position_embeddings: size.nullish(),
  rope_scaling: ropeSchema.nullish(),
  rope_parameters: ropeSchema.nullish(),
});
export type Fields = z.infer<typeof configSchema>;

export const objectSchema = z.record(z.string(), z.unknown(), "an object");

/** The default is for an absent key only; null is a value of its own. */
export function absent<T>(value: T | undefined, fallback: T): T {
  return value === undefined ? fallback : value;
}

/** Parse, or say which key of the file has which value and what it should be. */
export function checkFields<T>(schema: z.ZodType<T>, value: unknown, source: string): T {
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
