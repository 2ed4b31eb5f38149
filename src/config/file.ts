/**
 * Config files of every kind: Hydra-style YAML, JSON, and TypeScript with `defineConfig` or one of its siblings.
 *
 * A TypeScript config is plain data that the compiler checks; a key that takes a function may hold one. Node runs the
 * file as it is.
 */
import { existsSync } from "node:fs";
import { extname, join, resolve } from "node:path";
import { messageOf, UserError } from "../util/errors.ts";
import { importFile } from "../util/import-file.ts";
import { definers, verbOf } from "./define-config.ts";
import { entriesOf, type Loaded, readConfig } from "./entries.ts";
import { isDict } from "./interpolate.ts";
import { FunctionInFile } from "./ppo/values.ts";
import type { AnySchema } from "./schema.ts";

/** The file that is read when no file is named. */
export const defaultFile = "trainyard.config.ts";

/** Which config to read. */
export type Request = {
  /** A file that is an argument of the command. */
  readonly file?: string | undefined;
  /** Hydra's `--config-path`: a folder. */
  readonly configPath?: string | undefined;
  /** Hydra's `--config-name`: a file in that folder, with or without `.yaml`, or a config of verl. */
  readonly configName?: string | undefined;
  /** Where relative paths start. */
  readonly folder: string;
};

const kinds: Readonly<Record<string, (file: string, schema: AnySchema) => Promise<Loaded>>> = {
  ".yaml": loadYaml,
  ".yml": loadYaml,
  ".json": loadJson,
  ".ts": loadModule,
  ".mts": loadModule,
  ".js": loadModule,
  ".mjs": loadModule,
};

/** Whether a command-line argument names a config file. */
export function isConfigFile(argument: string): boolean {
  return !argument.includes("=") && Object.hasOwn(kinds, extname(argument));
}

/** A config that was read: its file, and a note about a file that was left alone. */
export type LoadedConfig = Loaded & { readonly file?: string; readonly note?: string };

/** Read a config; where none is named, `trainyard.config.ts` if it exists and is not one of another verb. */
export async function loadConfig(request: Request, schema: AnySchema): Promise<LoadedConfig> {
  const { file, configPath, configName, folder } = request;
  if (file !== undefined && (configPath !== undefined || configName !== undefined)) {
    throw new UserError(
      `Both ${file} and ${configName === undefined ? "--config-path" : "--config-name"} name a config. Keep one of them.`,
    );
  }
  if (file !== undefined) return checkVerb(await load(resolve(folder, file), file, schema), schema);
  if (configPath === undefined && configName === undefined) return await loadDefault(folder, schema);
  const name = configName ?? Object.keys(schema.configs)[0] ?? "";
  const named = name.replace(/\.ya?ml$/, "");
  const path = join(configPath ?? "", extname(name) === ".yml" ? name : `${named}.yaml`);
  if (existsSync(resolve(folder, path))) return load(resolve(folder, path), path, schema);
  if (Object.hasOwn(schema.configs, named)) return { entries: [], configName: named };
  throw new UserError(
    `There is no config file ${path}, and the configs that need no file are ${Object.keys(schema.configs).join(", ")}. ` +
      "Give the path of a file, or --config-path=FOLDER --config-name=NAME.",
  );
}

/** The file that is read when no file is named. One of another verb is left alone. */
async function loadDefault(folder: string, schema: AnySchema): Promise<LoadedConfig> {
  if (!existsSync(join(folder, defaultFile))) return { entries: [] };
  const loaded = await load(join(folder, defaultFile), defaultFile, schema);
  if (isFor(loaded, schema)) return loaded;
  return {
    entries: [],
    note: `${defaultFile} is a config of \`trainyard ${loaded.verb}\`, so \`trainyard ${schema.verb}\` does not read it.`,
  };
}

/** Refuse a file that was named and is for another verb. */
function checkVerb(loaded: Loaded & { readonly file: string }, schema: AnySchema): LoadedConfig {
  if (isFor(loaded, schema)) return loaded;
  const { verb, file } = loaded;
  const definer = definers[schema.verb];
  throw new UserError(
    `${file} is a config of \`trainyard ${verb}\`, and this is \`trainyard ${schema.verb}\`. ` +
      `Run trainyard ${verb} ${file}, or write a config for \`${schema.verb}\`${definer === undefined ? "" : ` with \`${definer}\``}.`,
  );
}

function isFor({ verb = null }: Loaded, schema: AnySchema): boolean {
  return verb === null || verb === schema.verb;
}

/**
 * Import the config file that was asked for, if it is a program, for what it registers: `--help` shows its keys. A file
 * that cannot be loaded registers nothing; a run says why.
 */
export async function registerFrom({ file, configPath, configName, folder }: Request): Promise<void> {
  const named = file ?? (configPath === undefined && configName === undefined ? defaultFile : "");
  const path = resolve(folder, named);
  if (kinds[extname(path)] === loadModule && existsSync(path)) await importFile(path).catch(() => undefined);
}

async function load(path: string, shown: string, schema: AnySchema): Promise<Loaded & { file: string }> {
  const read = kinds[extname(path)];
  if (read === undefined)
    throw new UserError(`${shown} is not a config file: its name ends in none of ${Object.keys(kinds).join(", ")}.`);
  return { ...(await read(path, schema)), file: shown };
}

/** The YAML parser is loaded only when there is YAML to read. */
async function loadYaml(file: string, schema: AnySchema): Promise<Loaded> {
  const yaml = await import("./yaml.ts");
  return yaml.loadYaml(file, schema);
}

async function loadJson(file: string): Promise<Loaded> {
  const text = await readConfig(file);
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw new UserError(`${file} is not JSON: ${messageOf(error)}.`, { cause: error });
  }
  if (!isDict(value)) throw new UserError(`${file} does not hold an object. Write {"data": {…}, "model": {…}}.`);
  return { entries: entriesOf(value, () => `in ${file}`) };
}

async function loadModule(file: string): Promise<Loaded> {
  await readConfig(file);
  let module: { readonly default?: unknown };
  try {
    module = await importFile(file);
  } catch (error) {
    const { line, excerpt } = placeIn(file, error);
    throw new UserError(`${file}${line} cannot be loaded: ${messageOf(error)}${excerpt}`, { cause: error });
  }
  if (!isDict(module.default)) {
    throw new UserError(`${file} has no default export that is a config. Write: export default defineConfig({ … });`);
  }
  // Only the file of a function is kept: the processes that call it load it from there.
  const entries = entriesOf(module.default, () => `in ${file}`).map((entry) =>
    typeof entry.value === "function" ? { ...entry, value: new FunctionInFile(file) } : entry,
  );
  return { entries, verb: verbOf(module.default) };
}

/** The line of a file that an error is about, as `:3`; for a syntax error also the text of the line, with a mark below. */
function placeIn(file: string, error: unknown): { line: string; excerpt: string } {
  const stack = error instanceof Error ? (error.stack ?? "").split("\n") : [];
  const about = stack.find((it) => it.includes(`${file}:`));
  const line =
    about === undefined ? undefined : /^:\d+/.exec(about.slice(about.indexOf(`${file}:`) + file.length))?.[0];
  const mark = stack[0]?.startsWith(`${file}:`) === true ? stack.findIndex((it) => /^\s*\^+\s*$/.test(it)) : -1;
  return { line: line ?? "", excerpt: mark < 2 ? "" : `\n${stack[mark - 1]}\n${stack[mark]}` };
}
