/**
 * The package as a user gets it: packed, installed into an empty project, and used there, on the Nodes it is made for.
 *
 * It is packed from a copy of the sources, as from a fresh clone. What it depends on comes from the npm registry; where
 * that does not answer the tests are skipped. TRAINYARD_TEST_NODES=22,26 tries these Nodes too.
 */
import { execFile } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { cp, mkdir, readdir, readFile, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createModel } from "../src/models/create.ts";
import { charConfig, prompt } from "./rl-yard.ts";

const root = fileURLToPath(new URL("..", import.meta.url));
const isWindows = process.platform === "win32";
const folder = mkdtempSync(join(tmpdir(), "trainyard-package-"));
const app = join(folder, "app");
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** Nodes to try besides the one that runs the tests. */
const nodes = (process.env.TRAINYARD_TEST_NODES ?? "").split(",").filter((version) => version !== "");

/** Without what npm tells the scripts that it runs, which would make another npm work for this project. */
const env = {
  ...Object.fromEntries(Object.entries(process.env).filter(([name]) => !/^(npm_|INIT_CWD)/i.test(name))),
  ONNXRUNTIME_NODE_INSTALL: "skip", // its install script asks a host that need not answer
};

type Called = { readonly code: number; readonly stdout: string; readonly stderr: string };

function call(command: string, args: readonly string[], cwd: string): Promise<Called> {
  return new Promise((done) => {
    execFile(command, args, { cwd, env, shell: isWindows, maxBuffer: 2 ** 26 }, (error, stdout, stderr) => {
      done({ code: error === null ? 0 : Number(error.code ?? 1), stdout, stderr });
    });
  });
}

async function npm(cwd: string, ...args: readonly string[]): Promise<string> {
  const { code, stdout, stderr } = await call("npm", args, cwd);
  if (code !== 0) throw new Error(`npm ${args.join(" ")}: ${stdout}${stderr}`);
  return stdout;
}

const quietly = ["--no-audit", "--no-fund", "--prefer-offline"];

/** The registry that npm is set to use. */
async function isRegistryThere(): Promise<boolean> {
  const { stdout } = await call("npm", ["config", "get", "registry"], root);
  const url = stdout.trim().split("\n").at(-1) ?? "";
  return await fetch(url, { signal: AbortSignal.timeout(5000) }).then(
    () => true,
    () => false,
  );
}

/** Pack a copy of what git has of the package; the compiler is this clone's. */
async function pack(): Promise<string> {
  const clone = join(folder, "clone");
  await mkdir(clone);
  const { files }: { files: string[] } = JSON.parse(await readFile(join(root, "package.json"), "utf8"));
  const shipped = files.map((it) => it.split("/")[0] ?? it).filter((it) => it !== "dist");
  const needed = ["package.json", "tsconfig.json", "tsconfig.build.json", "src", ...shipped];
  for (const name of new Set(needed)) await cp(join(root, name), join(clone, name), { recursive: true });
  await symlink(join(root, "node_modules"), join(clone, "node_modules"), "junction");
  const printed = await npm(clone, "pack", "--json", "--pack-destination", folder);
  await writeFile(join(folder, "packed.json"), printed.slice(printed.indexOf("[")));
  const name = (await readdir(folder)).find((entry) => entry.endsWith(".tgz"));
  if (name === undefined) throw new Error(`npm pack left no package: ${printed}`);
  return join(folder, name);
}

/** A Node of its own, from the npm package that carries it. */
async function installNode(version: string): Promise<string> {
  const home = join(folder, `node-${version}`);
  await mkdir(home);
  await writeFile(join(home, "package.json"), '{"private":true}');
  await npm(home, "install", ...quietly, `node@${version}`);
  return join(home, "node_modules/node/bin", isWindows ? "node.exe" : "node");
}

/** A project with the package, a tiny model, prompts and a config. */
async function makeApp(packed: string): Promise<void> {
  await mkdir(app);
  await writeFile(join(app, "package.json"), '{"private":true}');
  await npm(app, "install", ...quietly, packed);
  await createModel(join(app, "model"), charConfig, 1);
  const tokenizer = join(root, "test/fixtures/text/wordlevel");
  for (const name of ["tokenizer.json", "tokenizer_config.json"])
    await cp(join(tokenizer, name), join(app, "model", name));
  const rows = Array.from({ length: 8 }, (_, i) => `${JSON.stringify(prompt(i))}\n`);
  await writeFile(join(app, "train.jsonl"), rows.join(""));
  await writeFile(join(app, "trainyard.config.ts"), config);
}

