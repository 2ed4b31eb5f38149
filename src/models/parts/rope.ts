/**
 * Rotary position embedding: the `rope_*` keys of config.json made into one value, and that value made into tables.
 *
 * Follows transformers' modeling_rope_utils.py in the half-split convention: pair i of a head is (i, i + size/2).
 * Inverse frequencies and angles are rounded to float32 step by step where transformers does so; an angle at position
 * 10,000 kept in float64 would differ in the fourth digit. Where a scaling depends on the length of the sequence
 * (`dynamic`, `longrope`), the length of the table is that length.
 */
import { UserError } from "../../util/errors.ts";
import type { RopeFields } from "../config-fields.ts";
import type { ConfigFile, LayerType, PositionScheme, RotationTables } from "./part.ts";

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

export type RopeTraits = { readonly kind: "rope" };

export type Rope = {
  readonly kind: "rope";
  /** The size of the heads that are rotated. */
  readonly size: number;
  readonly theta: number;
  readonly scaling: RopeScaling;
};

export const rope: PositionScheme<RopeTraits, Rope> = {
  /** In either spelling, with every default filled in. */
  read: (_, file, { size, type }) => {
    const source = sourceOf(file, size, type);
    const { fields } = source;
    const partial = fields.partial_rotary_factor ?? file.fields.partial_rotary_factor ?? 1;
    if (partial !== 1) {
      throw new UserError(
        `${file.source}: \`partial_rotary_factor\` is ${partial}. The families supported here rotate whole heads (1).`,
      );
    }
    const scaling = fields.rope_type ?? fields.type ?? "default";
    if (!isRopeType(scaling)) {
      const known = Object.keys(resolvers).join(", ");
      throw new UserError(`${file.source}: \`${source.key}.rope_type\` is "${scaling}". Supported are ${known}.`);
    }
    const theta = fields.rope_theta ?? file.fields.rope_theta ?? 10000;
    return { kind: "rope", size, theta, scaling: resolvers[scaling](fields, source) };
  },

  regime: ({ scaling }, length) => {
    if (scaling.type === "dynamic") return length <= scaling.maxPositions ? 0 : length;
    if (scaling.type === "longrope") return length <= scaling.originalPositions ? 0 : scaling.originalPositions + 1;
    return 0;
  },

  tables: makeTables,
  write: writeKeys,
};

/** The keys of one layer type, and where they stand. */
type RopeSource = {
  readonly fields: RopeFields;
  /** The key they stand under and the file, for messages. */
  readonly key: "rope_scaling" | "rope_parameters";
  readonly file: string;
  readonly originalPositions: number | null;
  readonly maxPositions: number;
  readonly size: number;
};

/** `rope_scaling` if it has any key, else `rope_parameters`; each may be given per layer type. */
function sourceOf({ fields: all, source, maxPositions }: ConfigFile, size: number, type: LayerType): RopeSource {
  const hasScaling = all.rope_scaling && Object.keys(all.rope_scaling).length > 0;
  const key = hasScaling ? "rope_scaling" : "rope_parameters";
  const { full_attention: full, sliding_attention: sliding, ...flat } = all[key] ?? {};
  const nested = type === "full_attention" ? (full ?? sliding) : (sliding ?? full);
  return {
    fields: nested ?? flat,
    key,
    file: source,
    // As in transformers: a length beside `rope_parameters` wins over one inside, but does not reach nested values.
    originalPositions: nested ? null : (all.original_max_position_embeddings ?? null),
    maxPositions,
    size,
  };
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
  if (values.length === source.size / 2) return values;
  throw new UserError(
    `${source.file}: \`${source.key}.${key}\` has ${values.length} numbers where a head of ${source.size} ` +
      `needs ${source.size / 2}, one per pair.`,
  );
}

/** The length the model was trained on, before scaling. */
function originalPositions(fields: RopeFields, source: RopeSource): number {
  return source.originalPositions ?? fields.original_max_position_embeddings ?? source.maxPositions;
}

function yarnScale(factor: number, mscale = 1): number {
  return factor <= 1 ? 1 : 0.1 * mscale * Math.log(factor) + 1;
}

