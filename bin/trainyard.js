#!/usr/bin/env node
// Starts trainyard on a Node that can run it. Plain JavaScript for Node 18, so that an old Node gets a sentence, not a
// syntax error. In a clone the TypeScript sources run as they are; the published package has only the compiled dist/.
import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import module from "node:module";
import { constants } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

const oldest = [22, 21]; // older ones do not let native code see shared memory, where the weights are
const root = dirname(dirname(fileURLToPath(import.meta.url)));

const [major, minor] = process.versions.node.split(".").map(Number);
const isNewEnough = major > oldest[0] || (major === oldest[0] && minor >= oldest[1]);
if (isNewEnough) await start();
else startOn(findNode());

async function start() {
  followLauncher();
  module.enableCompileCache(); // parsed code is kept between runs, so that --help answers at once
  const source = join(root, "src/cli/main.ts");
  const compiled = join(root, "dist/cli/main.js");
  const file = existsSync(source) ? source : compiled;
  const { main } = await import(pathToFileURL(file).href);
  process.exitCode = await main(process.argv.slice(2), process.env);
}

/**
 * End like after SIGTERM when the process that relaunched us is gone: a run must not go on unseen. The variable is not
 * for programs that we start.
 */
function followLauncher() {
  const launcher = Number(process.env.TRAINYARD_RELAUNCHED ?? 0);
  delete process.env.TRAINYARD_RELAUNCHED;
  if (launcher === 0 || process.platform === "win32") return;
  const look = setInterval(() => {
    if (process.ppid === launcher) return;
    clearInterval(look);
    process.kill(process.pid, "SIGTERM");
  }, 500);
  look.unref();
}

/** The binary that the npm package `node` carries, here or in a folder above. */
function findNode() {
  const name = process.platform === "win32" ? "node.exe" : "node";
  for (let folder = root; ; folder = dirname(folder)) {
    const candidate = join(folder, "node_modules/node/bin", name);
    if (existsSync(candidate)) return candidate;
    if (folder === dirname(folder)) return undefined;
  }
}

function startOn(node) {
  const isSecondTry = process.env.TRAINYARD_RELAUNCHED !== undefined;
  if (node === undefined || isSecondTry) {
    process.stderr.write(
      `trainyard needs Node ${oldest.join(".")} or newer, and this is ${process.versions.node}. ` +
        `Install a newer one from nodejs.org, or add one to this project: npm install node@24\n`,
    );
    process.exitCode = 2;
    return;
  }
  const env = { ...process.env, TRAINYARD_RELAUNCHED: String(process.pid) };
  const child = spawn(node, [fileURLToPath(import.meta.url), ...process.argv.slice(2)], { stdio: "inherit", env });
  // The child decides when to stop: a signal is passed on, and its exit code becomes ours.
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, () => child.kill(signal));
  child.on("error", (error) => {
    process.stderr.write(`${node} cannot be started: ${error.message}\n`);
    process.exitCode = 1;
  });
  child.on("exit", (code, signal) => process.exit(code === null ? 128 + constants.signals[signal] : code));
}