const config = `import { defineConfig } from "trainyard";

export default defineConfig({
  data: { train_files: "train.jsonl", train_batch_size: 4, max_prompt_length: 8, max_response_length: 6 },
  actor_rollout_ref: { model: { path: "model" }, actor: { ppo_mini_batch_size: 4 }, rollout: { n: 4 } },
  algorithm: { adv_estimator: "grpo" },
  custom_reward_function: ({ response }) => response.split("7").length - 1,
  trainer: { total_training_steps: 2, save_freq: 2, default_local_dir: "run", threads: 1 },
});
`;

const isThere = await isRegistryThere();
const reason = isThere ? "" : " (skipped: the npm registry does not answer)";

describe.skipIf(!isThere)(`the package, installed into an empty project${reason}`, () => {
  let oldNode = "";
  beforeAll(async () => {
    const [packed, node20] = await Promise.all([pack(), installNode("20")]);
    oldNode = node20;
    await makeApp(packed);
  }, 300_000);

  const launcher = join(app, "node_modules/trainyard/bin/trainyard.js");
  const on = (node: string, ...args: readonly string[]) => call(node, [launcher, ...args], app);

  test("is small, and holds no test and no source", async () => {
    const [{ size, unpackedSize, files }] = JSON.parse(await readFile(join(folder, "packed.json"), "utf8"));
    expect(size).toBeLessThan(2e6);
    expect(unpackedSize).toBeLessThan(8e6);
    const names: string[] = files.map(({ path }: { path: string }) => path);
    expect(names).toContain("dist/index.d.ts");
    expect(names.filter((name) => /\.test\.|(?<!\.d)\.ts$|(^|\/)test\//.test(name))).toEqual([]);
  });

  test("answers npx with help and version", async () => {
    const help = await call("npx", ["trainyard", "--help"], app);
    expect(help).toMatchObject({ code: 0, stdout: expect.stringMatching(/Verbs\n {2}ppo /) });
    const { version }: { version: string } = JSON.parse(await readFile(join(root, "package.json"), "utf8"));
    expect((await on(process.execPath, "--version")).stdout).toBe(`${version}\n`);
  });

  test("gives types that hold a program to the library", async () => {
    const program = (size: string) => `import { defineConfig, trainRl } from "trainyard";
      import { defineReward } from "trainyard/reward";
      export const score = defineReward(({ response }) => response.length);
      export const config = defineConfig({ data: { train_batch_size: ${size} } });
      export const train: (...args: Parameters<typeof trainRl>) => Promise<void> = trainRl;\n`;
    await writeFile(join(app, "right.mts"), program("8"));
    await writeFile(join(app, "wrong.mts"), program('"eight"'));
    const compiler = join(root, "node_modules/typescript/bin/tsc");
    const flags = ["--noEmit", "--strict", "--target", "es2024", "--module", "nodenext", "--skipLibCheck"];
    const check = (file: string) => call(process.execPath, [compiler, ...flags, file], app);
    expect(await check("right.mts")).toEqual({ code: 0, stdout: "", stderr: "" });
    expect((await check("wrong.mts")).stdout).toMatch(/^wrong\.mts\(4,\d+\): error TS2322: Type '"eight"' is not/);
  });

  /** Two steps of the config, the export of what they learnt, and a machine that is well. */
  async function use(node: string): Promise<void> {
    rmSync(join(app, "run"), { recursive: true, force: true });
    rmSync(join(app, "exported"), { recursive: true, force: true });
    const run = await on(node, "ppo", "trainer.logger=[]");
    expect(run.stderr).toMatch(/Done: 2 steps/);
    expect(run.code).toBe(0);
    const lines = (await readFile(join(app, "run/metrics.jsonl"), "utf8")).trim().split("\n");
    expect(lines.map((line) => JSON.parse(line).step)).toEqual([1, 2]);
    expect(await on(node, "export", "run", "--to", "exported")).toMatchObject({ code: 0, stderr: "" });
    const doctor = await on(node, "doctor");
    expect(doctor.stdout).toMatch(/^ok +node +\d.*\nok +cpu +runs programs/);
    expect(doctor.code).toBe(0);
  }

  test("trains two steps from a TypeScript config, exports the model, and finds the machine well", async () => {
    await use(process.execPath);
  }, 120_000);

  test("says in one line what to do on Node 20", async () => {
    const { code, stdout, stderr } = await on(oldNode, "--help");
    expect(stderr).toMatch(/^trainyard needs Node 22\.21 or newer, and this is 20\.[\d.]+\. .*npm install node@24\n$/);
    expect({ code, stdout }).toEqual({ code: 2, stdout: "" });
  });

  for (const version of nodes) {
    test(`does the same on Node ${version}`, async () => {
      const node = await installNode(version);
      expect((await call(node, ["--version"], app)).stdout).toMatch(new RegExp(`^v${version}\\.`));
      expect((await on(node, "--help")).stdout).toMatch(/Verbs\n {2}ppo /);
      await use(node);
    }, 300_000);
  }
});
