/**
 * The Python that the Ray engine runs on: one that the user names, or an environment that is made on first use from
 * `python/pyproject.toml`, one for each list of dependencies. uv installs it if it is there, else pip.
 *
 * The environment is made under a temporary name and then renamed, so an interrupted install is never used.
 */
import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdir, readFile, rename, rm, stat } from "node:fs/promises";
import { homedir } from "node:os";
import { join } from "node:path";
import { codeOf, UserError } from "../../util/errors.ts";
import { temporaryName } from "../../util/files.ts";
import { pythonFolder } from "./shim.ts";

export type PythonOptions = {
  /** An interpreter that has the dependencies; absent, an environment is made. */
  readonly python?: string;
  /** Where environments are made; the user's cache folder by default. */
  readonly environments?: string;
  /** Called with each line of progress. */
  readonly onProgress?: (line: string) => void;
  /** Cancels the install and the start of an engine. */
  readonly signal?: AbortSignal;
};

const inVenv = process.platform === "win32" ? "Scripts/python.exe" : "bin/python";

/** An interpreter on which the workers run. */
export async function ensurePython(options: PythonOptions = {}): Promise<string> {
  const needs = await dependencies();
  if (options.python !== undefined) {
    await checkPython(options.python, needs);
    return options.python;
  }
  const folder = options.environments ?? join(homedir(), ".cache", "trainyard");
  const name = createHash("sha256").update(needs.join("\n")).digest("hex").slice(0, 12);
  const path = join(folder, `ray-${name}`);
  const isThere = await stat(path).then(
    () => true,
    () => false,
  );
  if (!isThere) await make(path, needs, options);
  return join(path, inVenv);
}

/** The dependencies in `python/pyproject.toml`. */
export async function dependencies(): Promise<string[]> {
  const text = await readFile(join(pythonFolder, "pyproject.toml"), "utf8");
  const list = /^dependencies = \[([^\]]*)\]/m.exec(text)?.[1] ?? "";
  return [...list.matchAll(/"([^"]+)"/g)].map(([, need]) => need!);
}

/** Throws a `UserError` if an interpreter does not exist, is too old, or lacks a dependency. */
async function checkPython(python: string, needs: readonly string[]): Promise<void> {
  const { code, out } = await run(python, ["-c", CHECK, ...needs]).catch((error: unknown) => {
    throw new UserError(
      `The Python ${python} cannot be started (${codeOf(error)}). Name another one, or none: then an environment ` +
        "with everything that is needed is made.",
      { cause: error },
    );
  });
  if (code === 0) return;
  const wrong = out.trim().split("\n").at(-1) ?? "";
  throw new UserError(
    `The Python ${python} does not have what the Ray engine needs: ${wrong} Install it there with ` +
      `\`pip install ${needs.join(" ")}\`, or name no Python: then an environment with everything is made.`,
  );
}

/** Prints one sentence and exits with 1 if something is wrong. */
const CHECK = `
import sys
from importlib.metadata import PackageNotFoundError, version
if sys.version_info < (3, 11):
    sys.exit(print("it is Python " + sys.version.split()[0] + ", and 3.11 or newer is needed.") or 1)
for need in sys.argv[1:]:
    name, _, wanted = need.partition("==")
    try:
        found = version(name)
    except PackageNotFoundError:
        sys.exit(print(name + " is not installed.") or 1)
    if found.split("+")[0] != wanted:
        sys.exit(print(name + " is " + found + " there, and " + wanted + " is needed.") or 1)
`;

async function make(path: string, needs: readonly string[], options: PythonOptions): Promise<void> {
  const hasUv = await run("uv", ["--version"]).then(
    ({ code }) => code === 0,
    () => false,
  );
  const temporary = temporaryName(path);
  options.onProgress?.(
    `Making a Python environment for the Ray engine in ${path} with ${hasUv ? "uv" : "pip"}; some gigabytes …`,
  );
  try {
    await mkdir(temporary, { recursive: true });
    const python = join(temporary, inVenv);
    const steps: readonly (readonly [string, readonly string[]])[] = hasUv
      ? [
          ["uv", ["venv", "--python", ">=3.11", "--allow-existing", temporary]],
          ["uv", ["pip", "install", "--python", python, ...needs]],
        ]
      : [
          ["python3", ["-m", "venv", temporary]],
          [python, ["-m", "pip", "install", "--disable-pip-version-check", "--progress-bar=off", ...needs]],
        ];
    for (const [command, args] of steps) await must(command, args, options);
    await checkPython(python, needs);
    await rename(temporary, path).catch((error: unknown) => {
      if (codeOf(error) !== "ENOTEMPTY" && codeOf(error) !== "EEXIST") throw error; // another process made it first
    });
  } finally {
    await rm(temporary, { recursive: true, force: true });
  }
}

async function must(command: string, args: readonly string[], options: PythonOptions): Promise<void> {
  const { code, out } = await run(command, args, options).catch((error: unknown) => ({ code: -1, out: codeOf(error) }));
  options.signal?.throwIfAborted();
  if (code === 0) return;
  const last = out.trim().split("\n").slice(-3).join("; ");
  throw new UserError(
    `The environment of the Ray engine could not be made: \`${command} ${args.slice(0, 3).join(" ")} …\` ended with ` +
      `${last}. Install Python 3.11 or newer with venv and pip (or uv), check the network, and run the same command again.`,
  );
}

/** Run a command; `onProgress` gets its output line by line. */
function run(
  command: string,
  args: readonly string[],
  { onProgress, signal }: PythonOptions = {},
): Promise<{ code: number | null; out: string }> {
  return new Promise((resolve, reject) => {
    const stdio = ["ignore", "pipe", "pipe"] as const;
    const child = spawn(command, args, { stdio: [...stdio], windowsHide: true, ...(signal && { signal }) });
    let out = "";
    let line = "";
    const read = (bytes: Buffer) => {
      out = (out + bytes).slice(-20_000);
      const lines = (line + bytes).split("\n");
      line = lines.pop() ?? "";
      for (const whole of lines) onProgress?.(whole);
    };
    child.stdout.on("data", read);
    child.stderr.on("data", read);
    child.once("error", reject);
    child.once("close", (code) => resolve({ code, out }));
  });
}
