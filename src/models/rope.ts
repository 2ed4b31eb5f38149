/**
 * Rotary position embedding: the `rope_*` keys of config.json made into one value, and that value made into tables.
 *
 * Follows transformers' modeling_rope_utils.py in the half-split convention: pair i of a head is (i, i + headDim/2).
 * Inverse frequencies and angles are rounded to float32 step by step where transformers does so; an angle at position
 * 10,000 kept in float64 would differ in the fourth digit. Where a scaling depends on the length of the sequence
 * (`dynamic`, `longrope`), the length of the table is that length.
 */
import * as z from "zod";
import { UserError } from "../util/errors.ts";

export type RopeScaling =
  | { readonly type: "default" }
  | { readonly type: "linear"; readonly factor: number }
  | { readonly type: "dynamic"; readonly factor: number; readonly maxPositions: number }
  | {
      readonly type: "llama3";
      readonly factor: number;
      readonly lowFreqFactor: number;
      readonly highFreqFactor: number;
      readonly originalPositions: number;
    }
  | {
      readonly type: "yarn";
      readonly factor: number;
      readonly originalPositions: number;
      readonly attentionFactor: number;
      readonly betaFast: number;
      readonly betaSlow: number;
      readonly truncate: boolean;
    }
  | {
      readonly type: "longrope";
      readonly shortFactor: readonly number[];
      readonly longFactor: readonly number[];
      readonly originalPositions: number;
      readonly attentionFactor: number;
    };

export type RopeConfig = { readonly theta: number; readonly scaling: RopeScaling };

const number = z.number("a number").nullish();
const positive = z.number("a number above 0").positive("a number above 0").nullish();
const positions = z.int("a whole number of at least 1").min(1, "a whole number of at least 1").nullish();
const factors = z.array(z.number("a number"), "a list of numbers").nullish();
const name = z.string("a name in quotes").nullish();

const ropeFields = z.object(
  {
    rope_type: name,
    type: name,
    rope_theta: positive,
    partial_rotary_factor: positive,
    factor: positive,
    original_max_position_embeddings: positions,
    attention_factor: positive,
    beta_fast: number,
    beta_slow: number,
    mscale: number,
    mscale_all_dim: number,
    truncate: z.boolean("true or false").nullish(),
    low_freq_factor: positive,
    high_freq_factor: positive,
    short_factor: factors,
    long_factor: factors,
  },
  "an object",
);

/** What may stand under `rope_parameters` or `rope_scaling`: one set of values, or one per layer type. */
export const ropeSchema = ropeFields.extend({
  full_attention: ropeFields.nullish(),
  sliding_attention: ropeFields.nullish(),
});

type RopeFields = z.infer<typeof ropeFields>;
export type RopeSource = {
  /** `rope_scaling` if it says anything, else `rope_parameters`. */
  readonly fields: z.infer<typeof ropeSchema>;
  /** The key they stood under and the file, for messages. */
  readonly key: string;
  readonly file: string;
  readonly theta: number | null | undefined;
  readonly partialRotaryFactor: number | null | undefined;
  readonly originalPositions: number | null | undefined;
  readonly maxPositions: number;
  readonly headDim: number;
};

/** The rotary embedding a config.json describes, in either spelling, with every default filled in. */
export function resolveRope(source: RopeSource): RopeConfig {
  const { full_attention: full, sliding_attention: sliding, ...flat } = source.fields;
  if (full && sliding && JSON.stringify(full) !== JSON.stringify(sliding)) {
    throw new UserError(
      `${source.file}: \`${source.key}\` differs between full_attention and sliding_attention. ` +
        "The families supported here rotate every layer alike: give both the same values.",
    );
  }
  const nested = full ?? sliding;
  const fields = nested ?? flat;
  const partial = fields.partial_rotary_factor ?? source.partialRotaryFactor ?? 1;
  if (partial !== 1) {
    throw new UserError(
      `${source.file}: \`partial_rotary_factor\` is ${partial}. The families supported here rotate whole heads (1).`,
    );
  }
  const type = fields.rope_type ?? fields.type ?? "default";
  if (!isRopeType(type)) {
    const known = Object.keys(resolvers).join(", ");
    throw new UserError(`${source.file}: \`${source.key}.rope_type\` is "${type}". Supported are ${known}.`);
  }
  // As in transformers: a length beside `rope_parameters` wins over one inside, but does not reach nested values.
  const resolved = nested ? { ...source, originalPositions: null } : source;
  return { theta: fields.rope_theta ?? source.theta ?? 10000, scaling: resolvers[type](fields, resolved) };
}

