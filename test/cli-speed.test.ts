/** What a user waits for before anything is computed: help, and the reading of a config. The best of five, since other programs may slow one. */
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, describe, expect, test } from "vitest";
import { loadConfig } from "../src/config/file.ts";
import { parseOverride } from "../src/config/overrides.ts";
import { ppoSchema } from "../src/config/ppo/schema.ts";
import { resolve } from "../src/config/resolve.ts";

const launcher = fileURLToPath(new URL("../bin/trainyard.js", import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "trainyard-speed-"));
afterAll(() => rmSync(folder, { recursive: true }));

const help = (...args: readonly string[]) =>
  spawnSync(process.execPath, [launcher, ...args, "--help"], { encoding: "utf8", cwd: folder });

async function bestOfFive(work: () => unknown): Promise<number> {
  let best = Number.POSITIVE_INFINITY;
  for (let i = 0; i < 5; i++) {
    const started = performance.now();
    await work();
    best = Math.min(best, performance.now() - started);
  }
  return best;
}

describe("help is shown within 300 ms", () => {
  const verbs = [...help().stdout.matchAll(/^ {2}([a-z]+) {2,}/gm)].map(([, verb = ""]) => verb);
  test("for the program, which lists its verbs", async () => {
    expect(verbs).toContain("ppo");
    expect(await bestOfFive(() => help())).toBeLessThan(300);
  });

  test.each(verbs)("for %s", async (verb) => {
    const { status, stdout, stderr } = help(verb);
    expect({ status, stderr }).toEqual({ status: 0, stderr: "" });
    expect(stdout).toContain(`trainyard ${verb}`);
    expect(await bestOfFive(() => help(verb))).toBeLessThan(300);
  });
});

describe("a config is read and resolved within 100 ms", () => {
  const overrides = [
    "actor_rollout_ref.model.path=m",
    "data.train_files=[a.parquet,b.parquet]",
    "data.train_batch_size=1024",
    "actor_rollout_ref.actor.optim.lr=1e-6",
    "actor_rollout_ref.rollout.n=5",
    "algorithm.adv_estimator=grpo",
  ].map(parseOverride);
  const yaml =
    "defaults:\n  - ppo_trainer\n  - _self_\ntrainer:\n  total_epochs: 3\n  project_name: ${data.prompt_key}\n";
  const module = "export default { trainer: { total_epochs: 3 }, data: { max_prompt_length: 64 } };\n";

  test.each([
    ["run.yaml", yaml],
    ["run.ts", module],
    ["run.json", '{"trainer": {"total_epochs": 3}}'],
  ])("from %s", async (file, text) => {
    writeFileSync(join(folder, file), text);
    const read = async () => {
      const { entries, configName } = await loadConfig({ file, folder }, ppoSchema);
      return resolve(ppoSchema, [entries, overrides], { configName, home: "/", env: {} });
    };
    expect((await read()).config.trainer.total_epochs).toBe(3);
    expect(await bestOfFive(read)).toBeLessThan(100);
  });
});