/** Cosines and sines, with the attention factor of yarn and longrope multiplied in. */
function makeTables(config: Rope, positions: number, length: number): RotationTables {
  const frequencies = inverseFrequencies(config, length);
  const scale = "attentionFactor" in config.scaling ? f32(config.scaling.attentionFactor) : 1;
  const pairs = config.size / 2;
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

/**
 * transformers 4 reads `rope_theta` and `rope_scaling`; 5 reads `rope_parameters`, or `rope_scaling` if not null.
 * The keys are those of the file that was read: 4 derives other values when more of them are given.
 */
function writeKeys(
  byType: ReadonlyMap<LayerType, Rope>,
  raw: Readonly<Record<string, unknown>>,
): Record<string, unknown> {
  const written = [raw.rope_scaling, raw.rope_parameters].map(asRecord).find((keys) => Object.keys(keys).length > 0);
  const keysOf = ({ scaling }: Rope, ...types: readonly LayerType[]): Record<string, unknown> => {
    const nested = types.map((type) => written?.[type]).find((keys) => keys !== undefined && keys !== null);
    const { rope_theta: _, full_attention: _full, sliding_attention: _sliding, ...keys } = asRecord(nested ?? written);
    return { ...keys, rope_type: scaling.type };
  };
  const [full, sliding] = [byType.get("full_attention"), byType.get("sliding_attention")];
  if (full !== undefined && sliding !== undefined && full !== sliding) {
    return {
      rope_theta: full.theta,
      rope_scaling: null,
      rope_parameters: {
        full_attention: { ...keysOf(full, "full_attention"), rope_theta: full.theta },
        sliding_attention: { ...keysOf(sliding, "sliding_attention"), rope_theta: sliding.theta },
      },
    };
  }
  const only = full ?? sliding;
  if (only === undefined) return {};
  const values = full
    ? keysOf(only, "full_attention", "sliding_attention")
    : keysOf(only, "sliding_attention", "full_attention");
  return {
    rope_theta: only.theta,
    rope_scaling: only.scaling.type === "default" ? null : values,
    rope_parameters: { ...values, rope_theta: only.theta },
  };
}

function asRecord(value: unknown): Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? { ...value } : {};
}

const f32 = Math.fround;

function inverseFrequencies({ theta, scaling, size }: Rope, length: number): Float32Array {
  switch (scaling.type) {
    case "default":
      return plain(theta, size);
    case "linear":
      return plain(theta, size).map((frequency) => frequency / f32(scaling.factor));
    case "dynamic":
      return plain(dynamicTheta(theta, scaling, size, length), size);
    case "llama3":
      return plain(theta, size).map((frequency) => llama3Frequency(frequency, scaling));
    case "yarn":
      return yarnFrequencies(theta, scaling, size);
    case "longrope": {
      const factors = length > scaling.originalPositions ? scaling.longFactor : scaling.shortFactor;
      return powers(theta, size).map((power, pair) => 1 / f32(f32(factors[pair]!) * power));
    }
    default:
      return scaling satisfies never;
  }
}

/** theta^(2i / size) for each pair i. */
function powers(theta: number, size: number): Float32Array {
  return Float32Array.from({ length: size / 2 }, (_, pair) => f32(theta) ** f32((2 * pair) / size));
}

function plain(theta: number, size: number): Float32Array {
  return powers(theta, size).map((power) => 1 / power);
}

type Scaling<Type extends RopeScaling["type"]> = Extract<RopeScaling, { type: Type }>;

/** NTK-aware scaling: past the trained length the base grows with the length. */
function dynamicTheta(theta: number, scaling: Scaling<"dynamic">, size: number, length: number): number {
  if (length <= scaling.maxPositions) return theta;
  const stretched = f32(f32(scaling.factor * length) / scaling.maxPositions);
  return f32(theta * f32(f32(stretched - (scaling.factor - 1)) ** (size / (size - 2))));
}

/** Long wavelengths are stretched by the factor, short ones are kept, those in between are blended. */
function llama3Frequency(frequency: number, scaling: Scaling<"llama3">): number {
  const { factor, lowFreqFactor: low, highFreqFactor: high, originalPositions: original } = scaling;
  // torch divides a number by a tensor as its reciprocal times the number; each step is rounded.
  const wavelength = f32(f32(1 / frequency) * f32(2 * Math.PI));
  if (wavelength > original / low) return frequency / factor;
  if (wavelength < original / high) return frequency;
  const smooth = f32(f32(f32(f32(1 / wavelength) * original) - low) / (high - low));
  return f32(f32((1 - smooth) * frequency) / factor) + f32(smooth * frequency);
}

/** Pairs that rotate fast are kept, pairs that rotate slowly are stretched; in between there is a linear ramp. */
function yarnFrequencies(theta: number, scaling: Scaling<"yarn">, size: number): Float32Array {
  const pairAt = (rotations: number) =>
    (size * Math.log(scaling.originalPositions / (rotations * 2 * Math.PI))) / (2 * Math.log(theta));
  const [fast, slow] = [pairAt(scaling.betaFast), pairAt(scaling.betaSlow)];
  const low = Math.max(scaling.truncate ? Math.floor(fast) : fast, 0);
  const last = Math.min(scaling.truncate ? Math.ceil(slow) : slow, size - 1);
  const high = low === last ? last + 0.001 : last;
  return powers(theta, size).map((power, pair) => {
    const ramp = Math.min(1, Math.max(0, f32(f32(pair - low) / f32(high - low))));
    const kept = f32(1 - ramp);
    const stretched = f32(1 / f32(scaling.factor * power));
    return f32(stretched * f32(1 - kept)) + f32(f32(1 / power) * kept);
  });
}
