/**
 * The typed way to write a config file: `export default defineConfig({ … })` in `trainyard.config.ts`. Each verb with a
 * config has a function of its own: the compiler checks every key, and other verbs leave the file alone.
 *
 * What a function returns carries a mark, which a copy made with `...` keeps. Keys are texts, so the mark is not a key.
 */
import type { Hook, HookKind } from "../data/hooks.ts";
import type { EvalInput } from "./eval/schema.ts";
import type { GenerateInput } from "./generate/schema.ts";
import type { PpoInput } from "./ppo/schema.ts";
import type { RewardConfigInput } from "./reward/schema.ts";
import type { SftInput } from "./sft/schema.ts";

const mark: unique symbol = Symbol.for("trainyard.verb"); // the same in two copies of the package

/** A config of `trainyard ppo`. The result has the type of what was written, so that other configs can build on it. */
export const defineConfig = <const T extends PpoInput>(config: Strict<T, PpoInput>): T => marked(config, "ppo");

/** A config of `trainyard sft`. */
export const defineSft = <const T extends SftInput>(config: Strict<T, SftInput>): T => marked(config, "sft");

/** A config of `trainyard reward`. */
export const defineRewardModel = <const T extends RewardConfigInput>(config: Strict<T, RewardConfigInput>): T =>
  marked(config, "reward");

/** A config of `trainyard generate`. */
export const defineGenerate = <const T extends GenerateInput>(config: Strict<T, GenerateInput>): T =>
  marked(config, "generate");

/** A config of `trainyard eval`. */
export const defineEval = <const T extends EvalInput>(config: Strict<T, EvalInput>): T => marked(config, "eval");

/** What was written, where every key of it is a key of `Keys`: the compiler alone would let others through. */
type Strict<T, Keys> = T & NoOthers<T, Keys>;
type NoOthers<T, Keys> = T extends Leaf
  ? unknown
  : { readonly [K in keyof T]: K extends keyof Keys ? NoOthers<T[K], Dict<Keys[K]>> : UnknownKey<K> };
type UnknownKey<K> = K extends string ? `There is no key ${K} here` : never;
/** What has no keys of ours below it. */
type Leaf =
  | (string | number | boolean | null | undefined)
  | (readonly unknown[] | ((...args: never) => unknown))
  | Hook<HookKind>;
/** What keys may stand below a key. */
type Dict<Value> = Exclude<Value, Leaf>;

/** The functions by verb. */
export const definers: Readonly<Record<string, string | undefined>> = {
  ppo: "defineConfig",
  sft: "defineSft",
  reward: "defineRewardModel",
  generate: "defineGenerate",
  eval: "defineEval",
};

function marked<T extends object>(config: T, verb: string): T {
  return { ...config, [mark]: verb };
}

/** The verb that a config is for; null where it does not say. */
export function verbOf(config: object): string | null {
  return mark in config && typeof config[mark] === "string" ? config[mark] : null;
}
