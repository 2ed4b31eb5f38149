/**
 * Rollout corrections by name: what each preset of verl's two versions expands to, in the keys of
 * `algorithm.rollout_correction`.
 *
 * In verl they are class methods of a Python config; here `preset=NAME` sets the same keys, and keys given beside it win.
 * A `decoupled_` preset has the trainer recompute log-probs and corrects the batch once; a `bypass_` one takes the
 * sampler's log-probs as the old ones and corrects inside each update.
 */
import { nearest, UserError } from "../../util/errors.ts";
import { defaultsOf } from "../../util/field.ts";
import type { Version } from "../batch.ts";
import { correctionFields } from "./fields.ts";

/** `algorithm.rollout_correction.*`; the keys are verl's but for the last two. */
export type CorrectionConfig = {
  /** Level of importance weights: `token`, `sequence`, or null for none. */
  readonly rollout_is?: string | null;
  /** The largest weight, or "lower_upper": weights outside become 0 (IcePop). */
  readonly rollout_is_threshold?: number | string | null;
  /** Divide weights by their mean over the batch. */
  readonly rollout_is_batch_normalize?: boolean | null;
  /** What is rejected: options of 0.9, comma separated, or one level of 0.7; null for nothing. */
  readonly rollout_rs?: string | null;
  /** Bounds of rejection: one for all options, or one per option, comma separated. */
  readonly rollout_rs_threshold?: number | string | null;
  /** Lower bound of a level of 0.7; without it, the inverse of the upper one. */
  readonly rollout_rs_threshold_lower?: number | string | null;
  /** Rows with a token whose ratio train / rollout is below this are rejected (0.7). */
  readonly rollout_token_veto_threshold?: number | string | null;
  /** Take the sampler's log-probs as the old ones: one forward pass less. */
  readonly bypass_mode?: boolean | null;
  /** The loss in bypass mode: `ppo_clip` or `reinforce`. */
  readonly loss_type?: string | null;
  /** A preset of the table below, whose keys those given beside it override. */
  readonly preset?: string | null;
  /** Which verl release's presets and weight metrics: `0.9` (the default) or `0.7`. */
  readonly version?: string | null;
};

const { preset: _preset, version: _version, ...keys } = correctionFields;
const { rollout_rs_threshold_lower: _lower, rollout_token_veto_threshold: _veto, ...keysOf09 } = keys;

/** verl's defaults, with every key of that version. */
export const correctionDefaults: Readonly<Record<Version, CorrectionConfig>> = {
  "0.7": defaultsOf(keys),
  "0.9": defaultsOf(keysOf09),
};

const token = { rollout_is: "token" };
const sequence = { rollout_is: "sequence" };
const clipped = { bypass_mode: true, loss_type: "ppo_clip" };
const reinforce = { bypass_mode: true, loss_type: "reinforce" };
const geometric = { rollout_rs: "seq_mean_k1", rollout_rs_threshold: "0.999_1.001" };
const k3 = { rollout_rs: "seq_mean_k3", rollout_rs_threshold: 0.01 };
const icePop = { rollout_is: "token", rollout_is_threshold: "0.5_5.0" };
const oldGeometric = { rollout_rs: "geometric", rollout_rs_threshold: 1.001, rollout_token_veto_threshold: 1e-4 };

/** The keys each preset sets; the rest are defaults. */
export const correctionPresets: Readonly<Record<Version, Readonly<Record<string, CorrectionConfig>>>> = {
  "0.7": {
    disabled: {},
    decoupled_token_is: token,
    decoupled_seq_is: sequence,
    decoupled_seq_is_rs: { ...sequence, rollout_rs: "sequence", rollout_rs_threshold: 2 },
    decoupled_geo_rs: oldGeometric,
    geo_rs_seq_tis: { ...sequence, ...oldGeometric },
    bypass_ppo_clip: clipped,
    bypass_ppo_clip_geo_rs: { ...clipped, ...oldGeometric },
    bypass_pg_is: { ...reinforce, ...sequence },
    bypass_pg_rs: { ...reinforce, ...oldGeometric },
    bypass_pg_geo_rs_seq_tis: { ...reinforce, ...sequence, ...oldGeometric },
  },
  "0.9": {
    disabled: {},
    decoupled_token_is: token,
    decoupled_seq_is: sequence,
    decoupled_seq_is_rs: { ...sequence, rollout_rs: "seq_sum_k1", rollout_rs_threshold: "0.5_2.0" },
    decoupled_token_icepop: icePop,
    decoupled_geo_rs: geometric,
    decoupled_geo_rs_seq_tis: { ...sequence, ...geometric },
    decoupled_geo_rs_token_tis: { ...token, ...geometric },
    decoupled_k3_rs: k3,
    decoupled_k3_rs_seq_tis: { ...sequence, ...k3 },
    decoupled_k3_rs_token_tis: { ...token, ...k3 },
    bypass_ppo_clip: clipped,
    bypass_ppo_clip_geo_rs: { ...clipped, ...geometric },
    bypass_ppo_clip_k3_rs: { ...clipped, ...k3 },
    bypass_pg_is: { ...reinforce, ...sequence },
    bypass_pg_token_icepop: { ...reinforce, ...icePop },
    bypass_pg_geo_rs: { ...reinforce, ...geometric },
    bypass_pg_geo_rs_seq_tis: { ...reinforce, ...sequence, ...geometric },
    bypass_pg_geo_rs_token_tis: { ...reinforce, ...token, ...geometric },
  },
};

/** Every key of the version, as the preset sets it. */
export function presetConfig(name: string, version: Version = "0.9"): CorrectionConfig {
  const presets = correctionPresets[version];
  if (Object.hasOwn(presets, name)) return { ...correctionDefaults[version], ...presets[name] };
  const other = version === "0.9" ? "0.7" : "0.9";
  const names = nearest(name, Object.keys(presets), 5);
  throw new UserError(
    `\`rollout_correction.preset\` is "${name}", which is not a preset of verl ${version}. ${
      Object.hasOwn(correctionPresets[other], name)
        ? `It is one of verl ${other}: set \`rollout_correction.version\` to "${other}", or use`
        : "Use"
    } one of ${(names.length > 0 ? names : Object.keys(presets)).join(", ")}.`,
  );
}
