/**
 * From the keys of `algorithm.rollout_correction` to a correction: names are looked up, bounds parsed, mistakes refused.
 *
 * Names of verl 0.7 and 0.9 do not overlap where they mean different things, so both work with any `version`, but
 * not in one list. Departures from verl: a lower bound above the upper one (which rejects everything in 0.7), weights
 * asked for with a null threshold (which gives none) and bounds that no option uses are refused.
 */
import { nearest, UserError } from "../../util/errors.ts";
import type { Version } from "../batch.ts";
import { correctionFields, lossTypes } from "./fields.ts";
import { type Importance, importanceLevels } from "./importance.ts";
import type { Bounds } from "./log-ratios.ts";
import { type CorrectionConfig, correctionDefaults, presetConfig } from "./presets.ts";
import { criteria, type DivergenceOption, isSigned, type Rejection, ratioLevels } from "./rejection.ts";

/** The loss of bypass mode. */
export type BypassLoss = (typeof lossTypes)[number];

/** What is done about the difference between the policy that sampled and the one that trains. */
export type Correction = {
  readonly importance: Importance | null;
  /** A token stays if every one of them lets it. */
  readonly rejections: readonly Rejection[];
  /** Rows with a token whose ratio train / rollout is below this are rejected. */
  readonly vetoBelow: number | null;
  /** Whether the sampler's log-probs stand for the old ones. */
  readonly isBypass: boolean;
  /** The loss in bypass mode; without it, the configured policy loss is used. */
  readonly lossType: BypassLoss;
  readonly version: Version;
};

const keyNames = Object.keys(correctionFields);

/** Read a configuration. */
export function correctionOf(config: CorrectionConfig): Correction {
  for (const key of Object.keys(config)) oneOf(keyNames, key, "The key `rollout_correction.KEY`");
  const version = oneOf(["0.7", "0.9"] as const, config.version ?? "0.9", keyText("version"));
  const base = config.preset == null ? correctionDefaults[version] : presetConfig(config.preset, version);
  const given: CorrectionConfig = { ...base, ...definedOf(config) };
  return {
    importance: importanceOf(given),
    rejections: rejectionsOf(given),
    vetoBelow:
      given.rollout_token_veto_threshold == null
        ? null
        : numberOf("rollout_token_veto_threshold", given.rollout_token_veto_threshold),
    isBypass: flagOf("bypass_mode", given.bypass_mode),
    lossType: oneOf(lossTypes, given.loss_type ?? "ppo_clip", keyText("loss_type")),
    version,
  };
}

function importanceOf(config: CorrectionConfig): Importance | null {
  const { rollout_is: name, rollout_is_threshold: threshold } = config;
  const normalizes = flagOf("rollout_is_batch_normalize", config.rollout_is_batch_normalize);
  if (name == null) return null;
  const level = oneOf(importanceLevels, name, keyText("rollout_is"));
  if (threshold == null) {
    throw new UserError(
      `\`rollout_correction.rollout_is\` is "${name}" but \`rollout_is_threshold\` is null, so weights have no bound. ` +
        "Give one, such as 2.0, or set `rollout_is` to null for no weights.",
    );
  }
  return { level, ...boundsOf("rollout_is_threshold", threshold), normalizes };
}

function rejectionsOf(config: CorrectionConfig): Rejection[] {
  const { rollout_rs: names, rollout_rs_threshold: threshold } = config;
  if (names == null) return [];
  const known = [...Object.keys(criteria), ...ratioLevels];
  const list = [...new Set(parts("rollout_rs", names))].map((name) => oneOf(known, name, keyText("rollout_rs")));
  if (list.length === 0) throw new UserError(`\`rollout_correction.rollout_rs\` is "${names}" and names no option.`);
  if (threshold == null) {
    throw new UserError(
      `\`rollout_correction.rollout_rs\` is "${names}" but \`rollout_rs_threshold\` is null. ` +
        "Say from where on to reject: such as 1.001 for geometric, 0.999_1.001 for seq_mean_k1, 0.01 for seq_mean_k3.",
    );
  }
  const bounds = typeof threshold === "string" ? parts("rollout_rs_threshold", threshold) : [threshold];
  if (bounds.length !== 1 && bounds.length !== list.length) {
    throw new UserError(
      `\`rollout_correction.rollout_rs_threshold\` has ${bounds.length} entries, "${threshold}", for the ${list.length} ` +
        `options of \`rollout_rs\`, "${list.join(",")}". Give one for all, or one for each.`,
    );
  }
  const levels = list.filter((name) => isRatioLevel(name));
  if (levels.length > 0 && list.length > 1) {
    throw new UserError(
      `\`rollout_correction.rollout_rs\` is "${names}": ${levels[0]} is a level of verl 0.7 and stands alone. ` +
        `Combine options of 0.9 instead: ${Object.keys(criteria).join(", ")}.`,
    );
  }
  const lower = config.rollout_rs_threshold_lower ?? null;
  return list.map((name, i) => rejectionOf(name, bounds[bounds.length === 1 ? 0 : i]!, lower));
}

