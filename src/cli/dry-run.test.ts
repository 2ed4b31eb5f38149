/** `--dry-run` as a program: the config on stdout, what the run would be on stderr, and nothing written to the disk. */
import { spawnSync } from "node:child_process";
import { readdirSync, rmSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { parse } from "yaml";
import { charConfig, Yard } from "../../test/rl-yard.ts";
import { Sandbox } from "../../test/sandbox.ts";

const launcher = fileURLToPath(new URL("../../bin/trainyard.js", import.meta.url));

let yard: Yard;
let sandbox: Sandbox;
beforeAll(async () => {
  [yard, sandbox] = await Promise.all([Yard.make(), Sandbox.make()]);
  const pairs = Array.from({ length: 8 }, (_, i) => ({ prompt: `${i}?`, chosen: `${i}.`, rejected: "no idea" }));
  await sandbox.writeLines("pairs.jsonl", pairs);
});
afterAll(() => {
  yard.remove();
  sandbox.remove();
});

/** A program whose last line on stderr is its peak memory in KB. */
function trainyard(cwd: string, ...args: readonly string[]) {
  const report = "process.on('exit', () => process._rawDebug(`peak ${process.resourceUsage().maxRSS}`))";
  const command = ["--import", `data:text/javascript,${encodeURIComponent(report)}`, launcher, ...args];
  const env = { ...process.env, HF_HUB_CACHE: `${cwd}/no-cache` };
  const { status, stdout, stderr } = spawnSync(process.execPath, command, { encoding: "utf8", cwd, env });
  const [, text = "", peak] = /^(.*)peak (\d+)\n$/s.exec(stderr) ?? [];
  return { code: status, stdout, stderr: text, peak: Number(peak) * 1024 };
}

/** `1.5 GB` -> bytes. */
function bytesIn(text: string, pattern: RegExp): number {
  const [, number, unit = ""] = pattern.exec(text) ?? [];
  return Number(number) * 1024 ** ["B", "KB", "MB", "GB"].indexOf(unit);
}

const time = /Time, an estimate from a probe of [\d.]+m?s: [\d.]+m?s per step/;

describe("of ppo", () => {
  const keys = () => yard.args("run", ["algorithm.adv_estimator=gae", "actor_rollout_ref.actor.use_kl_loss=true"]);

  test("names every role with its parameters, the rows, the steps and the time of each phase; the disk stays as it is", () => {
    const before = readdirSync(yard.root, { recursive: true }).sort();
    const { code, stdout, stderr } = trainyard(yard.root, ...keys(), "--dry-run");
    expect(code).toBe(0);
    expect(parse(stdout).actor_rollout_ref.model.path).toBe(yard.model);
    for (const role of ["actor    ", "reference", "critic   "])
      expect(stderr).toMatch(new RegExp(`^${role}  llama, 2\\.[69]K parameters: weights 1[01] KB`, "m"));
    expect(stderr).toMatch(/^reference .*: weights 11 KB, activations/m);
    expect(stderr).toMatch(/^16 prompts of 4 tokens: 2 steps of 4 x 4\.$/m);
    expect(stderr).toMatch(time);
    expect(stderr).toMatch(/\(gen .*, check .*, ref .*, values .*, update_critic .*, update_actor /);
    expect(readdirSync(yard.root, { recursive: true }).sort()).toEqual(before);
  });

  test("estimates the memory of the run to within a third", () => {
    const reward = yard.path("reward.ts");
    writeFileSync(reward, "export const compute_score = () => 1;");
    const args = [...keys(), `custom_reward_function.path=${reward}`];
    const estimated = bytesIn(
      trainyard(yard.root, ...args, "--dry-run").stderr,
      /Memory, an estimate: ([\d.]+) (\w+) of/,
    );
    const { code, peak } = trainyard(yard.root, ...args);
    expect(code).toBe(0);
    expect(peak / estimated).toBeGreaterThan(1 / 1.3);
    expect(peak / estimated).toBeLessThan(1.3);
    rmSync(yard.path("run"), { recursive: true });
  });
});

test.each([
  ["sft", () => sandbox.args("run"), /^32 rows of \d+ tokens and 8 to validate on: 16 steps of 8\.$/m],
  [
    "reward",
    () => [
      "reward",
      `model.path=${sandbox.model}`,
      `data.train_files=${sandbox.path("pairs.jsonl")}`,
      "data.train_batch_size=4",
      "trainer.threads=1",
      "trainer.total_epochs=1",
      "data.val_files=null",
    ],
    /^8 pairs of \d+ tokens a side: 2 steps of 4\.$/m,
  ],
])("of %s names the model, the rows, the steps and the time", (_, args, rows) => {
  const { code, stdout, stderr } = trainyard(sandbox.root, ...args(), "--dry-run");
  expect(code).toBe(0);
  expect(parse(stdout).model.path).toBe(sandbox.model);
  expect(stderr).toMatch(/^model {2}llama, \d+\.\dK parameters: weights .*, gradients .*, optimizer .*, activations /m);
  expect(stderr).toMatch(rows);
  expect(stderr).toMatch(time);
  expect(readdirSync(sandbox.root)).not.toContain("checkpoints");
});

test("a model that a run would download is named, and not downloaded", () => {
  const { code, stdout, stderr } = trainyard(sandbox.root, "sft", "model.path=owner/name", "--dry-run");
  expect(code).toBe(0);
  expect(parse(stdout).model.path).toBe("owner/name");
  expect(stderr).toBe(
    "owner/name is not on this machine: a run downloads it first. Sizes and times are known once it is there.\n",
  );
});

test("a model that does not fit is not probed", async () => {
  const large = await yard.makeModel("large", charConfig); // the estimate reads the config alone
  const config = { ...charConfig, hidden_size: 2 ** 16, intermediate_size: 2 ** 18, num_hidden_layers: 8 };
  writeFileSync(`${large}/config.json`, JSON.stringify(config));
  const args = yard.args("run", [`actor_rollout_ref.model.path=${large}`]);
  const { code, stderr } = trainyard(yard.root, ...args, "--dry-run");
  expect(stderr).toMatch(/^actor {2}llama, 5\d\dB parameters: weights 1\.\d TB, gradients/m);
  expect(stderr).toMatch(/^warning: That is more than there is\./m);
  expect(stderr).not.toMatch(time);
  expect(code).toBe(0);
});

test.each([
  ["a model that is no folder", ["model.path=nowhere"], /^There is no folder "nowhere"/m],
  ["a file that is missing", ["data.train_files=nothing.jsonl"], /nothing\.jsonl does not exist/],
  ["fewer rows than a batch", ["data.train_batch_size=64"], /There are 32 rows, which is less than one batch of 64/],
])("what stops the run stops the dry run, after the config: %s", (_, overrides, message) => {
  const { code, stdout, stderr } = trainyard(sandbox.root, ...sandbox.args("run", overrides), "--dry-run");
  expect(stderr).toMatch(message);
  expect(stderr).not.toMatch(/\n\s+at /);
  expect(code).toBe(2);
  expect(parse(stdout)).toHaveProperty("trainer.threads", 2);
});
