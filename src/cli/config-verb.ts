/** A verb that is all config: arguments to a resolved config, help and dry run on the way, then the work. */
import { existsSync } from "node:fs";
import { homedir } from "node:os";
import { defaultFile, loadConfig, registerFrom } from "../config/file.ts";
import { resolve } from "../config/resolve.ts";
import { type Schema, withRegistered } from "../config/schema.ts";
import { messageOf, UserError } from "../util/errors.ts";
import type { Tree } from "../util/field.ts";
import { info } from "../util/log.ts";
import { type Arguments, parseArguments } from "./arguments.ts";
import type { Call } from "./call.ts";
import { verbHelp } from "./help.ts";
import { withInterrupt } from "./interrupt.ts";

/** What a verb adds to its schema. */
export type ConfigVerb<Config> = {
  readonly summary: string;
  readonly examples: readonly string[];
  work(config: Config, context: { readonly signal: AbortSignal; readonly env: Call["env"] }): Promise<void>;
};

/** Run the verb; returns the exit code. */
export async function runVerb<T extends Tree, Config>(
  { args, env }: Call,
  schema: Schema<T, Config>,
  { summary, examples, work }: ConfigVerb<Config>,
): Promise<number> {
  const parsed = parseArguments(args);
  if (parsed.isHelp) {
    await registerFrom({ ...parsed, folder: process.cwd() });
    process.stdout.write(verbHelp(withRegistered(schema), summary, examples));
    return 0;
  }
  const { config, notices, file } = await read(parsed, schema, env).catch((error) => withTypes(parsed, error));

  if (file !== undefined) info(`Config: ${file}`);
  for (const notice of notices) info(notice);
  if (!parsed.isDryRun) return withInterrupt((signal) => work(config, { signal, env }));

  const { stringify } = await import("yaml");
  process.stdout.write(stringify(config, { version: "1.1" })); // as config files are read
  if (!args.includes("--dry-run")) return 0; // Hydra's `--cfg job` prints the config alone
  return withInterrupt(async (signal) => {
    await checkTypes(parsed);
    const { preview } = await import("./dry-run.ts");
    await preview(schema.verb, config, { signal, env });
  });
}

async function read<T extends Tree, Config>(
  parsed: Arguments,
  schema: Schema<T, Config>,
  env: Call["env"],
): Promise<{ config: Config; notices: readonly string[]; file: string | undefined }> {
  const { entries, configName, file } = await loadConfig({ ...parsed, folder: process.cwd() }, schema);
  const resolved = resolve(schema, [entries, parsed.overrides], { configName, home: homedir(), env });
  return { ...resolved, file };
}

/** Add what the compiler says about a config file that could not be read or holds wrong values. */
async function withTypes(parsed: Arguments, error: unknown): Promise<never> {
  const said = error instanceof UserError ? await compilerSays(parsed) : "";
  throw said === "" ? error : new UserError(`${said}\n${messageOf(error)}`, { cause: error });
}

async function checkTypes(parsed: Arguments): Promise<void> {
  const said = await compilerSays(parsed);
  if (said !== "") throw new UserError(said);
}

async function compilerSays(parsed: Arguments): Promise<string> {
  const isDefault = parsed.configPath === undefined && parsed.configName === undefined;
  const file = parsed.file ?? (isDefault && existsSync(defaultFile) ? defaultFile : "");
  if (!/\.m?ts$/.test(file) || !existsSync(file)) return "";
  const { typeErrors } = await import("./type-check.ts");
  return (await typeErrors(file)).join("\n");
}
