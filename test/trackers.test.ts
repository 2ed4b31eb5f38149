/**
 * `trainer.logger` from the outside: what trackers are given by `trainyard sft` and `trainyard reward`, whole runs and
 * broken ones. What a tracker makes of it is tested beside each of them, in src/track.
 */
import { spawnSync } from "node:child_process";
import { readdir, readFile } from "node:fs/promises";
import { createServer, type Server } from "node:http";
import { text } from "node:stream/consumers";
import { fileURLToPath } from "node:url";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { z } from "zod";
import { Child, Sandbox, sum } from "./sandbox.ts";

const launcher = fileURLToPath(new URL("../bin/trainyard.js", import.meta.url));

let box: Sandbox;
let commands: Readonly<Record<string, readonly string[]>> = {};
beforeAll(async () => {
  box = await Sandbox.make();
  const pair = (i: number) => ({ prompt: sum(i).question, chosen: `${2 * i}.`, rejected: "No." });
  const pairs = await box.writeLines(
    "pairs.jsonl",
    Array.from({ length: 32 }, (_, i) => pair(i)),
  );
  const small = ["data.train_batch_size=8", "data.max_length=128", "trainer.threads=2", "trainer.test_freq=2"];
  commands = {
    sft: box.args("", ["trainer.test_freq=2"]),
    reward: ["reward", `model.path=${box.model}`, `data.train_files=${pairs}`, "data.val_size=8", ...small],
  };
});
afterAll(() => box.remove());

const verbs = ["sft", "reward"];
const argsOf = (verb: string, run: string, ...overrides: readonly string[]) => [
  launcher,
  ...commands[verb]!,
  `trainer.default_local_dir=${box.path(run)}`,
  ...overrides,
];
/** The command under a shell line that may set variables or limits for it; its folder is the sandbox. */
const start = (setting: string, args: readonly string[]) =>
  new Child(["sh", "-c", `${setting} exec "$@"`, "sh", process.execPath, ...args], box.root);

