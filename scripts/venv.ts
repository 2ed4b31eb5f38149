/**
 * The Python that tests and benches compare against: a virtual environment in .venv/ with python/requirements.txt.
 *
 *   node scripts/bootstrap.mjs venv      makes it if need be and prints the path of its interpreter
 *
 * Made on demand, once per content of the requirements; what pip says is shown when it does not succeed.
 */
import { spawnSync } from "node:child_process";
import { copyFileSync, existsSync, readFileSync } from "node:fs";
import { join } from "node:path";

const root = join(import.meta.dirname, "..");
const requirements = join(root, "python", "requirements.txt");
const folder = join(root, ".venv");
const installed = join(folder, "requirements.txt");

/** The interpreter of the virtual environment, which is made or brought up to date first. */
export function ensureVenv(): string {
  const python = join(folder, process.platform === "win32" ? "Scripts/python.exe" : "bin/python");
  if (existsSync(installed) && readFileSync(installed, "utf8") === readFileSync(requirements, "utf8")) return python;
  console.error("Making .venv with torch and transformers; the download is large and can take minutes …");
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