type Resolver = (fields: RopeFields, source: RopeSource) => RopeScaling;

const resolvers: Record<RopeScaling["type"], Resolver> = {
  default: () => ({ type: "default" }),
  linear: (fields, source) => ({ type: "linear", factor: required(fields, "factor", source) }),
  dynamic: (fields, source) => ({
    type: "dynamic",
    factor: required(fields, "factor", source),
    maxPositions: source.maxPositions,
  }),
  llama3: (fields, source) => ({
    type: "llama3",
    factor: required(fields, "factor", source),
    lowFreqFactor: required(fields, "low_freq_factor", source),
    highFreqFactor: required(fields, "high_freq_factor", source),
    originalPositions: originalPositions(fields, source),
  }),
  yarn: (fields, source) => {
    const original = originalPositions(fields, source);
    const factor = fields.factor === null ? source.maxPositions / original : required(fields, "factor", source);
    const { mscale, mscale_all_dim: mscaleAll } = fields;
    const implied = mscale && mscaleAll ? yarnScale(factor, mscale) / yarnScale(factor, mscaleAll) : yarnScale(factor);
    return {
      type: "yarn",
      factor,
      originalPositions: original,
      attentionFactor: fields.attention_factor ?? implied,
      betaFast: fields.beta_fast || 32,
      betaSlow: fields.beta_slow || 1,
      truncate: fields.truncate ?? true,
    };
  },
  longrope: (fields, source) => {
    const original = originalPositions(fields, source);
    const factor = fields.factor ?? source.maxPositions / original;
    return {
      type: "longrope",
      shortFactor: perPair(fields, "short_factor", source),
      longFactor: perPair(fields, "long_factor", source),
      originalPositions: original,
      attentionFactor:
        fields.attention_factor ?? (factor <= 1 ? 1 : Math.sqrt(1 + Math.log(factor) / Math.log(original))),
    };
  },
};

function isRopeType(text: string): text is RopeScaling["type"] {
  return Object.hasOwn(resolvers, text);
}

function required(
  fields: RopeFields,
  key: "factor" | "low_freq_factor" | "high_freq_factor",
  source: RopeSource,
): number {
  const value = fields[key];
  if (value !== undefined && value !== null) return value;
  const type = fields.rope_type ?? fields.type;
  throw new UserError(`${source.file}: \`${source.key}.${key}\` is missing; rope type "${type}" needs it.`);
}

function perPair(fields: RopeFields, key: "short_factor" | "long_factor", source: RopeSource): readonly number[] {
  const values = fields[key] ?? [];
  if (values.length === source.headDim / 2) return values;
  throw new UserError(
    `${source.file}: \`${source.key}.${key}\` has ${values.length} numbers where a head of ${source.headDim} ` +
      `needs ${source.headDim / 2}, one per pair.`,
  );
}

/** The length the model was trained on, before scaling. */
function originalPositions(fields: RopeFields, source: RopeSource): number {
  return source.originalPositions ?? fields.original_max_position_embeddings ?? source.maxPositions;
}

function yarnScale(factor: number, mscale = 1): number {
  return factor <= 1 ? 1 : 0.1 * mscale * Math.log(factor) + 1;
}

/**
 * Cosines and sines, each [positions, headDim / 2], with the attention factor of yarn and longrope multiplied in.
 * `length` is that of the sequence, which may be followed by padding; it decides the frequencies of some scalings.
 */
export function ropeTables(
  rope: RopeConfig,
  headDim: number,
  positions: number,
  length = positions,
): { readonly cos: Float32Array; readonly sin: Float32Array } {
  const frequencies = inverseFrequencies(rope, headDim, length);
  const scale = "attentionFactor" in rope.scaling ? f32(rope.scaling.attentionFactor) : 1;
  const pairs = headDim / 2;
  const cos = new Float32Array(positions * pairs);
  const sin = new Float32Array(positions * pairs);
  for (let position = 0; position < positions; position++) {
    for (let pair = 0; pair < pairs; pair++) {
      const angle = f32(position * frequencies[pair]!);
      cos[position * pairs + pair] = f32(Math.cos(angle)) * scale;
      sin[position * pairs + pair] = f32(Math.sin(angle)) * scale;
    }
  }
  return { cos, sin };
}