function rejectionOf(name: string, bound: string | number, lowerBound: string | number | null): Rejection {
  const key = "rollout_rs_threshold";
  const { lower: written, upper } = boundsOf(key, bound);
  if (isRatioLevel(name)) {
    if (lowerBound !== null && written !== null) {
      throw new UserError(
        `\`rollout_correction.${key}\` is "${bound}", which has a lower bound, and \`${key}_lower\` is ${lowerBound}. ` +
          "Give one of the two.",
      );
    }
    const lower = lowerBound === null ? written : numberOf(`${key}_lower`, lowerBound);
    return { kind: "ratio", level: name, bounds: ordered(key, lower ?? 1 / upper, upper) };
  }
  if (lowerBound !== null) {
    throw new UserError(
      `\`rollout_correction.${key}_lower\` is ${lowerBound}, which ${name} does not use: it belongs to verl 0.7's ` +
        `levels ${ratioLevels.join(", ")}. Write both bounds in \`${key}\`, such as "0.5_2.0".`,
    );
  }
  const option = name as DivergenceOption; // `rejectionsOf` has looked it up: what is no level is one of `criteria`
  if (isSigned(option)) {
    const ratio = ordered(key, written ?? 1 / upper, upper);
    return { kind: "divergence", option, bounds: { lower: Math.log(ratio.lower), upper: Math.log(ratio.upper) } };
  }
  if (written !== null) {
    throw new UserError(
      `\`rollout_correction.${key}\` is "${bound}" for ${option}, which is never negative and has no lower bound. ` +
        `Give the upper bound alone, such as ${upper}.`,
    );
  }
  return { kind: "divergence", option, bounds: { lower: 0, upper } };
}

function isRatioLevel(name: string): name is (typeof ratioLevels)[number] {
  return ratioLevels.some((level) => level === name);
}

/** A number is an upper bound, "a_b" a lower and an upper one. */
function boundsOf(key: string, value: string | number): { lower: number | null; upper: number } {
  const [first, ...rest] = typeof value === "string" ? value.split("_") : [value];
  if (rest.length === 0) return { lower: null, upper: numberOf(key, value) };
  if (rest.length > 1) throw notABound(key, value);
  return ordered(key, numberOf(key, first!), numberOf(key, rest[0]!));
}

function ordered(key: string, lower: number, upper: number): Bounds {
  if (lower <= upper) return { lower, upper };
  throw new UserError(
    `\`rollout_correction.${key}\` allows ratios from ${lower} to ${upper}, that is none. ` +
      "Give a lower bound below the upper one; a single bound u means 1/u to u and must be at least 1.",
  );
}

function numberOf(key: string, value: unknown): number {
  const isText = typeof value === "string" && value.trim() !== "";
  const number = typeof value === "number" || isText ? Number(value) : Number.NaN;
  if (Number.isFinite(number) && number > 0) return number;
  throw notABound(key, value);
}

function notABound(key: string, value: unknown): UserError {
  const pair = key.endsWith("rs_threshold") || key.endsWith("is_threshold") ? ', or a pair such as "0.5_2.0"' : "";
  return new UserError(`\`rollout_correction.${key}\` is ${JSON.stringify(value)}. Give a number above 0${pair}.`);
}

function flagOf(key: string, value: unknown): boolean {
  if (value == null) return false;
  if (typeof value === "boolean") return value;
  throw new UserError(`\`rollout_correction.${key}\` is ${JSON.stringify(value)}. Set it to true or false.`);
}

function parts(key: string, value: unknown): string[] {
  if (typeof value !== "string") {
    throw new UserError(`\`rollout_correction.${key}\` is ${JSON.stringify(value)}. Give names, separated by commas.`);
  }
  const list = value.split(",").map((part) => part.trim());
  return list.filter((part) => part !== "");
}

const keyText = (key: string) => `\`rollout_correction.${key}\``;

/** `name` if it is one of `names`; otherwise an error with the nearest ones. */
function oneOf<Name extends string>(names: readonly Name[], name: unknown, what: string): Name {
  const found = names.find((candidate) => candidate === name);
  if (found !== undefined) return found;
  const near = nearest(String(name), names);
  throw new UserError(
    `${what.replace("KEY", String(name))} ${what.startsWith("The key") ? "does not exist" : `is ${JSON.stringify(name)}`}. ` +
      `Use one of ${(near.length > 0 ? near : names).join(", ")}.`,
  );
}

function definedOf(config: CorrectionConfig): CorrectionConfig {
  return Object.fromEntries(Object.entries(config).filter(([, value]) => value !== undefined));
}
