/**
 * Every example takes two steps with the command of its header, in a process of its own: the program starts, trains and
 * saves. The results that the headers name take minutes, and are not checked here.
 */
import { spawn, spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import { latestCheckpoint } from "../src/run/checkpoint.ts";
import { readMetrics } from "../src/run/metrics.ts";

const root = join(import.meta.dirname, "..");
const out = mkdtempSync(join(tmpdir(), "trainyard-examples-"));
afterAll(() => rmSync(out, { recursive: true, force: true }));

/** Files of a folder below examples/, as paths from the root. */
const filesIn = (folder: string, ending: string): string[] =>
  readdirSync(join(root, folder))
    .filter((name) => name.endsWith(ending))
    .map((name) => `${folder}/${name}`);

const text = (file: string): string => readFileSync(join(root, file), "utf8");
const configs = ["examples", "examples/quickstart", "examples/recipes"]
  .flatMap((folder) => filesIn(folder, ".ts"))
  .filter((file) => text(file).includes("defineConfig("));
const scripts = filesIn("examples/recipes", ".sh");

/** Run a program from the root; `said` is all that it printed. */
async function run(file: string, args: readonly string[], env: Readonly<Record<string, string>> = {}) {
  const child = spawn(file, [...args], {
    cwd: root,
    env: { ...process.env, ...env },
    stdio: ["ignore", "pipe", "pipe"],
  });
  let said = "";
  for (const stream of [child.stdout, child.stderr])
    stream.on("data", (chunk) => {
      said += chunk;
    });
  const code = await new Promise<number>((done) => child.once("close", (status) => done(status ?? -1)));
  return { code, said };
}

const steps = (count: number) => [`trainer.total_training_steps=${count}`, "trainer.threads=1"];
const quickstart = "examples/quickstart";
const model = `${quickstart}/model`;
const prompts = [`data.train_files=${quickstart}/train.jsonl`, `data.val_files=${quickstart}/test.jsonl`];
const small = ["data.train_batch_size=32", "actor_rollout_ref.actor.ppo_mini_batch_size=16", "data.val_max_samples=8"];

/** Keys for examples that need more than the repository holds, or that take minutes. */
const needs: Readonly<Record<string, readonly string[]>> = {
  "examples/grpo-addition.ts": [`actor_rollout_ref.model.path=${model}`, ...prompts, ...small],
  "examples/rloo-addition.ts": [`actor_rollout_ref.model.path=${model}`, ...prompts, ...small],
  "examples/shuffled-addition.ts": [`actor_rollout_ref.model.path=${model}`, ...prompts, ...small],
  "examples/ppo-arithmetic.ts": [
    `actor_rollout_ref.model.path=${model}`,
    `critic.model.path=${model}`,
    ...prompts,
    ...small,
    "critic.ppo_mini_batch_size=16",
  ],
};
/** Run by the script that makes the files it reads. */
const ofScripts = ["examples/recipes/model-reward.ts"];

/** The metrics of a run, the last checkpoint of which is at its last step. */
async function finished(folder: string) {
  const metrics = await readMetrics(folder);
  const { step } = (await latestCheckpoint(folder)) ?? { step: 0 };
  expect(step).toBe(metrics.at(-1)?.step);
  return metrics;
}

describe("a config", () => {
  test.each(configs.filter((file) => !ofScripts.includes(file)))(
    "takes two steps: %s",
    { timeout: 120_000 },
    async (file) => {
      const folder = join(out, file);
      const keys = [...steps(2), ...(needs[file] ?? []), `trainer.default_local_dir=${folder}`];
      const { code, said } = await run(process.execPath, ["bin/trainyard.js", "ppo", file, ...keys]);
      expect({ code, said }).toEqual({ code: 0, said: expect.not.stringContaining("rror") });
      const metrics = await finished(folder);
      expect(metrics.at(-1)?.step).toBe(2);
      for (const { data, step } of metrics) if (step > 0) expect(data["actor/grad_norm"]).toBeGreaterThanOrEqual(0);
    },
  );
});

const hasBash = spawnSync("bash", ["--version"]).status === 0;

describe.skipIf(!hasBash)("a script (skipped where there is no bash)", () => {
  const made: Readonly<Record<string, readonly string[]>> = {
    "examples/recipes/sft-then-rl.sh": ["sft", "rl"],
    "examples/recipes/reward-model-then-ppo.sh": ["reward", "ppo"],
  };

  test("exists for each run that is expected", () => expect(scripts.sort()).toEqual(Object.keys(made).sort()));

  test.each(scripts)("takes two steps of each of its runs: %s", { timeout: 240_000 }, async (file) => {
    const folder = join(out, file);
    const { code, said } = await run("bash", [file, ...steps(2)], { OUT: folder });
    expect({ code, said }).toEqual({ code: 0, said: expect.any(String) });
    for (const name of made[file] ?? []) expect((await finished(join(folder, name))).at(-1)?.step).toBe(2);
  });
});

describe("the table of examples", () => {
  test("lists every example, and nothing else", () => {
    const table = text("examples/README.md");
    const named = [...table.matchAll(/^\| \[`?([^`\]]+)`?\]\(([^)]+)\)/gm)].map(([, , target]) => target!);
    const there = [...configs, ...scripts, "examples/loop.ts", ...filesIn("examples/e2e", ".sh")]
      .map((file) => relative("examples", file))
      .filter((file) => !/e2e\/(common|capped)\.sh$/.test(file));
    expect(named.sort()).toEqual(there.sort());
  });

  test.each([...configs, ...scripts])("has a command and what to expect at the head of %s", (file) => {
    const head = text(file).split(/^(?:import|set) /m)[0]!;
    expect(head).toContain(file);
    expect(head).toMatch(/Expect `[\w/@-]+`/);
  });
});
