/** How the sides of a bench are started: ours on this Node, the peers on Pythons that are installed on demand. */
import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { type Environment, ensureVenv } from "../scripts/venv.ts";
import { codeOf, UserError } from "../src/util/errors.ts";
import type { Command } from "./side.ts";

/** A side of ours, compiled like the package: running TypeScript directly takes tens of megabytes more. */
export function ourCommand(file: string): Command {
  compiled ??= compile();
  return { file: process.execPath, args: [join(compiled, "bench", file.replace(/\.ts$/, ".js"))] };
}

/** A side of ours from its source, for one that needs files beside the source and whose memory is not measured. */
export function sourceCommand(file: string): Command {
  return { file: process.execPath, args: [join(import.meta.dirname, file)] };
}

let compiled: string | undefined;

function compile(): string {
  const root = join(import.meta.dirname, "..");
  const { status, stdout } = spawnSync(join(root, "node_modules/.bin/tsc"), ["-p", import.meta.dirname]);
  if (status !== 0) throw new Error(`The bench does not compile:\n${stdout}`);
  return join(root, ".cache/compiled");
}

export function peerCommand(python: string, file: string): Command {
  const env = { HF_HUB_OFFLINE: "1", TRANSFORMERS_VERBOSITY: "error", PYTHONWARNINGS: "ignore" };
  return { file: python, args: [join(import.meta.dirname, "peers", file)], env };
}

/** The variables that may name a Python with what a peer needs; the first that is set counts. */
const variables: Record<Environment, readonly string[]> = {
  torch: ["TRAINYARD_PYTHON", "TRAINYARD_TEST_PYTHON"],
  llama: ["TRAINYARD_LLAMA_PYTHON"],
  trl: ["TRAINYARD_TRL_PYTHON"],
  vllm: ["TRAINYARD_VLLM_PYTHON"],
};

/** A Python with what the peer needs: the one that the environment names, else our own. */
export function pythonOf(environment: Environment): string {
  const variable = variables[environment].find((name) => process.env[name]);
  if (variable === undefined) return ensureVenv(environment);
  const python = process.env[variable] ?? "";
  const { error } = spawnSync(python, ["--version"]);
  if (error === undefined) return python;
  throw new UserError(
    `${variable} is "${python}", which cannot be started (${codeOf(error)}). Name a Python that has the packages, or ` +
      "unset the variable, and one is installed.",
  );
}
