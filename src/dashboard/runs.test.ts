/** Which folders are runs, and what the overview says of each: from files that the run room wrote. */
import { spawn } from "node:child_process";
import { appendFile, cp, mkdir, mkdtemp, readFile, rm, utimes, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { writeRun, writeStep } from "../../test/dashboard-yard.ts";
import { claimRun } from "../run/run.ts";
import { UserError } from "../util/errors.ts";
import { setLevel } from "../util/log.ts";
import { checkHoldsRuns, findRuns } from "./find-runs.ts";
import { RunView } from "./run-view.ts";

let root: string;
beforeAll(() => setLevel("quiet"));
afterAll(() => setLevel("info"));
beforeEach(async () => {
  root = await mkdtemp(join(tmpdir(), "trainyard-runs-"));
});
afterEach(() => rm(root, { recursive: true, force: true }));

const at = (...names: readonly string[]) => join(root, ...names);
const summaryOf = (dir: string) => new RunView("x", dir).summary();

describe("finding runs", () => {
  test("searches any depth, but no run, no hidden folder and no node_modules", async () => {
    for (const name of ["b", "a/10", "a/9", "a/deep/er/run", ".hidden/run", "node_modules/run", "b/global_step_1/x"]) {
      await mkdir(at(name), { recursive: true });
      await writeFile(at(name, "metrics.jsonl"), "");
    }
    await mkdir(at("model"));
    await writeFile(at("model", "config.json"), "{}");
    expect(await findRuns(root)).toEqual(["a/9", "a/10", "a/deep/er/run", "b"]);
    expect(await findRuns(at("b"))).toEqual(["."]);
    await expect(checkHoldsRuns(root)).resolves.toBeUndefined();
  });

  const wrong: Record<string, [make: () => Promise<string>, message: RegExp]> = {
    "that does not exist": [async () => at("nothing"), /nothing does not exist\. Name a run folder/],
    "without a run": [async () => root, /is not a run folder and contains none: there is no metrics\.jsonl in it\./],
    "that is a checkpoint": [
      async () => {
        await mkdir(at("run", "global_step_5"), { recursive: true });
        await writeFile(at("run", "metrics.jsonl"), "");
        return at("run", "global_step_5");
      },
      /It is a checkpoint of the run .*run: name that\.$/,
    ],
  };
  for (const [what, [make, message]] of Object.entries(wrong)) {
    test(`refuses a folder ${what}`, async () => {
      const error: unknown = await checkHoldsRuns(await make()).catch((thrown: unknown) => thrown);
      expect(error).toBeInstanceOf(UserError);
      expect(String(error)).toMatch(message);
    });
  }
});

describe("the status of a run", () => {
  const story = { steps: 4, total: 10, rolloutsEvery: 0 };

  test("is live while it is written, then stopped, and finished once it has all its steps", async () => {
    const dir = at("run");
    const claim = await claimRun(dir);
    const run = await claim.begin({ trainer: { total_training_steps: 3 } });
    expect(await summaryOf(dir)).toMatchObject({ status: "live", step: 0, total: 3, headline: null });
    await writeStep(run, 1, story);
    expect(await summaryOf(dir)).toMatchObject({ status: "live", step: 1, total: 3 });
    await claim.close();
    expect(await summaryOf(dir)).toMatchObject({ status: "stopped", step: 1, total: 3 });
    await writeRun(dir, { ...story, total: 4 });
    expect(await summaryOf(dir)).toMatchObject({ status: "finished", step: 4, total: 4 });
  });

  test("is stopped as soon as its process is gone, whatever its lock says", async () => {
    const dir = at("run");
    await writeRun(dir, story);
    const child = spawn(process.execPath, ["-e", ""]);
    await new Promise((resolve) => child.once("close", resolve));
    const lock = { pid: child.pid, host: (await import("node:os")).hostname(), boot: "", started: "" };
    await writeFile(join(dir, "run.lock"), JSON.stringify(lock));
    expect((await summaryOf(dir)).status).toBe("stopped");
    await writeFile(join(dir, "run.lock"), JSON.stringify({ ...lock, pid: process.pid }));
    expect((await summaryOf(dir)).status).toBe("live");
  });

  test("with a lock of another machine is live until the lock was not touched for a minute", async () => {
    const dir = at("run");
    await writeRun(dir, story);
    const lock = join(dir, "run.lock");
    await writeFile(lock, JSON.stringify({ pid: 1, host: "elsewhere", boot: "", started: "" }));
    expect((await summaryOf(dir)).status).toBe("live");
    const longAgo = new Date(Date.now() - 120_000);
    await utimes(lock, longAgo, longAgo);
    expect((await summaryOf(dir)).status).toBe("stopped");
  });

  const said: readonly [line: string, status: string, total: number | null][] = [
    ["Done: 4 steps. The run folder is here.", "finished", null],
    ["Stopped after step 4 of 12 and saved.", "stopped", 12],
    ["Training on: Done: nothing", "stopped", null],
  ];
  for (const [line, status, total] of said) {
    test(`is ${status} when the config has no number of steps and the log ends with “${line}”`, async () => {
      const dir = at("run");
      await writeRun(dir, story);
      await writeFile(join(dir, "config.json"), '{"trainer":{"total_training_steps":null}}');
      await appendFile(join(dir, "log.txt"), `2026-01-01T00:00:00.000Z ${line}\n`);
      expect(await summaryOf(dir)).toMatchObject({ status, total });
    });
  }

  test("survives a copy, and a folder with files that cannot be read", async () => {
    await writeRun(at("run"), story);
    await cp(at("run"), at("copy"), { recursive: true });
    const { updatedAt: _, ...whole } = await summaryOf(at("run"));
    expect(await summaryOf(at("copy"))).toMatchObject(whole);
    for (const name of ["config.json", "run.lock", "log.txt"]) await writeFile(at("copy", name), "\0{");
    await appendFile(at("copy", "metrics.jsonl"), '{"step":5,"data":{"critic/sc');
    expect(await summaryOf(at("copy"))).toMatchObject({ status: "stopped", step: 4, total: null });
  });
});

test("a summary of a long run has the last values, found in a part of the file", async () => {
  const dir = at("run");
  await writeRun(dir, { steps: 1200, rolloutsEvery: 0 });
  const lines = (await readFile(join(dir, "metrics.jsonl"), "utf8")).trimEnd().split("\n");
  const last = JSON.parse(lines.at(-1)!);
  const { headline, validation, step, stepSeconds } = await summaryOf(dir);
  expect(step).toBe(1200);
  expect(headline).toMatchObject({ label: "Reward", value: last.data["critic/score/mean"] });
  expect(validation).toMatchObject({ name: "val-core/sums/acc/mean@4", value: last.data["val-core/sums/acc/mean@4"] });
  const series = headline?.series ?? [];
  expect(series).toHaveLength(48);
  expect(series.at(-1)! - series[0]!).toBeGreaterThan(0.4);
  expect(stepSeconds).toBeGreaterThan(10);
});
