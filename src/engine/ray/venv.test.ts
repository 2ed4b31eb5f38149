import { spawnSync } from "node:child_process";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { UserError } from "../../util/errors.ts";
import { pythonFolder } from "./shim.ts";
import { dependencies, ensurePython } from "./venv.ts";

const python = process.env.TRAINYARD_TEST_PYTHON ?? "";

test("everything that the workers need is pinned, and tests run on the same versions", async () => {
  const needs = await dependencies();
  expect(needs.length).toBeGreaterThan(3);
  for (const need of needs) expect(need).toMatch(/^[a-z]+==[\d.]+$/);
  const tested = (await readFile(join(pythonFolder, "requirements.txt"), "utf8")).split("\n");
  expect(tested).toEqual(expect.arrayContaining(needs));
});

test("an interpreter that does not exist is named", async () => {
  const error = await ensurePython({ python: "/nowhere/python" }).catch((it: unknown) => it);
  expect(error).toBeInstanceOf(UserError);
  expect(String(error)).toMatch(/\/nowhere\/python cannot be started \(ENOENT\)/);
});

test.skipIf(python === "")(
  "an interpreter that lacks a dependency is an error that names it (needs Python)",
  async () => {
    const folder = await mkdtemp(join(tmpdir(), "bare-"));
    try {
      expect(spawnSync(python, ["-m", "venv", "--without-pip", folder]).status).toBe(0);
      const error = await ensurePython({ python: join(folder, "bin/python") }).catch((it: unknown) => it);
      expect(error).toBeInstanceOf(UserError);
      expect(String(error)).toMatch(/torch is not installed\. Install it there with `pip install torch==/);
    } finally {
      await rm(folder, { recursive: true });
    }
  },
);

test.skipIf(python === "")("the workers' code passes ruff (needs Python with ruff)", () => {
  for (const args of [["check"], ["format", "--check"]]) {
    const { status, stdout } = spawnSync(python, ["-m", "ruff", ...args, "--no-cache", pythonFolder], {
      encoding: "utf8",
    });
    expect(stdout, args.join(" ")).toMatch(/All checks passed|already formatted/);
    expect(status).toBe(0);
  }
});

test.skipIf(python === "")(
  "the workers' code passes mypy (needs Python with mypy)",
  { timeout: 300_000 }, // the first time, when it reads the libraries
  () => {
    const cache = join(pythonFolder, "../node_modules/.cache/mypy");
    const { status, stdout } = spawnSync(python, ["-m", "mypy", "--cache-dir", cache], {
      cwd: pythonFolder,
      encoding: "utf8",
    });
    expect(stdout).toMatch(/^Success: no issues found in \d+ source files/);
    expect(status).toBe(0);
  },
);
