/**
 * What `npm start` does, and the loop that is spelt out: each run for a few steps as a user runs it, in a process of its
 * own. Whether they learn is a question of minutes: test/long/quickstart.long.ts asks it.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import { loadModel } from "../src/index.ts";
import { readMetrics } from "../src/run/metrics.ts";

const root = join(import.meta.dirname, "..");
const shipped = join(root, "examples/quickstart");
const out = mkdtempSync(join(tmpdir(), "trainyard-quickstart-"));
afterAll(() => rmSync(out, { recursive: true, force: true }));

type Ended = { readonly code: number | null; readonly stdout: string; readonly stderr: string };

/** Run a script of this repository; `watch` sees what it has said so far, whenever it says more. */
function run(args: readonly string[], watch: (said: string, child: ChildProcess) => void = () => {}): Promise<Ended> {
  const child = spawn(process.execPath, [...args], { cwd: out, stdio: ["ignore", "pipe", "pipe"] });
  const said = { stdout: "", stderr: "" };
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    said.stdout += text;
  });
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    said.stderr += text;
    watch(said.stderr, child);
  });
  return new Promise((done) => child.once("close", (code) => done({ code, ...said })));
}

describe("what is shipped", () => {
  test("takes at most 2 MB, its weights in two bytes each", () => {
    const files = readdirSync(shipped, { recursive: true, encoding: "utf8" }).map((name) => join(shipped, name));
    expect(files.reduce((bytes, file) => bytes + statSync(file).size, 0)).toBeLessThan(2 * 2 ** 20);
    const weights = readFileSync(join(shipped, "model/model.safetensors"));
    const header: Record<string, { dtype?: string }> = JSON.parse(
      weights.toString("utf8", 8, 8 + Number(weights.readBigUInt64LE(0))),
    );
    const kinds = new Set(
      Object.entries(header).flatMap(([name, { dtype }]) => (name === "__metadata__" ? [] : dtype)),
    );
    expect([...kinds]).toEqual(["BF16"]);
  });

  test("gets three sums in ten right, and most others where it carries nothing", async () => {
    const lines = readFileSync(join(shipped, "test.jsonl"), "utf8").trim().split("\n");
    const tasks: { prompt: { role: string; content: string }[]; reward_model: { ground_truth: string } }[] = lines.map(
      (line) => JSON.parse(line),
    );
    await using model = await loadModel(join(shipped, "model"));
    const answers = await Promise.all(tasks.map(({ prompt }) => model.chat(prompt, { temperature: 0 })));
    const right = tasks.filter((task, i) => answers[i] === task.reward_model.ground_truth);
    expect(right.length / tasks.length).toBeGreaterThan(0.2);
    expect(right.length / tasks.length).toBeLessThan(0.4);
    const isForgetful = (question: string, answer: string) => {
      const [a = 0, b = 0] = question.match(/\d+/g)!.map(Number);
      return Number(answer) === ((Math.floor(a / 10) + Math.floor(b / 10)) % 10) * 10 + ((a + b) % 10);
    };
    const forgetful = tasks.filter(({ prompt }, i) => isForgetful(prompt[0]!.content, answers[i]!));
    expect(forgetful.length / tasks.length).toBeGreaterThan(0.9);
  }, 120_000);
});

describe("npm start", () => {
  const script = join(root, "scripts/quickstart.ts");
  const small = ["data.train_batch_size=16", "data.val_max_samples=8", "trainer.threads=1"];
  const sizes = ["actor_rollout_ref.actor.ppo_mini_batch_size=16", "critic.ppo_mini_batch_size=16"];
  const start = (name: string, steps: number, ...more: readonly string[]) => [
    script,
    ...small,
    ...sizes,
    `trainer.total_training_steps=${steps}`,
    `trainer.default_local_dir=${join(out, name)}`,
    ...more,
  ];

  test("trains, shows where to look, and ends with answers before and after and three commands", async () => {
    const { code, stdout, stderr } = await run(start("short", 3));
    expect(stderr).toMatch(/Dashboard: http:\/\/127\.0\.0\.1:\d+\n/);
    expect(stderr).toMatch(/^step 3\/3 · critic\/score\/mean \d/m);
    expect(`${stdout}${stderr}`).not.toContain("\x1b"); // not a terminal: plain lines
    expect(stdout.match(/^ {2}\d+\+\d+=\? +\d+ [✓✗] +\d+ [✓✗]$/gm)).toHaveLength(6);
    expect(stdout).toMatch(/^ {2}accuracy +0\.\d\d +[01]\.\d\d$/m);
    const next = stdout.slice(stdout.indexOf("Next\n")).match(/^ {2}npx .+$/gm);
    expect(next).toEqual([
      expect.stringMatching(/^ {2}npx trainyard chat .*global_step_3\/actor$/),
      expect.stringMatching(/^ {2}npx trainyard dashboard .*short$/),
      "  npx node examples/loop.ts",
    ]);
    expect(code).toBe(0);
  }, 240_000);

  test("saves at Ctrl-C and says how to go on; then it goes on, or starts over when told to", async () => {
    let isAsked = false;
    const stopped = await run(start("stopped", 400), (said, child) => {
      if (isAsked || !/^step [1-9]/m.test(said)) return;
      isAsked = true;
      child.kill("SIGINT");
    });
    expect(stopped.stderr).toMatch(/Stopped after step \d+ of 400 and saved/);
    expect(stopped.stderr).toMatch(/npm start goes on; npm start -- --fresh starts over/);
    expect(stopped.code).toBe(130);
    const last = (await readMetrics(join(out, "stopped"))).at(-1)!.step;

    const resumed = await run(start("stopped", last + 1));
    expect(resumed.stderr).toContain(`global_step_${last}`);
    expect(resumed.code).toBe(0);
    expect((await readMetrics(join(out, "stopped"))).map(({ step }) => step)).toEqual([...Array(last + 2).keys()]);

    const fresh = await run(start("stopped", 1, "--fresh"));
    expect(fresh.stderr).not.toContain("Resuming from");
    expect(fresh.code).toBe(0);
    expect((await readMetrics(join(out, "stopped"))).map(({ step }) => step)).toEqual([0, 1]);
  }, 360_000);

  test("says what is wrong with a key, and what is near it", async () => {
    const { code, stderr } = await run([script, "trainer.total_trainig_steps=3"]);
    expect(stderr).toMatch(/total_trainig_steps.*total_training_steps/);
    expect(code).toBe(2);
  }, 120_000);
});

describe("examples/loop.ts", () => {
  const script = join(root, "examples/loop.ts");

  test("is at most 150 lines", () => {
    expect(readFileSync(script, "utf8").split("\n").length).toBeLessThanOrEqual(151);
  });

  test("runs for two steps", async () => {
    const { code, stdout, stderr } = await run([script, "2"]);
    expect(stderr).toBe("");
    expect(stdout).toMatch(/^accuracy 0\.[23]\d before training\n/);
    expect(stdout.match(/^step \d\/2 · reward 0\.\d\d █+$/gm)).toHaveLength(2);
    expect(stdout).toMatch(/0\.\d\d after 2 steps\n$/);
    expect(code).toBe(0);
  }, 120_000);
});
