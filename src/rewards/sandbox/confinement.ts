/**
 * How an interpreter's process is started, so that it can do very little even if a program takes control of it.
 *
 * Node's permission model lets it read the files of the interpreter, and allows no writing, no other processes, threads,
 * addons or inspector. It has no environment variables and no code from strings. Where there is a POSIX shell, its memory
 * and its processor time are limited, so that no process stays behind for long. The permission model of Node 22 and 24
 * does not cover the network: `runner.ts` removes it, and where possible the process gets an empty network of its own.
 */
import { realpathSync } from "node:fs";
import { findPackageJSON } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { UserError } from "../../util/errors.ts";
import { siblingModule } from "../../util/sibling-module.ts";
import type { Interpreter } from "./protocol.ts";

/** A command with its arguments, and the module that the process loads its interpreter from. */
export type Confined = { readonly command: string; readonly args: readonly string[]; readonly module: string };

/** Seconds of processor time after which the system ends the process; the sandbox replaces it long before. */
export const CPU_SECONDS = 1200;
/** What the process needs besides the program's memory: Node itself, its compiled code, the copy of the memory. */
const OWN_MB = 2048;

/** Each with the module to load, and the packages that this module needs in turn. */
const packages: Record<Interpreter, { module: string; path: readonly (readonly [string, number])[] }> = {
  python: { module: "pyodide.mjs", path: [["pyodide", 0]] },
  javascript: {
    module: "dist/index.mjs",
    path: [
      ["quickjs-emscripten", 0],
      ["quickjs-emscripten-core", 1],
      ["@jitl/quickjs-wasmfile-release-sync", 1],
      ["@jitl/quickjs-wasmfile-release-asyncify", 1],
      ["@jitl/quickjs-wasmfile-debug-sync", 1],
      ["@jitl/quickjs-wasmfile-debug-asyncify", 1],
      ["@jitl/quickjs-ffi-types", 2],
    ],
  },
};

/**
 * Limits, then the process itself. Recursion in Python goes through C, which takes far more stack than Node allows by
 * default. Where the system allows every user an empty network namespace (mostly Linux), the process gets one.
 */
const POSIX = `
ulimit -c 0 2>/dev/null
ulimit -t ${CPU_SECONDS} 2>/dev/null
ulimit -d "$1" 2>/dev/null
shift
if ulimit -s 65500 2>/dev/null; then stack=60000; else stack=984; fi
if unshare -rn true 2>/dev/null; then exec env -i unshare -rn "$0" --stack-size=$stack "$@"; fi
exec env -i "$0" --stack-size=$stack "$@"
`;

/** The command that starts an interpreter with this memory limit for its programs. */
export function confine(interpreter: Interpreter, memoryMb: number): Confined {
  const runner = realpathSync(fileURLToPath(siblingModule("runner", import.meta.url)));
  const ownPackage = findPackageJSON(import.meta.url); // says that our files are modules
  const { folders, home } = packageFolders(interpreter);
  const args = [
    "--permission",
    ...[dirname(runner), ...folders].map((folder) => `--allow-fs-read=${join(folder, "*")}`),
    ...(ownPackage === undefined ? [] : [`--allow-fs-read=${realpathSync(ownPackage)}`]),
    "--disallow-code-generation-from-strings",
    "--disable-proto=delete",
    "--no-addons",
    "--no-warnings",
    "--max-old-space-size=512",
    runner,
  ];
  const module = pathToFileURL(join(home, packages[interpreter].module)).href;
  if (process.platform === "win32") return { command: process.execPath, args, module };
  const dataKb = String((memoryMb + OWN_MB) * 1024);
  return { command: "/bin/sh", args: ["-c", POSIX, process.execPath, dataKb, ...args], module };
}

/** The folders of an interpreter's packages, with links resolved too, and the first of them. */
function packageFolders(interpreter: Interpreter): { folders: ReadonlySet<string>; home: string } {
  const folders = new Set<string>();
  const homes: string[] = [];
  for (const [name, depth] of packages[interpreter].path) {
    // A package is looked for from the one that needs it: it may be in that package's own folder.
    const needer = depth === 0 ? import.meta.url : pathToFileURL(join(homes[depth - 1] ?? "", "package.json")).href;
    const folder = packageFolder(name, needer);
    homes.push(realpathSync(folder));
    folders.add(folder).add(realpathSync(folder));
  }
  return { folders, home: homes[0] ?? "" };
}

function packageFolder(name: string, needer: string): string {
  const help = `The package ${name}, which runs the code of models, is not installed. Run: npm install`;
  try {
    const file = findPackageJSON(name, needer);
    if (file !== undefined) return dirname(file);
  } catch (cause) {
    throw new UserError(help, { cause });
  }
  throw new UserError(help);
}
