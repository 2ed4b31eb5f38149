/** A verb that is all config: arguments to a resolved config, help and dry run on the way, then the work. */
import { homedir } from "node:os";
import type { Tree } from "../config/field.ts";
import { loadConfig } from "../config/file.ts";
import { resolve } from "../config/resolve.ts";
import type { Schema } from "../config/schema.ts";
import { info } from "../util/log.ts";
import { parseArguments } from "./arguments.ts";
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
    process.stdout.write(verbHelp(schema, summary, examples));
    return 0;
  }
  const file = await loadConfig({ ...parsed, folder: process.cwd() }, schema);
  const sources = [file.entries, parsed.overrides];
  const { config, notices } = resolve(schema, sources, { configName: file.configName, home: homedir(), env });

  if (file.file !== undefined) info(`Config: ${file.file}`);
  for (const notice of notices) info(notice);
  if (parsed.isDryRun) {
    const { stringify } = await import("yaml");
    process.stdout.write(stringify(config));
    return 0;
  }
  return withInterrupt((signal) => work(config, { signal, env }));
}