/** Tables of one regime are prefixes of each other; another regime means other frequencies at every position. */
export function ropeRegime({ scaling }: RopeConfig, length: number): number {
  if (scaling.type === "dynamic") return length <= scaling.maxPositions ? 0 : length;
  if (scaling.type === "longrope") return length <= scaling.originalPositions ? 0 : 1;
  return 0;
}

const f32 = Math.fround;

function inverseFrequencies({ theta, scaling }: RopeConfig, headDim: number, length: number): Float32Array {
  switch (scaling.type) {
    case "default":
      return plain(theta, headDim);
    case "linear":
      return plain(theta, headDim).map((frequency) => frequency / f32(scaling.factor));
    case "dynamic":
      return plain(dynamicTheta(theta, scaling, headDim, length), headDim);
    case "llama3":
      return plain(theta, headDim).map((frequency) => llama3Frequency(frequency, scaling));
    case "yarn":
      return yarnFrequencies(theta, scaling, headDim);
    case "longrope": {
      const factors = length > scaling.originalPositions ? scaling.longFactor : scaling.shortFactor;
      return powers(theta, headDim).map((power, pair) => 1 / f32(f32(factors[pair]!) * power));
    }
    default:
      return scaling satisfies never;
  }
}

/** theta^(2i / headDim) for each pair i. */
function powers(theta: number, headDim: number): Float32Array {
  return Float32Array.from({ length: headDim / 2 }, (_, pair) => f32(theta) ** f32((2 * pair) / headDim));
}

function plain(theta: number, headDim: number): Float32Array {
  return powers(theta, headDim).map((power) => 1 / power);
}

type Scaling<Type extends RopeScaling["type"]> = Extract<RopeScaling, { type: Type }>;

/** NTK-aware scaling: past the trained length the base grows with the length. */
function dynamicTheta(theta: number, scaling: Scaling<"dynamic">, headDim: number, length: number): number {
  if (length <= scaling.maxPositions) return theta;
  const stretched = f32(f32(scaling.factor * length) / scaling.maxPositions);
  return f32(theta * f32(f32(stretched - (scaling.factor - 1)) ** (headDim / (headDim - 2))));
}

/** Long wavelengths are stretched by the factor, short ones kept, those between blended. */
function llama3Frequency(frequency: number, scaling: Scaling<"llama3">): number {
  const { factor, lowFreqFactor: low, highFreqFactor: high, originalPositions: original } = scaling;
  // torch divides a number by a tensor as its reciprocal times the number; each step is rounded.
  const wavelength = f32(f32(1 / frequency) * f32(2 * Math.PI));
  if (wavelength > original / low) return frequency / factor;
  if (wavelength < original / high) return frequency;
  const smooth = f32(f32(f32(f32(1 / wavelength) * original) - low) / (high - low));
  return f32(f32((1 - smooth) * frequency) / factor) + f32(smooth * frequency);
}

/** Pairs that turn often are kept, pairs that turn rarely are stretched, a linear ramp lies between. */
function yarnFrequencies(theta: number, scaling: Scaling<"yarn">, headDim: number): Float32Array {
  const pairAt = (rotations: number) =>
    (headDim * Math.log(scaling.originalPositions / (rotations * 2 * Math.PI))) / (2 * Math.log(theta));
  const [fast, slow] = [pairAt(scaling.betaFast), pairAt(scaling.betaSlow)];
  const low = Math.max(scaling.truncate ? Math.floor(fast) : fast, 0);
  const last = Math.min(scaling.truncate ? Math.ceil(slow) : slow, headDim - 1);
  const high = low === last ? last + 0.001 : last;
  return powers(theta, headDim).map((power, pair) => {
    const ramp = Math.min(1, Math.max(0, f32(f32(pair - low) / f32(high - low))));
    const kept = f32(1 - ramp);
    const stretched = f32(1 / f32(scaling.factor * power));
    return f32(stretched * f32(1 - kept)) + f32(f32(1 / power) * kept);
  });
}
