/**
 * A verb that takes a config: arguments to a resolved config, with help and dry run on the way, then the work.
 *
 * What differs between such verbs is the value that `configVerb` is given; the types of its config stay inside.
 */
import { existsSync } from "node:fs";
import { homedir } from "node:os";
import { defaultFile, loadConfig, registerFrom } from "../config/file.ts";
import { isDict } from "../config/interpolate.ts";
import { resolve } from "../config/resolve.ts";
import { formerRunFolder } from "../config/run-name.ts";
import { fieldsOf, type Schema, withRegistered } from "../config/schema.ts";
import { configPath } from "../run/names.ts";
import type { TrainContext } from "../train/context.ts";
import { messageOf, UserError } from "../util/errors.ts";
import type { Tree } from "../util/field.ts";
import { info } from "../util/log.ts";
import { type Arguments, parseArguments } from "./arguments.ts";
import { optionsOf, verbHelp } from "./help.ts";
import { withInterrupt } from "./interrupt.ts";
import type { Call, RowCheck, Verb } from "./verb.ts";

/** What such a verb is made of. */
export type ConfigVerb<T extends Tree, Config> = {
  readonly schema: Schema<T, Config>;
  /** Commands to show in its help. */
  readonly examples: readonly string[];
  /** Options of its own that take no value: their names, and what they do. */
  readonly switches?: Readonly<Record<string, string>>;
  /** How `trainyard data validate` checks rows for it. */
  readonly rows?: RowCheck;
  /** Say what a run would be: `--dry-run` calls it after it has printed the config. */
  plan?(config: Config, context: TrainContext): Promise<void>;
  /** The work; `switches` are those that were given. */
  run(config: Config, context: TrainContext & { readonly switches: ReadonlySet<string> }): Promise<void>;
};

/** Make a verb of its parts. */
export function configVerb<T extends Tree, Config>(definition: ConfigVerb<T, Config>): Verb {
  const { schema, rows = null, switches = {} } = definition;
  return {
    schema,
    rows,
    words: () => [...keysOf(schema), ...optionsOf(definition)],
    run: (call) => runVerb(definition, withSwitches(call, Object.keys(switches))),
  };
}

/** Every key of a schema as it is written before its value, those of other engines too. */
function keysOf<T extends Tree, Config>({ fields, engines = {} }: Schema<T, Config>): string[] {
  const trees: Tree[] = [fields, ...Object.values(engines).map((engine) => engine.fields)];
  return trees.flatMap((tree) => [...fieldsOf(tree).keys()].map((key) => `${key}=`));
}

type SwitchedCall = Call & { readonly switches: ReadonlySet<string> };

/** Take a verb's own switches out of its arguments. */
function withSwitches(call: Call, names: readonly string[]): SwitchedCall {
  const isSwitch = (argument: string) => names.some((name) => argument === `--${name}`);
  return {
    ...call,
    args: call.args.filter((argument) => !isSwitch(argument)),
    switches: new Set(call.args.filter(isSwitch).map((argument) => argument.slice(2))),
  };
}

async function runVerb<T extends Tree, Config>(
  definition: ConfigVerb<T, Config>,
  { args, env, summary, switches }: SwitchedCall,
): Promise<number> {
  const parsed = parseArguments(args);
  if (parsed.isHelp) {
    await registerFrom({ ...parsed, folder: process.cwd() });
    process.stdout.write(verbHelp({ ...definition, schema: withRegistered(definition.schema) }, summary));
    return 0;
  }
  const { schema } = definition;
  const { config, notices, set, file } = await read(parsed, schema, env);

  if (file !== undefined) info(`Config: ${file}`);
  for (const notice of notices) info(notice);
  if (file !== undefined) pointOutFormer(schema, config);
  if (!parsed.isDryRun) return withInterrupt((signal) => definition.run(config, { signal, env, set, switches }));

  const { stringify } = await import("yaml");
  process.stdout.write(stringify(config, { version: "1.1" })); // as config files are read
  if (!args.includes("--dry-run")) return 0; // Hydra's `--cfg job` prints the config alone
  return withInterrupt(async (signal) => {
    await checkTypes(file);
    await definition.plan?.(config, { signal, env });
  });
}

/** Say that there is a run where the same command used to keep it, and how to go on with that one. */
function pointOutFormer<T extends Tree, Config>(schema: Schema<T, Config>, config: Config): void {
  const former = formerRunFolder(schema);
  const now = isRunConfig(config) ? config.trainer.default_local_dir : former;
  if (former === null || now === former || !existsSync(configPath(former)) || existsSync(String(now))) return;
  info(
    `This run is in ${now}. ${former} has one from before config files named their runs; to go on with that one, ` +
      `add trainer.default_local_dir=${former}`,
  );
}

type RunConfig = { readonly trainer: { readonly default_local_dir: string } };

function isRunConfig(config: unknown): config is RunConfig {
  return isDict(config) && isDict(config.trainer) && typeof config.trainer.default_local_dir === "string";
}

async function read<T extends Tree, Config>(
  parsed: Arguments,
  schema: Schema<T, Config>,
  env: Call["env"],
): Promise<{ config: Config; notices: readonly string[]; set: readonly string[]; file: string | undefined }> {
  const isDefault = parsed.configPath === undefined && parsed.configName === undefined;
  let used = parsed.file ?? (isDefault ? defaultFile : undefined); // until it is known which one is
  try {
    const { entries, configName, file, note } = await loadConfig({ ...parsed, folder: process.cwd() }, schema);
    used = file;
    if (note !== undefined) info(note);
    const resolved = resolve(schema, [entries, parsed.overrides], { configName, file, home: homedir(), env });
    return { ...resolved, file };
  } catch (error) {
    // Before the error, what the compiler says about a config file that holds wrong values.
    const found = error instanceof UserError ? await typeErrorsOf(used) : "";
    throw found === "" ? error : new UserError(`${found}\n${messageOf(error)}`, { cause: error });
  }
}

async function checkTypes(file: string | undefined): Promise<void> {
  const found = await typeErrorsOf(file);
  if (found !== "") throw new UserError(found);
}

/** What the compiler says about the config file, if it is TypeScript; an empty text for nothing. */
async function typeErrorsOf(file = ""): Promise<string> {
  if (!/\.m?ts$/.test(file) || !existsSync(file)) return "";
  const { typeErrors } = await import("./type-check.ts");
  return (await typeErrors(file)).join("\n");
}
