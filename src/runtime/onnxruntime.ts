/**
 * The package onnxruntime-node: where npm has installed it, or in a folder of our own.
 *
 * On Linux its install script downloads libraries for CUDA. If that does not succeed, npm up to version 11 leaves out the
 * whole package without a message, because it is an optional dependency. The package itself contains all that the other
 * devices need. So it is then installed without its script, once, under the user's cache folder. It is installed under a
 * temporary name and then renamed, so an interrupted install is never used.
 */
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { homedir } from "node:os";
import { dirname, join } from "node:path";
import { codeOf, messageOf, UserError } from "../util/errors.ts";
import { temporaryName } from "../util/files.ts";
import { info } from "../util/log.ts";

const require = createRequire(import.meta.url);

/** Its exports. */
export function loadOnnxruntime(): typeof import("onnxruntime-node") {
  return require(onnxruntimeFolder());
}

/** Its folder; it is installed first if npm has left it out. */
export function onnxruntimeFolder(): string {
  try {
    return dirname(require.resolve("onnxruntime-node/package.json"));
  } catch (error) {
    if (codeOf(error) !== "MODULE_NOT_FOUND") throw error;
  }
  const { optionalDependencies }: { optionalDependencies: Record<"onnxruntime-node", string> } = JSON.parse(
    readFileSync(new URL("../../package.json", import.meta.url), "utf8"),
  );
  const version = optionalDependencies["onnxruntime-node"].replace(/^\D+/, "");
  const home = join(homedir(), ".cache", "trainyard", `onnxruntime-node-${version}`);
  if (!existsSync(home)) install(home, version);
  return join(home, "node_modules", "onnxruntime-node");
}

function install(home: string, version: string): void {
  info(
    `npm has left out onnxruntime-node, because its install script could not download libraries for CUDA. Installing ` +
      `it without them into ${home}, once; this takes about half a minute …`,
  );
  const temporary = temporaryName(home);
  try {
    mkdirSync(temporary, { recursive: true });
    const words = ["install", `onnxruntime-node@${version}`, "--prefix", temporary, "--ignore-scripts"];
    const quietly = ["--no-audit", "--no-fund", "--loglevel=error"];
    const options = { cwd: temporary, encoding: "utf8", shell: process.platform === "win32" } as const;
    const { status, error, stderr } = spawnSync("npm", [...words, ...quietly], options);
    if (status !== 0) throw error ?? new Error(/^npm error code (\S+)/m.exec(stderr)?.[1] ?? stderr.trim());
    renameSync(temporary, home);
  } catch (error) {
    rmSync(temporary, { recursive: true, force: true });
    if (existsSync(home)) return; // another process was faster
    throw new UserError(
      `The package onnxruntime-node is not installed, and npm could not install it into ${home} (${messageOf(error)}). ` +
        "Install it in your project with: npm install --ignore-scripts",
      { cause: error },
    );
  }
}
