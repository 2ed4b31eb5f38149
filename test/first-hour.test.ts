/** What a new user meets in the first hour: small things that a command says or takes. */
import { spawn, spawnSync } from "node:child_process";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { charConfig, Yard } from "./rl-yard.ts";
import { Sandbox } from "./sandbox.ts";

const launcher = join(import.meta.dirname, "../bin/trainyard.js");
const config = `import { defineConfig } from "trainyard";
export default defineConfig({
  data: { train_files: "train.jsonl", train_batch_size: 4, max_prompt_length: 8, max_response_length: 6 },
  actor_rollout_ref: { model: { path: "model" }, actor: { ppo_mini_batch_size: 4 }, rollout: { n: 2 } },
  algorithm: { adv_estimator: "grpo" },
  custom_reward_function: ({ response }) => response.split("7").length - 1,
  trainer: { total_training_steps: 1, logger: [], threads: 1, default_local_dir: "run" },
});
`;

let yard: Yard;
beforeAll(async () => {
  yard = await Yard.make();
  await writeFile(yard.path("trainyard.config.ts"), config);
});
afterAll(() => yard.remove());

function trainyard(args: readonly string[], { cwd = yard.root, env = {}, input = "" } = {}) {
  const options = { cwd, input, encoding: "utf8", env: { ...process.env, ...env } } as const;
  const { status, stdout, stderr } = spawnSync(process.execPath, [launcher, ...args], options);
  return { code: status, stdout, stderr };
}

test("the config that is printed can be given back, with its inline reward", async () => {
  const printed = trainyard(["ppo", "--cfg", "job"]);
  expect(printed).toMatchObject({ code: 0, stdout: expect.stringContaining("kind: config") });
  await writeFile(yard.path("printed.yaml"), printed.stdout);
  expect(trainyard(["ppo", "printed.yaml", "--cfg", "job"]).stdout).toBe(printed.stdout);
  const run = trainyard(["ppo", "printed.yaml"]);
  expect(run.stderr).toMatch(/Done: 1 step\. The model is in run\/global_step_1\/actor\n/);
  expect(run.code).toBe(0);
  const [line] = (await readFile(yard.path("run/metrics.jsonl"), "utf8")).split("\n");
  expect(JSON.parse(line!).data["critic/score/max"]).toBeGreaterThan(0); // the reward was called
});

test("`data validate` takes the config of a run, and leaves its files alone", async () => {
  const { code, stdout, stderr } = trainyard(["data", "validate", "train.jsonl", "trainyard.config.ts"]);
  expect(stdout).toMatch(/^train\.jsonl: 16 rows, checked for `trainyard ppo`\.\n/);
  expect(stdout).toMatch(/The prompts have 4 to 4 tokens.*`data\.max_prompt_length` is 8/); // the config's model and key
  expect(stdout).toMatch(/`trainyard ppo` would take these rows, with 1 warning\.\n$/);
  expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
  const short = trainyard(["data", "validate", "train.jsonl", "trainyard.config.ts", "data.max_prompt_length=3"]);
  expect(short.stdout).toMatch(/`trainyard ppo` would stop/);
  const other = trainyard(["data", "validate", "train.jsonl", "trainyard.config.ts", "--for", "sft"]);
  expect(other).toMatchObject({ code: 2, stderr: expect.stringMatching(/is a config of `trainyard ppo`/) });
});

test.each([
  [["ppo", "--hlep"], /^`--hlep` is no option\. Did you mean --help\?/],
  [["ppo", "--dryrun"], /^`--dryrun` is no option\. Did you mean --dry-run\?/],
  [["--hlep"], /^`--hlep` is no option of trainyard\. Did you mean --help\?/],
  [["chat", "--hlep"], /^`--hlep` is no option\. Did you mean --help\?/],
])("%j is guessed", (args, says) => {
  expect(trainyard(args)).toMatchObject({ code: 2, stderr: expect.stringMatching(says) });
});

const canMount = spawnSync("unshare", ["-rm", "true"]).status === 0;
describe.skipIf(!canMount)("a read-only file system is told as such", () => {
  test.each([
    ["a run folder", ["ppo", "trainer.default_local_dir=ro/run"], "ro/run"],
    ["an export", ["export", "model", "--to", "ro/model"], "ro/model"],
    [
      "generated rows",
      ["generate", "model.path=model", "data.path=train.jsonl", "data.output_path=ro/o.jsonl"],
      "ro/o.jsonl.lock",
    ],
  ])("%s", (_, args, path) => {
    const mount = "mkdir -p ro && mount -t tmpfs none ro && mount -o remount,ro ro";
    const command = [process.execPath, launcher, ...args].map((it) => `'${it}'`).join(" ");
    const { stderr, status } = spawnSync("unshare", ["-rm", "sh", "-c", `${mount} && exec ${command}`], {
      cwd: yard.root,
      encoding: "utf8",
    });
    expect(stderr).toContain(`${path} cannot be written: the file system is read-only. Choose another folder`);
    expect(status).toBe(2);
  });
});

test.each([
  ["vision_config", /Models that read images or sound are not supported, on Ray neither\./],
  ["other", /with trainer\.engine=ray all causal language models of transformers\./],
])("a model of another family with %s in its config.json is told what there is", async (key, says) => {
  const folder = await yard.makeModel(`of-${key}`, charConfig);
  await writeFile(`${folder}/config.json`, JSON.stringify({ ...charConfig, model_type: "elsewhere", [key]: {} }));
  const { code, stderr } = trainyard([
    "ppo",
    `actor_rollout_ref.model.path=${folder}`,
    "trainer.default_local_dir=none",
  ]);
  expect({ code, stderr }).toEqual({ code: 2, stderr: expect.stringMatching(says) });
});

describe("TRAINYARD_API_KEY or OPENAI_API_KEY is the key of", () => {
  let box: Sandbox;
  beforeAll(async () => {
    box = await Sandbox.make();
  });
  afterAll(() => box.remove());

  test.each([
    [
      { TRAINYARD_API_KEY: "abc", OPENAI_API_KEY: "other" },
      { TRAINYARD_API_KEY: "", OPENAI_API_KEY: "abc" },
    ],
    [
      { TRAINYARD_API_KEY: "", OPENAI_API_KEY: "abc" },
      { TRAINYARD_API_KEY: "abc", OPENAI_API_KEY: "other" },
    ],
  ])("serve (%j) and of chat (%j)", async (served, asked) => {
    const child = spawn(process.execPath, [launcher, "serve", box.model, "--port", "0", "--threads", "1"], {
      env: { ...process.env, ...served },
      stdio: ["ignore", "pipe", "inherit"],
    });
    const closed = new Promise((done) => child.once("close", done));
    try {
      let said = "";
      for await (const chunk of child.stdout) {
        said += chunk;
        if (said.includes("Ctrl-C")) break;
      }
      const [, url = ""] = / at (http:\S+)\n/.exec(said)!;
      const chat = (env: Record<string, string>) =>
        trainyard(["chat", "--url", url, "--max-tokens", "2"], { cwd: box.root, env, input: "Hello\n" });
      expect(chat(asked)).toMatchObject({ code: 0, stderr: expect.stringContaining("Talking to model at") });
      expect(chat({ TRAINYARD_API_KEY: "wrong", OPENAI_API_KEY: "abc" }).code).toBe(2);
    } finally {
      child.kill("SIGTERM");
      await closed;
    }
  });
});
