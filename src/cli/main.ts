/**
 * The program: picks a verb, runs it, and turns what is thrown into a message and an exit code.
 *
 * Verbs are imported only when they are called, so that help and mistakes answer at once. Exit codes: 0, 1 for our own
 * errors, 2 for the user's, 130 after an interrupt.
 */
import { readFile } from "node:fs/promises";
import { messageOf, nearest, UserError } from "../util/errors.ts";
import { clearStatus } from "../util/log.ts";
import type { Call } from "./call.ts";

/** A verb: what it is for, and how to load it. */
type Verb = { readonly summary: string; load(): Promise<{ run(call: Call): Promise<number> }> };

const verbs: Readonly<Record<string, Verb>> = {
  ppo: { summary: "train by reinforcement learning: PPO, GRPO, RLOO, …", load: () => import("./ppo.ts") },
  sft: { summary: "fine-tune a model on prompts and responses or conversations", load: () => import("./sft.ts") },
  reward: { summary: "train a reward model on preference pairs", load: () => import("./reward.ts") },
  generate: { summary: "sample responses to the prompts of a file", load: () => import("./generate.ts") },
  eval: { summary: "score the responses of a file", load: () => import("./eval.ts") },
  chat: { summary: "talk to a model", load: () => import("./chat.ts") },
  data: { summary: "prepare datasets, show and check data files", load: () => import("./data.ts") },
  serve: { summary: "serve a model over HTTP, as OpenAI's API", load: () => import("./serve.ts") },
  dashboard: { summary: "show runs in the browser", load: () => import("./dashboard.ts") },
  export: { summary: "write the model of a checkpoint as a Hugging Face folder", load: () => import("./export.ts") },
  doctor: { summary: "say what this machine has and lacks for training", load: () => import("./doctor.ts") },
  completion: {
    summary: "print a script that completes commands in a shell",
    load: async () => {
      const { complete } = await import("./completion.ts");
      return { run: (call) => complete(call, verbs) };
    },
  },
};

/** Run the program; returns the exit code. */
export async function main(argv: readonly string[], env: Call["env"]): Promise<number> {
  if (!process.stdout.listeners("error").includes(quitOnClosedPipe)) process.stdout.on("error", quitOnClosedPipe);
  try {
    return await dispatch(argv, env);
  } catch (error) {
    clearStatus();
    return report(error, env);
  }
}

async function dispatch(argv: readonly string[], env: Call["env"]): Promise<number> {
  const [first, ...rest] = argv;
  if (first === undefined || first === "--help" || first === "-h" || (first === "help" && rest[0] === undefined)) {
    process.stdout.write(help());
    return 0;
  }
  if (first === "--version" || first === "-v") {
    process.stdout.write(`${(await readPackage()).version}\n`);
    return 0;
  }
  const [name, args] = first === "help" ? [rest[0] ?? "", ["--help"]] : [first, rest];
  const verb = Object.hasOwn(verbs, name) ? verbs[name] : undefined;
  if (verb === undefined) throw unknownVerb(name);
  const { run } = await verb.load();
  return run({ args, env });
}

function help(): string {
  const width = Math.max(...Object.keys(verbs).map((name) => name.length));
  const lines = Object.entries(verbs).map(([name, { summary }]) => `  ${name.padEnd(width)}  ${summary}`);
  return `trainyard: post-training for language models, in TypeScript

Usage: trainyard VERB [CONFIG] [key=value …]

Verbs
${lines.join("\n")}

trainyard VERB --help lists the keys of a verb; trainyard --version prints the version.
`;
}

function unknownVerb(name: string): UserError {
  const known = Object.keys(verbs);
  const [close] = nearest(name, known, 1);
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
