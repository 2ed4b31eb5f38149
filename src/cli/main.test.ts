import { spawn, spawnSync } from "node:child_process";
import { copyFileSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { afterAll, describe, expect, test } from "vitest";

const launcher = fileURLToPath(new URL("../../bin/trainyard.js", import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "trainyard-cli-"));
afterAll(() => rmSync(folder, { recursive: true }));

function trainyard(...args: readonly string[]) {
  const started = performance.now();
  const { status, stdout, stderr } = spawnSync(process.execPath, [launcher, ...args], {
    encoding: "utf8",
    cwd: folder,
  });
  return { status, stdout, stderr, ms: performance.now() - started };
}

test("help and version are answered on stdout with exit code 0", () => {
  for (const args of [[], ["--help"], ["-h"], ["help"]])
    expect(trainyard(...args)).toMatchObject({ status: 0, stderr: "" });
  expect(trainyard("--help").stdout).toMatch(/Verbs\n {2}ppo /);
  expect(trainyard("sft", "--help").stdout).toMatch(/data\.train_batch_size=256\n {6}Rows per optimizer step\./);
  expect(trainyard("help", "sft").stdout).toBe(trainyard("sft", "--help").stdout);
  expect(trainyard("--version").stdout).toMatch(/^\d+\.\d+\.\d+\n$/);
});

test("help is shown within 300 ms and loads no runtime", () => {
  const program = `await import(${JSON.stringify(pathToFileURL(launcher).href)});
    process.on("exit", () => { process.stderr.write(process.report.getReport().sharedObjects.filter((name) => name.includes("onnxruntime")).join()); });`;
  const args = ["--input-type=module", "-e", program, "--", launcher, "sft", "--help"];
  const { stdout, stderr } = spawnSync(process.execPath, args, { encoding: "utf8" });
  expect(stdout).toMatch(/^trainyard sft: /);
  expect(stderr).toBe("");
  const fastest = Math.min(...[1, 2, 3, 4, 5].map(() => trainyard("sft", "--help").ms));
  expect(fastest).toBeLessThan(300);
});

describe("a mistake is one message on stderr, exit code 2 and no stack", () => {
  const cases: readonly [string, readonly string[], RegExp][] = [
    ["unknown verb", ["stf"], /^`stf` is no verb of trainyard\. Did you mean sft\? The verbs are: ppo, sft, reward, /],
    ["keys before a verb", ["a.b=1"], /a verb comes before the keys/],
    ["unknown option", ["sft", "--dry_run!"], /`--dry_run!` is no option/],
    [
      "unknown key",
      ["sft", "model.path=m", "optim.learning_rate=1"],
      /`optim\.learning_rate` .* is not a key of `sft`/,
    ],
    ["unknown key as an option", ["sft", "--nproc_per_node=2"], /`nproc_per_node` .* is not a key of `sft`/],
    ["no value", ["sft", "--optim.lr"], /`--optim\.lr` has no value/],
    ["neither key nor file", ["sft", "foo"], /`foo` is not an override/],
    ["sweep", ["sft", "optim.lr=1,2"], /Write a list as \[1,2\]/],
    ["missing model", ["sft"], /`model\.path` .* is missing/],
    ["missing file", ["sft", "nothing.yaml"], /nothing\.yaml cannot be read: there is no such file/],
    ["several runs", ["sft", "--multirun"], /one command is one run/],
  ];
  for (const [name, args, message] of cases) {
    test(name, () => {
      const { status, stdout, stderr } = trainyard(...args);
      expect(stderr.trimEnd()).toMatch(message);
      expect(stderr).not.toMatch(/\n\s+at /);
      expect({ status, stdout }).toEqual({ status: 2, stdout: "" });
    });
  }
});

test("--cfg job prints a config that reads back as the same config", () => {
  const first = trainyard("sft", "model.path=m", "--optim.lr", "2e-5", "--trainer.save_freq=-1", "--cfg", "job");
  expect(first).toMatchObject({ status: 0, stderr: "" });
  expect(first.stdout).toMatch(/lr: 0\.00002/);
  writeFileSync(join(folder, "printed.yaml"), first.stdout);
  expect(trainyard("sft", "printed.yaml", "--cfg", "job").stdout).toBe(first.stdout);
});

test("notices go to stderr, so that a printed config stays clean", () => {
  const { stdout, stderr } = trainyard("sft", "model.path=m", "model.use_liger=True", "--cfg", "job");
  expect(stderr).toMatch(/These keys have no effect here:\n {2}model\.use_liger=true: /);
  expect(stdout).not.toMatch(/no effect/);
});

/** A program that waits until it is asked to stop, and takes `saveMs` to save. */
function interruptible(saveMs: number) {
  const interrupt = pathToFileURL(fileURLToPath(new URL("./interrupt.ts", import.meta.url))).href;
  const program = `import { withInterrupt } from ${JSON.stringify(interrupt)};
    const hold = setInterval(() => {}, 1000);
    process.exitCode = await withInterrupt(async (signal) => {
      process.stdout.write("ready\\n");
      await new Promise((resolve) => signal.addEventListener("abort", () => setTimeout(resolve, ${saveMs})));
      process.stdout.write("saved\\n");
    });
    clearInterval(hold);`;
  const child = spawn(process.execPath, ["--input-type=module", "-e", program]);
  let output = "";
  child.stdout.on("data", (chunk) => {
    output += chunk;
  });
  const ready = new Promise<void>((resolve) => child.stdout.once("data", () => resolve()));
  const end = new Promise<number | NodeJS.Signals | null>((resolve) => {
    child.on("close", (code, signal) => resolve(signal ?? code));
  });
  return { child, ready, end, output: () => output };
}

const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

test("the first Ctrl-C lets the work save, and the exit code is 130", async () => {
  const { child, ready, end, output } = interruptible(100);
  await ready;
  child.kill("SIGINT");
  child.kill("SIGINT"); // the same key press, passed on by npm
  expect(await end).toBe(130);
  expect(output()).toBe("ready\nsaved\n");
});

test("the second Ctrl-C ends the program at once", async () => {
  const { child, ready, end, output } = interruptible(60_000);
  await ready;
  child.kill("SIGINT");
  await pause(600);
  child.kill("SIGINT");
  expect(await end).toBe("SIGINT"); // a shell reports it as 130
  expect(output()).toBe("ready\n");
});

describe("the launcher", () => {
  /** A copy of the launcher that believes this Node is an old one, in a package with these files. */
  function oldNode(files: Readonly<Record<string, string>>) {
    const root = mkdtempSync(join(folder, "package-"));
    for (const name of ["bin", "dist/cli", "node_modules/node/bin"]) mkdirSync(join(root, name), { recursive: true });
    writeFileSync(join(root, "package.json"), '{"type":"module"}');
    copyFileSync(launcher, join(root, "bin/trainyard.js"));
    for (const [name, text] of Object.entries(files)) writeFileSync(join(root, name), text, { mode: 0o755 });
    const pretend = 'Object.defineProperty(process.versions, "node", { value: "20.1.0" });';
    writeFileSync(join(root, "pretend.mjs"), pretend);
    const args = [
      "--import",
      pathToFileURL(join(root, "pretend.mjs")).href,
      join(root, "bin/trainyard.js"),
      "a b",
      "c",
    ];
    return spawnSync(process.execPath, args, { encoding: "utf8" });
  }

  test("says in one line what to do when Node is too old", () => {
    const { status, stderr } = oldNode({});
    expect(stderr).toMatch(/^trainyard needs Node 22\.21 or newer, and this is 20\.1\.0\. .*npm install node@24\n$/);
    expect(status).toBe(2);
  });

  test("runs on the Node that is installed beside it, with the same arguments and exit code", () => {
    const { status, stdout } = oldNode({
      "dist/cli/main.js": "export async function main(args) { process.stdout.write(JSON.stringify(args)); return 7; }",
      "node_modules/node/bin/node": `#!/bin/sh\nexec "${process.execPath}" "$@"\n`,
    });
    expect({ status, stdout }).toEqual({ status: 7, stdout: '["a b","c"]' });
  });
});
