/** Where a run is kept that nobody has named, and what takes a run folder for a model. */
import { spawn, spawnSync } from "node:child_process";
import { cp, mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Sandbox } from "./sandbox.ts";

const launcher = join(import.meta.dirname, "../bin/trainyard.js");
let box: Sandbox;
beforeAll(async () => {
  box = await Sandbox.make();
  expect(await box.sft("run", "trainer.total_training_steps=1")).toMatchObject({ code: 0 });
});
afterAll(() => box.remove());

const trainyard = (cwd: string, args: readonly string[], input = "") => {
  const { status, stdout, stderr } = spawnSync(process.execPath, [launcher, ...args], { cwd, input, encoding: "utf8" });
  return { code: status, stdout, stderr };
};

describe("a run without a name", () => {
  const keys = () => box.args("x", ["trainer.total_training_steps=1"]).filter((it) => !/default_local_dir/.test(it));
  const config = "model: {custom_chat_template: null}\n";

  test("is called by the folder and the file of its config, also trainyard.config.ts", async () => {
    const folder = box.path("sums");
    await mkdir(folder);
    await writeFile(join(folder, "fast.yaml"), config);
    expect(trainyard(folder, [...keys(), "fast.yaml"])).toMatchObject({ code: 0 });
    expect(await readdir(join(folder, "checkpoints"))).toEqual(["sums"]);
    expect(await readdir(join(folder, "checkpoints/sums/fast"))).toContain("global_step_1");
    await writeFile(join(folder, "trainyard.config.ts"), "export default { model: { custom_chat_template: null } };\n");
    expect(trainyard(folder, [...keys(), "--cfg", "job"]).stdout).toMatch(
      /default_local_dir: checkpoints\/sums\/trainyard$/m,
    );
    const named = trainyard(folder, [...keys(), "fast.yaml", "trainer.experiment_name=mine", "--cfg", "job"]);
    expect(named.stdout).toMatch(/default_local_dir: checkpoints\/gsm8k-sft\/mine$/m);
  });

  test("has verl's names on a bare command line, and a run there is pointed out later", async () => {
    const folder = box.path("former");
    await mkdir(folder);
    expect(trainyard(folder, keys())).toMatchObject({ code: 0 });
    expect(await readdir(join(folder, "checkpoints/gsm8k-sft/test"))).toContain("global_step_1");
    await writeFile(join(folder, "fast.yaml"), config);
    const { code, stderr } = trainyard(folder, [...keys(), "fast.yaml"]);
    expect(stderr).toContain(
      "This run is in checkpoints/former/fast. checkpoints/gsm8k-sft/test has one from before config files named their runs; " +
        "to go on with that one, add trainer.default_local_dir=checkpoints/gsm8k-sft/test\n",
    );
    expect(code).toBe(0);
    expect(trainyard(folder, [...keys(), "fast.yaml"]).stderr).not.toContain("from before"); // it has its own run now
  });
});

describe("a run folder or a checkpoint is its actor", () => {
  const actor = () => box.path("run", "global_step_1", "actor");

  test.each([["run"], ["run/global_step_1"], ["run/global_step_1/actor"]])("chat %s", (path) => {
    const { code, stdout, stderr } = trainyard(box.root, ["chat", path, "--max-tokens", "3", "--seed", "1"], "1+1=?\n");
    expect(stderr).toMatch(
      path.endsWith("actor") ? /^Talking to / : /^The model of .* is run\/global_step_1\/actor\.\n/,
    );
    expect(stdout).not.toBe("");
    expect(code).toBe(0);
  });

  test("generate", async () => {
    await box.writeLines("prompts.jsonl", [{ prompt: "1+1=?" }, { prompt: "2+2=?" }]);
    const generate = async (path: string, output: string) => {
      const keys = [
        `data.path=${box.path("prompts.jsonl")}`,
        `data.output_path=${box.path(output)}`,
        "rollout.temperature=0",
        "data.n_samples=1",
        "rollout.prompt_length=64",
      ];
      const { code, said } = await box.command("generate", `model.path=${path}`, ...keys, "rollout.response_length=4");
      expect(code, said).toBe(0);
      return await readFile(box.path(output), "utf8");
    };
    expect(await generate(box.path("run"), "of-run.jsonl")).toBe(await generate(actor(), "of-actor.jsonl"));
  });

  test("serve", async () => {
    const child = spawn(process.execPath, [launcher, "serve", "run", "--port", "0", "--threads", "1"], {
      cwd: box.root,
      stdio: ["ignore", "pipe", "inherit"],
    });
    let said = "";
    for await (const chunk of child.stdout) {
      said += chunk;
      if (said.includes("Ctrl-C")) break;
    }
    const [, url] = /^Serving run \(.* at (http:\S+)\/v1\n/.exec(said)!;
    const models = await (await fetch(`${url}/v1/models`)).json();
    expect(models).toMatchObject({ data: [{ id: "run" }] });
    child.kill("SIGTERM");
    await new Promise((done) => child.once("close", done));
  });

  test("what has none says so", async () => {
    await cp(box.path("run"), box.path("rewarded"), { recursive: true });
    await cp(actor(), box.path("rewarded/global_step_1/reward"), { recursive: true });
    await rm(box.path("rewarded/global_step_1/actor"), { recursive: true });
    const rewarded = trainyard(box.root, ["chat", "rewarded"], "");
    expect(rewarded).toMatchObject({
      code: 2,
      stderr: expect.stringMatching(/global_step_1 has no actor, and only an actor writes text\. It holds: reward\./),
    });
    await rm(box.path("rewarded/global_step_1"), { recursive: true });
    await rm(box.path("rewarded/latest_checkpointed_iteration.txt"));
    expect(trainyard(box.root, ["chat", "rewarded"]).stderr).toMatch(
      /rewarded is a run folder without a checkpoint, so it has no model yet/,
    );
  });
});
