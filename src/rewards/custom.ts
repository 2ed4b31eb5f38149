/**
 * Finds and loads a reward function: an export of a file, the function in a config file, or the built-in scorers.
 * Importing a file runs it, so this happens inside a worker process. Whatever goes wrong becomes one message.
 */
import { spawnSync } from "node:child_process";
import { existsSync, statSync } from "node:fs";
import { extname, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { messageOf, nearest, UserError } from "../util/errors.ts";
import { importFile, moduleExtensions } from "../util/import-file.ts";
import { describeThrown } from "../workers/result.ts";
import type { RewardInput } from "./reward.ts";

/** A file with a reward function: `custom_reward_function.path`, `.name` and `.reward_kwargs`. */
export type RewardFile = {
  readonly kind: "file";
  /** The config key above these, for messages; `custom_reward_function` if absent. */
  readonly key?: string;
  readonly path: string;
  /** The export to call; `compute_score` if absent, and the default export if there is no such name. */
  readonly name?: string;
  /** Goes to the function as its second argument, in Python as keywords. */
  readonly kwargs?: Readonly<Record<string, unknown>>;
  /** The function takes a list of samples and returns a list of rewards (the manager `batch`). */
  readonly isBatch?: boolean;
};

/** Where a reward function is; data that can be sent to another process. */
export type RewardSource =
  /** A built-in scorer: the one of that name, or that of the sample's data source. */
  | { readonly kind: "builtin"; readonly name?: string }
  | RewardFile
  /** A config file whose `custom_reward_function` is the function itself. */
  | { readonly kind: "config"; readonly path: string };

/** A reward function that is ready to be called. What it returns is not checked yet. */
export type LoadedReward = {
  /** With one sample, or with several if `isBatch`. */
  run(inputs: readonly RewardInput[]): unknown;
  readonly isBatch: boolean;
  /** The user's file, whose lines messages name. */
  readonly file: string | null;
};

/** The name of a reward function in its file, as in verl. */
export const DEFAULT_NAME = "compute_score";

/** Whether a reward file is Python's. */
export const isPython = (path: string): boolean => extname(path).toLowerCase() === ".py";

/** The config key of a reward file. */
export const CUSTOM_KEY = "custom_reward_function";

/** Check a reward file as far as possible without running it. */
export function checkRewardFile({ path, key = CUSTOM_KEY }: Pick<RewardFile, "path" | "key">): void {
  const file = resolve(path);
  if (!existsSync(file))
    throw new UserError(`\`${key}.path\` is ${path}, and there is no such file${file === path ? "" : ` (${file})`}.`);
  if (statSync(file).isDirectory())
    throw new UserError(`\`${key}.path\` is ${path}, which is a folder. Name the file in it.`);
  if (!isPython(path) && !moduleExtensions.includes(extname(path)))
    throw new UserError(
      `\`${key}.path\` is ${path}. A reward file is TypeScript, JavaScript or Python: its name ends in ` +
        `${[...moduleExtensions, ".py"].join(", ")}.`,
    );
}

/** Load a reward function into this process. */
export async function loadReward(source: RewardSource): Promise<LoadedReward> {
  switch (source.kind) {
    case "builtin":
      return await loadBuiltin(source.name);
    case "file":
      return await loadFile(source);
    case "config":
      return await loadFromConfig(source.path);
    default:
      return source satisfies never;
  }
}

/** A function that is already loaded. */
export function givenReward(run: (input: RewardInput) => unknown, file: string | null = null): LoadedReward {
  return { run: ([input]) => run(input as RewardInput), isBatch: false, file }; // a call has at least one sample
}

/** The scorers that come with the program. */
async function loadBuiltin(name?: string): Promise<LoadedReward> {
  const { builtinScore } = await import("./scorers.ts");
  return givenReward((input) => builtinScore(input, name === undefined ? {} : { name }));
}

async function loadFile(source: RewardFile): Promise<LoadedReward> {
  const { path, kwargs = {}, isBatch = false } = source;
  checkRewardFile(source);
  const reward = exportOf(await importUserFile(path), source);
  return isBatch
    ? { run: (inputs) => reward(inputs, kwargs), isBatch, file: resolve(path) }
    : givenReward((input) => reward(input, kwargs), resolve(path));
}

async function loadFromConfig(path: string): Promise<LoadedReward> {
  const { default: config } = await importUserFile(path);
  const reward = member(config, "custom_reward_function") ?? member(member(config, "reward"), "custom_reward_function");
  if (typeof reward !== "function")
    throw new UserError(`${path}: \`custom_reward_function\` of the default export is not a function.`);
  return givenReward((input) => reward(input, {}), resolve(path));
}

type Exports = Readonly<Record<string, unknown>>;
type AnyFunction = (...args: readonly unknown[]) => unknown;

/** Import a file of the user; a mistake in it becomes a message that names the file and the line. */
export async function importUserFile(path: string): Promise<Exports> {
  try {
    return await importFile<Exports>(resolve(path));
  } catch (error) {
    if (!(error instanceof SyntaxError))
      throw new UserError(`${path} cannot be loaded: it threw ${describeThrown(error, resolve(path))}.`);
    throw new UserError(`${placeOf(error, path)} does not compile: ${messageOf(error)}.`);
  }
}

/** Most syntax errors have `file:line` at the start of their stack; for those in plain JavaScript `node --check` has it. */
function placeOf(error: SyntaxError, path: string): string {
  const file = resolve(path);
  const [, where, line] = PLACE.exec(error.stack ?? "") ?? PLACE.exec(syntaxCheck(file)) ?? [];
  if (where === undefined || line === undefined) return path;
  const broken = where.startsWith("file:") ? fileURLToPath(where) : where;
  return `${broken === file ? path : broken}, line ${line}`;
}

const PLACE = /^(\S.*):(\d+)\n/;

function syntaxCheck(file: string): string {
  return spawnSync(process.execPath, ["--check", file], { encoding: "utf8", timeout: 10_000 }).stderr;
}

function exportOf(exports: Exports, source: RewardFile): AnyFunction {
  const { path, name = DEFAULT_NAME } = source;
  const value = exports[name];
  if (typeof value === "function") return (...args) => value(...args);
  if (Object.hasOwn(exports, name))
    throw new UserError(`${path}: the export \`${name}\` is a ${typeof value}, not a function.`);
  const fallback = exports.default;
  if (name === DEFAULT_NAME && typeof fallback === "function") return (...args) => fallback(...args);
  const isOfCommonJs = (it: string) => it === "module.exports" || (it === "default" && typeof fallback !== "function");
  throw noExport(
    source,
    Object.keys(exports).filter((it) => !isOfCommonJs(it)),
  );
}

/** The error for a name that a reward file does not have. */
export function noExport(source: RewardFile, names: readonly string[]): UserError {
  const { path, name = DEFAULT_NAME, key = CUSTOM_KEY } = source;
  const close = nearest(name, names);
  const hint = close.length === 0 ? "" : `Did you mean ${close.map((it) => `\`${it}\``).join(" or ")}? `;
  const has = names.length === 0 ? "It exports nothing." : `It exports ${names.map((it) => `\`${it}\``).join(", ")}.`;
  return new UserError(`${path} has no export \`${name}\` (\`${key}.name\`). ${hint}${has}`);
}

function member(value: unknown, key: string): unknown {
  return typeof value === "object" && value !== null ? Reflect.get(value, key) : undefined;
}
