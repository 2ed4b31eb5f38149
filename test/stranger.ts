/**
 * A stranger who has read README.md and docs/first-reward.md: they pack nothing and know nothing, they type what the
 * pages say, in an empty folder, with some Node and some npm. The package is the packed one. The model is that of
 * `npm start`, because a download of the hub's would take minutes, and two steps are enough.
 *
 * The server with onnxruntime's CUDA libraries cannot be reached, so that npm up to 11 leaves out onnxruntime-node.
 * What the package depends on comes from the npm registry.
 */
import { execFile } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { cp, mkdir, readdir, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { delimiter, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect } from "vitest";

const root = fileURLToPath(new URL("..", import.meta.url));
const isWindows = process.platform === "win32";
const nothing = "http://127.0.0.1:9"; // no server is there

export type Called = { readonly code: number; readonly stdout: string; readonly stderr: string };
/** A folder, and the environment in which commands run there. */
export type Place = { readonly folder: string; readonly env: NodeJS.ProcessEnv };

/** Run a line of a shell. */
export function type(line: string, { folder, env }: Place): Promise<Called> {
  const [shell, flag] = isWindows ? ["cmd", "/c"] : ["sh", "-c"];
  return new Promise((done) => {
    execFile(shell, [flag, line], { cwd: folder, env, maxBuffer: 2 ** 26 }, (error, stdout, stderr) => {
      done({ code: error === null ? 0 : Number(error.code ?? 1), stdout, stderr });
    });
  });
}

/** Run a line that must succeed; the result is all that it said. */
export async function succeed(line: string, place: Place): Promise<string> {
  const { code, stdout, stderr } = await type(line, place);
  expect(code, `${line}\n${stdout}${stderr}`).toBe(0);
  return stdout + stderr;
}

/** This environment, without what npm tells the scripts that it runs: another npm would then work for this project. */
export const ownEnv: NodeJS.ProcessEnv = Object.fromEntries(
  Object.entries(process.env).filter(([name]) => !/^(npm_|INIT_CWD|ONNXRUNTIME_NODE_INSTALL)/i.test(name)),
);

async function npmSetting(name: string): Promise<string> {
  const { stdout } = await type(`npm config get ${name}`, { folder: root, env: ownEnv });
  return stdout.trim().split("\n").at(-1) ?? "";
}

/** Whether the registry that npm is set to use answers. */
export async function isRegistryThere(): Promise<boolean> {
  return await fetch(await npmSetting("registry"), { signal: AbortSignal.timeout(5000) }).then(
    () => true,
    () => false,
  );
}

/** Pack a copy of what git has of the package; the compiler is this clone's. */
export async function pack(folder: string): Promise<{ readonly file: string; readonly report: string }> {
  const clone = join(folder, "clone");
  await mkdir(clone);
  const { files }: { files: string[] } = JSON.parse(await readFile(join(root, "package.json"), "utf8"));
  const shipped = files.map((it) => it.split("/")[0] ?? it).filter((it) => it !== "dist");
  const needed = ["package.json", "tsconfig.json", "tsconfig.build.json", "src", ...shipped];
  for (const name of new Set(needed)) await cp(join(root, name), join(clone, name), { recursive: true });
  await symlink(join(root, "node_modules"), join(clone, "node_modules"), "junction");
  const { code, stdout, stderr } = await type("npm pack --json --pack-destination ..", { folder: clone, env: ownEnv });
  if (code !== 0) throw new Error(`npm pack: ${stdout}${stderr}`);
  const name = (await readdir(folder)).find((entry) => entry.endsWith(".tgz"));
  if (name === undefined) throw new Error(`npm pack left no package: ${stdout}`);
  return { file: join(folder, name), report: stdout.slice(stdout.indexOf("[")) };
}

/** The folder of the commands of an npm package, `node@22` or `npm@10`, installed by itself. */
export async function installTool(folder: string, name: string): Promise<string> {
  const home = join(folder, name);
  await mkdir(home);
  await writeFile(join(home, "package.json"), '{"private":true,"allowScripts":{"node":true}}');
  await succeed(`npm install --no-audit --no-fund --prefer-offline ${name}`, { folder: home, env: ownEnv });
  const node = join(home, "node_modules/node/bin");
  return existsSync(node) ? node : join(home, "node_modules/.bin");
}

/** The folder of a person who has these commands, and of ours only the model and the prompts of `npm start`. */
export async function moveIn(folder: string, commands: readonly string[]): Promise<Place> {
  const app = join(folder, "app");
  const home = join(folder, "home");
  for (const made of [app, home]) await mkdir(made, { recursive: true });
  const isData = (file: string) => !file.endsWith(".ts");
  await cp(join(root, "examples/quickstart"), join(app, "examples/quickstart"), { recursive: true, filter: isData });
  const settings = {
    npm_config_registry: await npmSetting("registry"),
    npm_config_cache: await npmSetting("cache"),
    npm_config_prefer_offline: "true",
    npm_config_update_notifier: "false",
  };
  const path = [...commands, dirname(process.execPath), process.env.PATH ?? ""].join(delimiter);
  const unreachable = { GLOBAL_AGENT_HTTPS_PROXY: nothing, GLOBAL_AGENT_HTTP_PROXY: nothing };
  return { folder: app, env: { ...ownEnv, ...settings, ...unreachable, PATH: path, HOME: home, USERPROFILE: home } };
}

/** The code blocks of a page in a language, in order. */
function blocks(page: string, language: string): string[] {
  const text = readFileSync(join(root, page), "utf8");
  const all = [...text.matchAll(/^```(\w*)\n(.*?)^```$/gms)];
  return all.flatMap(([, of, block = ""]) => (of === language ? [block] : []));
}

/** Write the TypeScript files of a page, each under the name in its first line. */
async function writeFiles(page: string, { folder }: Place): Promise<void> {
  for (const block of blocks(page, "ts")) {
    const name = /^\/\/ (\S+)\n/.exec(block)?.[1];
    if (name === undefined) throw new Error(`${page} has a file without a name`);
    await mkdir(dirname(join(folder, name)), { recursive: true });
    await writeFile(join(folder, name), block);
  }
}

/** The lines of the block that installs the package, with the packed one in place of the published one. */
export async function install(page: string, packed: string, place: Place): Promise<void> {
  const block = blocks(page, "sh").find((it) => it.includes("npm install trainyard"));
  const lines = block?.trim().split("\n") ?? [];
  expect(lines.slice(0, 3)).toEqual(["npm init -y", "npm pkg set type=module", "npm install trainyard"]);
  for (const line of lines.slice(0, 3)) {
    const said = await succeed(line.replace("install trainyard", `install ${packed}`), place);
    // npm 12 names the packages whose install scripts it has not run, and README.md says so.
    expect(said.split("\n").filter((it) => /warn|deprecated/i.test(it) && !it.includes("install-scripts"))).toEqual([]);
  }
}

/** docs/first-reward.md: try the reward, train on it, and see the error of the broken one. */
export async function followFirstReward(place: Place): Promise<void> {
  const page = "docs/first-reward.md";
  await writeFiles(page, place);
  await writeFile(join(place.folder, "answers.jsonl"), blocks(page, "json")[0] ?? "");
  const [, evaluate = "", train = ""] = blocks(page, "sh");
  const table = blocks(page, "")[0] ?? "no table";
  expect((await succeed(evaluate, place)).replaceAll("\r", "")).toContain(table);
  // The page itself names these for whoever wants no download.
  const offline = /`(actor_rollout_ref\.model\.path=examples[^`]*)`/.exec(readFileSync(join(root, page), "utf8"))?.[1];
  const short = `${offline} data.max_response_length=8 data.val_max_samples=8 trainer.threads=1 trainer.total_training_steps=2`;
  const keys = short.split(" ").map((entry) => entry.split("="));
  const command = keys.reduce(
    (line, [key, value]) =>
      line.includes(`${key}=`) ? line.replace(new RegExp(`${key}=\\S+`), `${key}=${value}`) : `${line} ${key}=${value}`,
    train.replaceAll("\\\n", " ").trim(),
  );
  expect(await succeed(command, place)).toMatch(/Done: 2 steps/);
  const broken = await type(command.replace("number.ts", "broken.ts").replace("=first", "=second"), place);
  expect(broken).toMatchObject({ code: 2, stderr: expect.stringContaining("the reward function threw TypeError") });
}

/** README.md: the config, and a run of it. */
export async function followReadme(place: Place): Promise<void> {
  await writeFiles("README.md", place);
  const [, own = ""] = blocks("README.md", "sh");
  const command = own.trim().split("\n").at(-1);
  expect(command).toBe("npx trainyard ppo trainyard.config.ts");
  const model =
    "actor_rollout_ref.model.path=examples/quickstart/model data.train_files=examples/quickstart/train.jsonl";
  const short =
    "data.max_prompt_length=32 data.max_response_length=8 trainer.total_training_steps=2 trainer.save_freq=2";
  const run = `${command} ${model} ${short} trainer.threads=1 trainer.default_local_dir=run`;
  expect(await succeed(run, place)).toMatch(/Done: 2 steps/);
  const lines = (await readFile(join(place.folder, "run/metrics.jsonl"), "utf8")).trim().split("\n");
  expect(lines.map((line) => JSON.parse(line).step)).toEqual([1, 2]);
}

/** The files of both pages, under the settings that `tsc --init` writes. */
export async function checkTypes(place: Place, compiler: string): Promise<void> {
  const tsc = `node ${JSON.stringify(join(compiler, "typescript/bin/tsc"))}`;
  await rm(join(place.folder, "tsconfig.json"), { force: true });
  await succeed(`${tsc} --init`, place);
  const settings = await readFile(join(place.folder, "tsconfig.json"), "utf8");
  for (const name of ["strict", "verbatimModuleSyntax", "exactOptionalPropertyTypes", "noUncheckedIndexedAccess"])
    expect(settings).toMatch(new RegExp(`^ *"${name}": true`, "m"));
  expect(await succeed(`${tsc} --noEmit`, place)).toBe("");
}
