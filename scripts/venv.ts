/**
 * The Pythons that tests and benches compare against: a virtual environment in .venv/ with python/requirements.txt,
 * and others beside it for peers with needs of their own.
 *
 *   node scripts/bootstrap.mjs venv      makes the first one if need be and prints the path of its interpreter
 *
 * Made on demand, once per content of the requirements; what pip says is shown when it does not succeed.
 */
import { spawnSync } from "node:child_process";
import { copyFileSync, existsSync, readFileSync } from "node:fs";
import { join } from "node:path";

const root = join(import.meta.dirname, "..");
const environments = {
  torch: { folder: ".venv", requirements: "requirements.txt", what: "torch and transformers; the download is large" },
  trl: { folder: ".venv-trl", requirements: "requirements-trl.txt", what: "TRL and torch; the download is large" },
  llama: { folder: ".venv-llama", requirements: "requirements-llama.txt", what: "llama.cpp, which is compiled first" },
} as const;

export type Environment = keyof typeof environments;

/** The interpreter of a virtual environment, which is made or brought up to date first. */
export function ensureVenv(environment: Environment = "torch"): string {
  const { folder: name, requirements: file, what } = environments[environment];
  const folder = join(root, name);
  const requirements = join(root, "python", file);
  const installed = join(folder, "requirements.txt");
  const python = join(folder, process.platform === "win32" ? "Scripts/python.exe" : "bin/python");
  if (existsSync(installed) && readFileSync(installed, "utf8") === readFileSync(requirements, "utf8")) return python;
  console.error(`Making ${name} with ${what}; this can take minutes …`);
  call("python3", ["-m", "venv", folder]);
  call(python, ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", requirements]);
  copyFileSync(requirements, installed); // last, so that an interrupted install is taken up again
  return python;
}

function call(command: string, args: readonly string[]): void {
  const { status, error } = spawnSync(command, args, { stdio: ["ignore", 2, 2] });
  if (error === undefined && status === 0) return;
  const why = error === undefined ? `it ended with code ${status}` : error.message;
  throw new Error(`\`${command} ${args.join(" ")}\`: ${why}. Python 3.10 or newer with venv and pip is needed.`);
}

if (import.meta.main) {
  try {
    console.log(ensureVenv());
  } catch (error) {
    console.error(error instanceof Error ? error.message : error);
    process.exitCode = 1;
  }
}
