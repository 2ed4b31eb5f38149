/**
 * Every script of package.json and every bench runs: each in its shortest form, as a user calls it, or in another test
 * that is named here. Nothing here looks at figures.
 */
import { execFile, execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { cp, mkdir, readFile, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, test } from "vitest";

const root = join(import.meta.dirname, "..");
const folder = mkdtempSync(join(tmpdir(), "trainyard-scripts-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

type Ended = { readonly code: number; readonly stdout: string; readonly stderr: string };

/** `npm run NAME -- ARGS`, without what the npm that runs these tests tells its scripts. */
function npmRun(args: readonly string[], { cwd = root, set = {} } = {}): Promise<Ended> {
  const own = Object.entries(process.env).filter(([name]) => !/^(npm_|INIT_CWD|VITEST|NODE_ENV)/i.test(name));
  const env = { ...Object.fromEntries(own), NO_COLOR: "1", ...set };
  return new Promise((done) => {
    const shell = process.platform === "win32";
    execFile("npm", ["run", "--silent", ...args], { cwd, env, shell, maxBuffer: 2 ** 26 }, (error, stdout, stderr) => {
      done({ code: error === null ? 0 : Number(error.code ?? 1), stdout, stderr });
    });
  });
}

/** A project with one file in each place that is checked, which is not formatted as it should be. */
async function smallProject(): Promise<string> {
  const cwd = join(folder, "project");
  for (const name of ["package.json", "tsconfig.json", "biome.json", ".gitignore", "src/dashboard/page/tsconfig.json"])
    await cp(join(root, name), join(cwd, name));
  await symlink(join(root, "node_modules"), join(cwd, "node_modules"), "junction");
  await mkdir(join(cwd, "src/dashboard/page"), { recursive: true });
  for (const name of ["src/one.ts", "src/dashboard/page/two.ts"])
    await writeFile(join(cwd, name), "export   const one:number = 1\n");
  return cwd;
}

const scripts: Readonly<Record<string, string>> = JSON.parse(readFileSync(join(root, "package.json"), "utf8")).scripts;

/** Scripts that other tests run, with what those call. */
const elsewhere: Readonly<Record<string, { readonly file: string; readonly calls: string }>> = {
  "fuzz:verl": { file: "test/fuzz-verl.test.ts", calls: "answeredByVerl(" },
  start: { file: "test/quickstart.test.ts", calls: "scripts/quickstart.ts" },
  build: { file: "test/stranger.ts", calls: "npm pack" }, // npm runs prepack, and that runs build
  prepack: { file: "test/stranger.ts", calls: "npm pack" },
  docs: { file: "src/config/reference.test.ts", calls: "configReference" }, // here it would write into the clone
  kernels: { file: "src/runtime/optimizer.test.ts", calls: "kernelsModule" }, // so would this
};

/** What a script is called with here, and what its output must contain. */
const here: Readonly<Record<string, { readonly args: readonly string[]; readonly says: RegExp }>> = {
  test: { args: ["--all", "test/lockfile.test.ts"], says: /Test Files.* 1 passed/ },
  "test:long": { args: ["memory", "-t", "no such test"], says: /Test Files.* 1 skipped/ },
  goldens: { args: ["test/fixtures/goldens"], says: /\d\d passed, 0 failed\n$/ },
  parity: { args: ["test/fixtures/logits/llama"], says: /llama/ },
};

describe("every script of package.json runs", () => {
  test("here or in the test that is named", async () => {
    const known = [...Object.keys(elsewhere), ...Object.keys(here), "check", "fix", "bench"];
    expect(Object.keys(scripts).toSorted()).toEqual(known.toSorted());
    for (const { file, calls } of Object.values(elsewhere))
      expect(await readFile(join(root, file), "utf8"), file).toContain(calls);
  });

  test.each(Object.entries(here))("%s", async (name, { args, says }) => {
    const { code, stdout, stderr } = await npmRun([name, "--", ...args]);
    expect(stdout + stderr).toMatch(says);
    expect(code).toBe(0);
  });

  test("check finds what fix repairs", async () => {
    const cwd = await smallProject();
    expect(await npmRun(["check"], { cwd })).toMatchObject({ code: 1, stderr: expect.stringContaining("src/one.ts") });
    expect(await npmRun(["fix"], { cwd })).toMatchObject({ code: 0 });
    expect(await readFile(join(cwd, "src/one.ts"), "utf8")).toBe("export const one: number = 1;\n");
    expect(await npmRun(["check"], { cwd })).toMatchObject({ code: 0 });
  });
});

test("npm test leaves out only files that exist, and .ci/run leaves out none", async () => {
  const list = (short: string) => {
    const args = [join(root, "node_modules/vitest/vitest.mjs"), "list", "--filesOnly"];
    const env = { ...process.env, TRAINYARD_TEST_SHORT: short };
    return execFileSync(process.execPath, args, { cwd: root, env, encoding: "utf8" }).trim().split("\n").toSorted();
  };
  const [all, short] = [list(""), list("1")];
  const config = await readFile(join(root, "vitest.config.ts"), "utf8");
  const leftOut = [...config.matchAll(/^ {2}"([^"]+\.test\.ts)",$/gm)].map(([, file = ""]) => file);
  expect(leftOut.length).toBeGreaterThan(30);
  expect([...short, ...leftOut].toSorted()).toEqual(all);
  expect(await readFile(join(root, ".ci/run"), "utf8")).toMatch(/^npm test --silent -- --all /m);
});

describe("every bench runs", () => {
  const alone = ["train", "rollout", "rl", "algos"];
  const onRay = ["ray", "scale"];

  test(`${alone.join(", ")}`, async () => {
    const { code, stdout, stderr } = await npmRun(["bench", "--", ...alone, "--smoke"]);
    expect(stderr).not.toContain("Error");
    expect(code).toBe(0);
    const figures: { bench: string; ours: number }[] = stdout
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line));
    expect([...new Set(figures.map(({ bench }) => bench))]).toEqual(alone);
    expect(figures.filter(({ ours }) => !Number.isFinite(ours))).toEqual([]);
  }, 300_000);

  test.each(onRay)("%s, up to the Python that it needs", async (name) => {
    const python = join(folder, "no-python");
    const ended = await npmRun(["bench", "--", name, "--smoke"], { set: { TRAINYARD_PYTHON: python } });
    expect(ended).toMatchObject({ code: 2, stdout: "" });
    expect(ended.stderr).toMatch(
      /^TRAINYARD_PYTHON is ".*no-python", which cannot be started \(ENOENT\)\. Name a Python/,
    );
  });

  test("and no other is left out", async () => {
    const { stderr } = await npmRun(["bench", "--", "none"]);
    expect(stderr).toContain(`The benches are: ${[...alone.slice(0, 3), ...onRay, "algos"].join(", ")}.`);
  });
});