describe.each(verbs)("%s", (verb) => {
  test("gives each tracker every step, once, however often the run was stopped", async () => {
    const run = `${verb}-stopped`;
    const args = argsOf(
      verb,
      run,
      "trainer.total_training_steps=60",
      "trainer.logger=[console,file,tensorboard,wandb]",
    );
    const setting = `export VERL_FILE_LOGGER_PATH=${run}.jsonl TENSORBOARD_DIR=${run}-events;`;
    const stopped = start(setting, args);
    await stopped.saying(/^step 2\//m);
    stopped.process.kill("SIGINT");
    expect(await stopped.ended).toBe(130);
    expect(await start(setting, args).ended).toBe(0);

    const metrics = await readFile(box.path(run, "metrics.jsonl"), "utf8");
    expect(metrics.match(/"step":/g)).toHaveLength(60);
    expect(await readFile(box.path(`${run}.jsonl`), "utf8")).toBe(metrics);
    expect(await readdir(box.path(`${run}-events`))).toHaveLength(2);
    expect(await readdir(box.path(run, "wandb"))).toHaveLength(2);
  });

  test("killed with all trackers and started again ends with the bytes of an unbroken run without any", async () => {
    const keys = ["trainer.total_training_steps=16", "trainer.save_freq=1", "trainer.max_ckpt_to_keep=1"];
    const run = `${verb}-killed`;
    const args = argsOf(verb, run, ...keys, "trainer.logger=[console,file,tensorboard,wandb]");
    const setting = `export VERL_FILE_LOGGER_PATH=${run}.jsonl TENSORBOARD_DIR=${run}-events;`;
    const killed = start(setting, args);
    await killed.saying(/^step 2\//m);
    killed.process.kill("SIGKILL");
    expect(await killed.ended).toBe("SIGKILL");
    const again = start(setting, args);
    expect(await again.ended).toBe(0);
    expect(again.said).toMatch(/Resuming from /);
    expect(await start("", argsOf(verb, `${verb}-bare`, ...keys, "trainer.logger=null")).ended).toBe(0);
    expect(await box.outcome(run)).toEqual(await box.outcome(`${verb}-bare`));
  });

  test("shows verl's line of each step on stdout and in log.txt, and no other line of a step", async () => {
    const args = argsOf(verb, `${verb}-verl`, "trainer.total_training_steps=3", "trainer.console=verl");
    const { status, stdout, stderr } = spawnSync(process.execPath, args, { encoding: "utf8" });
    expect(status).toBe(0);
    const lines = stdout.trimEnd().split("\n");
    expect(lines.map((line) => line.split(" - ")[0])).toEqual(["step:1", "step:2", "step:3"]);
    expect(stderr).not.toMatch(/^step/m);
    const log = await readFile(box.path(`${verb}-verl`, "log.txt"), "utf8");
    expect(lines.filter((line) => log.split(line).length !== 2)).toEqual([]);
  });

  test("with no tracker is silent about steps and still writes metrics.jsonl", async () => {
    const args = argsOf(verb, `${verb}-none`, "trainer.total_training_steps=2", "trainer.logger=null");
    const { status, stdout, stderr } = spawnSync(process.execPath, args, { encoding: "utf8" });
    expect({ status, stdout }).toEqual({ status: 0, stdout: "" });
    expect(stderr).not.toMatch(/^step/m);
    expect(await box.metrics(`${verb}-none`)).toHaveLength(2);
  });
});

describe("a tracker learns that the run", () => {
  let server: Server;
  let address = "";
  let statuses: string[] = [];
  const run = { info: { run_id: "r1", artifact_uri: "mlflow-artifacts:/1/r1/artifacts" } };
  const answers: Readonly<Record<string, unknown>> = {
    "experiments/get-by-name": { experiment: { experiment_id: "1", lifecycle_stage: "active" } },
    "runs/search": { runs: [run] },
  };

  /** As much of MLflow as a run asks for. */
  beforeEach(async () => {
    statuses = [];
    server = createServer(async (request, response) => {
      const call = /mlflow\/([\w/-]+)/.exec(request.url ?? "")?.[1] ?? "";
      const body = await text(request);
      if (call === "runs/update") statuses.push(z.object({ status: z.string() }).parse(JSON.parse(body)).status);
      response.setHeader("content-type", "application/json").end(JSON.stringify(answers[call] ?? { run }));
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    address = `http://127.0.0.1:${z.object({ port: z.number() }).parse(server.address()).port}`;
  });
  afterEach(() => {
    server.close();
    server.closeAllConnections();
  });

  describe.each(verbs)("of %s", (verb) => {
    const begin = (name: string, limits: string, ...overrides: readonly string[]) => {
      const args = argsOf(verb, `${verb}-${name}`, "trainer.logger=[console,mlflow]", ...overrides);
      return start(`export MLFLOW_TRACKING_URI=${address}; ${limits}`, args);
    };

    test("has finished", async () => {
      const child = begin("finished", "", "trainer.total_training_steps=2");
      expect(await child.ended).toBe(0);
      expect(statuses).toEqual(["FINISHED"]);
    });

    test("was stopped, and goes on when it is resumed", async () => {
      const keys = ["trainer.total_training_steps=60"];
      const child = begin("stopped-there", "", ...keys);
      await child.saying(/^step 2\//m);
      child.process.kill("SIGINT");
      expect(await child.ended).toBe(130);
      expect(statuses).toEqual(["KILLED"]);
      expect(await begin("stopped-there", "", ...keys).ended).toBe(0);
      expect(statuses).toEqual(["KILLED", "RUNNING", "FINISHED"]);
    });

    test.skipIf(process.platform === "win32")("has failed (skipped on Windows: no limit on files)", async () => {
      const limit = 'trap "" XFSZ; ulimit -f 200;'; // half-kilobytes: less than a checkpoint
      const child = begin("failed", limit, "trainer.total_training_steps=4", "trainer.save_freq=1");
      expect(await child.ended).toBe(2);
      expect(child.said).toMatch(/global_step_1\S* cannot be written/);
      expect(statuses).toEqual(["FAILED"]);
    });
  });
});
