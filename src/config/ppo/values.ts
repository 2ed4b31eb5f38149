/**
 * Kinds of values that only the keys of `trainyard ppo` take.
 *
 * verl's configs have several values for "not set" (`null` for a default, `False` for never); they are read as one.
 */
import { z } from "zod";
import type { CustomReward } from "../../rewards/reward.ts";
import type { Scorer } from "../../rewards/rewards.ts";
import { int, names, type Type } from "../../util/field.ts";

/** Steps from one time to the next; verl's other words for never are -1 here. */
export const everySteps: Type<number, number | false> = {
  schema: z
    .union([z.int().min(-1), z.literal(false)])
    .transform((value) => (value === false || value === 0 ? -1 : value)),
  expects: "a whole number of at least 1, or -1 for never",
};

/** `top_k` of a sampler. */
export const topK: Type<number> = { ...int(-1), expects: "a whole number of at least 1, or 0 or -1 for all" };

/** `top_p` of a sampler. */
export const topP: Type<number> = {
  schema: z.number().gt(0).max(1),
  expects: "a number above 0 and at most 1",
};

/** The name of an environment variable; a key that was written here by mistake is refused. */
export const variable: Type<string> = {
  schema: z.string().regex(/^[A-Za-z_]\w*$/),
  expects: "the name of an environment variable, such as JUDGE_API_KEY",
};

/** One web address or several, of servers that do the same; null is none. */
export const addresses: Type<readonly string[], string | readonly string[] | null> = {
  ...names,
  expects: "an address such as http://127.0.0.1:8000, a list of addresses, or null",
};

/** A function that a TypeScript config holds: what it prints as, and where another process finds it. */
export class FunctionInFile {
  readonly path: string;
  constructor(path: string) {
    this.path = path;
  }
}

/** A reward function as a value: the function itself, or the config file that every reward process can load. */
export type GivenReward = Extract<Scorer, { kind: "function" | "config" }>;

/** The reward function itself, in a TypeScript config. */
export const rewardFunction: Type<GivenReward | null, CustomReward | null> = {
  schema: z
    .custom<CustomReward | null>((value) => value === null || typeof value === "function" || fileOf(value) !== null)
    .transform(givenReward),
  expects: "a function in a TypeScript config; a file is named by custom_reward_function.path=…",
  isOpen: true, // as --dry-run and config.json write it: {kind: config, path: FILE}
};

function givenReward(value: unknown): GivenReward | null {
  const path = fileOf(value);
  if (path !== null) return { kind: "config", path };
  // Safe: the schema above lets nothing else through, and what the function returns is checked at every call.
  return value === null ? null : { kind: "function", run: (input) => (value as CustomReward)(input, {}) };
}

/** The config file that holds a reward function; null where the value names none. */
function fileOf(value: unknown): string | null {
  if (value instanceof FunctionInFile) return value.path;
  const written = printed.safeParse(value);
  return written.success ? written.data.path : null;
}

const printed = z.strictObject({ kind: z.literal("config"), path: z.string() });
