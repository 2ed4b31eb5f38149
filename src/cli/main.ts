/**
 * The program: finds the verb in the table, runs it, and turns what is thrown into a message and an exit code.
 *
 * Exit codes: 0, 1 for our own errors, 2 for the user's, 130 after an interrupt.
 */
import { readFile } from "node:fs/promises";
import { messageOf, nearest, UserError } from "../util/errors.ts";
import { clearStatus } from "../util/log.ts";
import type { Call, Verbs } from "./verb.ts";
import { verbs } from "./verbs.ts";

/** Run the program; returns the exit code. */
export async function main(argv: readonly string[], env: Call["env"], table: Verbs = verbs): Promise<number> {
  if (!process.stdout.listeners("error").includes(quitOnClosedPipe)) process.stdout.on("error", quitOnClosedPipe);
  try {
    return await dispatch(argv, env, table);
  } catch (error) {
    clearStatus();
    return report(error, env);
  }
}

async function dispatch(argv: readonly string[], env: Call["env"], table: Verbs): Promise<number> {
  const [first, ...rest] = argv;
  if (first === undefined || first === "--help" || first === "-h" || (first === "help" && rest[0] === undefined)) {
    process.stdout.write(help(table));
    return 0;
  }
  if (first === "--version" || first === "-v") {
    process.stdout.write(`${(await readPackage()).version}\n`);
    return 0;
  }
  const [name, args] = first === "help" ? [rest[0] ?? "", ["--help"]] : [first, rest];
  const entry = Object.hasOwn(table, name) ? table[name] : undefined;
  if (entry === undefined) throw unknownVerb(name, Object.keys(table));
  const { verb } = await entry.load();
  return verb.run({ args, env, summary: entry.summary, verbs: table });
}

function help(table: Verbs): string {
  const width = Math.max(...Object.keys(table).map((name) => name.length));
  const lines = Object.entries(table).map(([name, { summary }]) => `  ${name.padEnd(width)}  ${summary}`);
  return `trainyard: post-training for language models, in TypeScript

Usage: trainyard VERB [CONFIG] [key=value …]

Verbs
${lines.join("\n")}

trainyard VERB --help lists the keys of a verb; trainyard --version prints the version.
`;
}

function unknownVerb(name: string, known: readonly string[]): UserError {
  const [close] = nearest(name, name.startsWith("-") ? ["--help", "--version"] : known, 1);
  const guess = close === undefined ? "" : ` Did you mean ${close}?`;
  const what = name.startsWith("-") ? "option" : name.includes("=") ? "verb (a verb comes before the keys)" : "verb";
  return new UserError(`\`${name}\` is no ${what} of trainyard.${guess} The verbs are: ${known.join(", ")}.`);
}

async function report(error: unknown, env: Call["env"]): Promise<number> {
  if (error instanceof UserError) {
    process.stderr.write(`${error.message}\n`);
    return 2;
  }
  const { version, bugs } = await readPackage();
  const isDebug = env.TRAINYARD_DEBUG === "1";
  const stack = error instanceof Error && error.stack !== undefined ? error.stack : messageOf(error);
  process.stderr.write(
    `${isDebug ? stack : messageOf(error)}\n\n` +
      `This is a bug in trainyard ${version}. Please report it ${bugs === undefined ? "to the project" : `at ${bugs}`} with the command` +
      `${isDebug ? " and the lines above" : "; TRAINYARD_DEBUG=1 before it prints where it happened"}.\n`,
  );
  return 1;
}

/** The package's own description; the same relative path from src/cli and from dist/cli. */
async function readPackage(): Promise<{ version: string; bugs: string | undefined }> {
  const text = await readFile(new URL("../../package.json", import.meta.url), "utf8");
  const { version, bugs }: { version: string; bugs?: { url?: string } } = JSON.parse(text);
  return { version, bugs: bugs?.url };
}

/** `trainyard … | head` closes our output early; that is no error. */
function quitOnClosedPipe(error: NodeJS.ErrnoException): void {
  if (error.code !== "EPIPE") throw error;
  process.exit(0);
}
