/**
 * Runs `npm start`, `npm test` and similar commands on a fresh clone: it installs what is missing, then runs the command
 * with the Node version that this repository pins.
 *
 * Only this file runs with the machine's own Node. So it is plain JavaScript for Node 18, and it imports nothing that has
 * to be installed first.
 */
import { spawn } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { delimiter, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const root = join(dirname(fileURLToPath(import.meta.url)), "..");
const modules = join(root, "node_modules");
const isWindows = process.platform === "win32";
const pinnedNode = join(modules, "node", "bin", isWindows ? "node.exe" : "node");

const commands = {
  quickstart: [join(root, "scripts", "quickstart.ts")],
  test: [join(modules, "vitest", "vitest.mjs"), "run"],
  goldens: [join(root, "scripts", "goldens.ts")],
  "fuzz:verl": [join(root, "scripts", "fuzz.ts")],
  parity: [join(root, "scripts", "parity.ts")],
  bench: [join(root, "bench", "main.ts")],
  docs: [join(root, "scripts", "docs.ts")],
  venv: [join(root, "scripts", "venv.ts")],
};

const [name, ...rest] = process.argv.slice(2);
const command = Object.hasOwn(commands, name ?? "") ? commands[name] : null;
if (command === null) {
  console.error(`${name ?? "nothing"} is not something to run. Choose one of ${Object.keys(commands).join(", ")}.`);
  process.exit(2);
}
const missing = whatIsMissing();
if (missing !== null) await install(missing);
const path = [join(modules, ".bin"), process.env.PATH ?? ""].join(delimiter);
// `npm test` alone runs the files that tell most: see vitest.config.ts.
const isShort = name === "test" && rest.every((word) => word.startsWith("-") && word !== "--all");
const env = { ...process.env, PATH: path, TRAINYARD_TEST_SHORT: isShort ? "1" : "" };
const words = [...command, ...rest.filter((word) => name !== "test" || word !== "--all")];
passOn(await run(pinnedNode, words, { stdio: "inherit", env }));

/** Why an install is needed, or null if node_modules matches package-lock.json. */
function whatIsMissing() {
  if (!existsSync(join(modules, ".package-lock.json"))) return "the dependencies are not installed";
  if (!existsSync(pinnedNode)) return "the pinned Node is not installed";
  const wanted = packagesOf(join(root, "package-lock.json"));
  const installed = packagesOf(join(modules, ".package-lock.json"));
  for (const [path, { version, optional, os }] of Object.entries(wanted)) {
    if (path === "" || installed[path]?.version === version) continue;
    // npm also leaves out onnxruntime-node where its install script cannot reach a server; `install` skips that script.
    const isOurEngine = path === "node_modules/onnxruntime-node" && os.includes(process.platform);
    if (installed[path] === undefined && optional && !isOurEngine) continue; // a package for another system
    return `${path} is ${installed[path]?.version ?? "not there"} where package-lock.json has ${version}`;
  }
  return null;
}

function packagesOf(path) {
  return JSON.parse(readFileSync(path, "utf8")).packages;
}

/** Install the packages of package-lock.json; the output of npm is shown if it does not succeed. */
async function install(reason) {
  console.error(`Installing with npm, which takes about half a minute (${reason}) …`);
  const result = await npm(["ci"]);
  if (result.signal !== null) passOn(result);
  if (result.code === 0 && existsSync(pinnedNode)) return;
  console.error(result.text.trim());
  if (result.code === 0) {
    console.error(
      `npm was content, but ${pinnedNode} is not there: npm did not run the install script of the package "node". ` +
        "Run `npm rebuild node --foreground-scripts` to see why.",
    );
  }
  process.exit(result.code || 1);
}

async function npm(words) {
  const options = [...words, "--no-audit", "--no-fund", "--loglevel=error"];
  const own = process.env.npm_execpath ?? "";
  const [file, prefix] = /npm-cli\.c?js$/.test(own) ? [process.execPath, [own]] : ["npm", []];
  let text = "";
  const result = await run(file, [...prefix, ...options], {
    cwd: root,
    shell: isWindows && file === "npm",
    stdio: ["ignore", "pipe", "pipe"],
    // onnxruntime-node contains its CPU libraries; without this setting it also downloads those for CUDA.
    env: { ONNXRUNTIME_NODE_INSTALL: "skip", ...process.env },
    onText: (chunk) => {
      text += chunk;
    },
  });
  return { ...result, text };
}

/** Run a command until it ends. Signals are passed on to the child, and we wait until it has ended. */
function run(file, args, { onText, ...options }) {
  return new Promise((resolve) => {
    const child = spawn(file, args, options);
    const hasTerminal = process.stdin.isTTY || process.stdout.isTTY || process.stderr.isTTY;
    const forward = (signal) => {
      // A terminal sends Ctrl-C to every foreground process, so the child already has it.
      if (signal !== "SIGINT" || !hasTerminal) child.kill(signal);
    };
    const signals = ["SIGINT", "SIGTERM", "SIGHUP"];
    for (const signal of signals) process.on(signal, forward);
    const finish = (result) => {
      for (const signal of signals) process.off(signal, forward);
      resolve(result);
    };
    for (const stream of [child.stdout, child.stderr]) stream?.setEncoding("utf8").on("data", onText);
    child.once("error", (error) => {
      console.error(`${file} could not be started: ${error.message}`);
      finish({ code: 1, signal: null });
    });
    child.once("close", (code, signal) => finish({ code, signal }));
  });
}

/** End in the same way as the child: with its exit code or its signal. */
function passOn({ code, signal }) {
  if (signal === null) process.exit(code);
  process.kill(process.pid, signal);
}
