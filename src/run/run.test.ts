import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdir, mkdtemp, readdir, readFile, rename, rm, symlink, truncate, utimes, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { isTiming } from "../../test/timings.ts";
import { linesOf } from "../../test/tracking.ts";
import { UserError } from "../util/errors.ts";
import { info, setLevel } from "../util/log.ts";
import { Random } from "../util/random.ts";
import { readMetrics } from "./metrics.ts";
import { claimRun, type Run, type RunOptions } from "./run.ts";

let root: string;
let dir: string;
const children: ChildProcess[] = [];

beforeEach(async () => {
  setLevel("quiet");
  root = await mkdtemp(join(tmpdir(), "trainyard-run-"));
  dir = join(root, "run");
});

afterEach(async () => {
  setLevel("info");
  for (const child of children.splice(0)) child.kill("SIGKILL");
  await rm(root, { recursive: true, force: true });
});

const config = { trainer: { total_training_steps: 4 } };
const pointer = () => readFile(join(dir, "latest_checkpointed_iteration.txt"), "utf8");
const metricsText = () => readFile(join(dir, "metrics.jsonl"), "utf8");
const hidden = async () => (await readdir(dir)).filter((name) => name.startsWith("."));
const checkpoints = async () => (await readdir(dir)).filter((name) => name.startsWith("global_step_")).sort();

/** Open, do something, close, whatever happens. */
async function inRun<T>(options: RunOptions, body: (run: Run) => Promise<T>, where = dir): Promise<T> {
  await using claim = await claimRun(where, options);
  return await body(await claim.begin(config));
}

/** The warnings that `work` gives. */
async function warnings(work: () => Promise<unknown>): Promise<string[]> {
  return (await linesOf(work)).filter((line) => line.startsWith("warning"));
}

/** A step as a trainer takes it: its metrics, then a checkpoint that holds one file. */
async function step(run: Run, n: number, text = `weights ${n}`): Promise<void> {
  await run.logMetrics(n, { "train/loss": 1 / n });
  await run.saveCheckpoint(n, (target) => writeFile(join(target, "weights"), text), { n });
}

const steps = (last: number, options: RunOptions = {}) =>
  inRun(options, async (run) => {
    for (let n = (run.start?.step ?? 0) + 1; n <= last; n++) await step(run, n);
  });

describe("a run folder", () => {
  test("holds the config, the metrics, the log, the checkpoints and a pointer to the last one", async () => {
    await inRun({}, async (run) => {
      setLevel("info");
      info("a line for the log");
      setLevel("quiet");
      await step(run, 1);
      await step(run, 2);
    });
    expect(JSON.parse(await readFile(join(dir, "config.json"), "utf8"))).toEqual(config);
    expect(await metricsText()).toBe('{"step":1,"data":{"train/loss":1}}\n{"step":2,"data":{"train/loss":0.5}}\n');
    expect(await readFile(join(dir, "log.txt"), "utf8")).toMatch(/^\d{4}-.*Z a line for the log\n$/);
    expect(await pointer()).toBe("2");
    expect(await readFile(join(dir, "global_step_2", "weights"), "utf8")).toBe("weights 2");
    expect(JSON.parse(await readFile(join(dir, "global_step_2", "state.json"), "utf8"))).toEqual({ n: 2 });
    expect(await readdir(dir)).not.toContain("run.lock");
    expect(await hidden()).toEqual([]);
  });

  test("gives back a metric that is not finite as NaN, from a line that is JSON", async () => {
    await inRun({}, (run) => run.logMetrics(1, { a: Number.NaN, b: Number.POSITIVE_INFINITY, c: 1 }));
    expect(JSON.parse(await metricsText()).data).toEqual({ a: null, b: null, c: 1 });
    expect(await readMetrics(dir)).toEqual([{ step: 1, data: { a: Number.NaN, b: Number.NaN, c: 1 } }]);
  });

  test("refuses metrics of a step whose checkpoint is already saved", async () => {
    await inRun({}, async (run) => {
      await step(run, 1);
      await expect(run.logMetrics(1, { late: 1 })).rejects.toThrow("internal: step 1 is logged after checkpoint 1");
    });
  });
});

describe("resuming", () => {
  test("auto starts at the beginning in an empty folder and at the last checkpoint otherwise", async () => {
    expect(await inRun({}, async (run) => [run.start, await run.latest()])).toEqual([null, null]);
    await steps(3);
    const found = {
      step: 3,
      dir: join(dir, "global_step_3"),
      state: { n: 3 },
      lines: { metrics: 3, rollouts: 0 },
    };
    expect(await inRun({}, async (run) => [run.start, await run.latest()])).toEqual([found, found]);
  });

  test("cuts the metrics after the step it resumes from, whatever was appended since", async () => {
    await steps(3);
    const saved = await metricsText();
    for (const tail of [
      "",
      '{"step":4,"data":{}}\n',
      '{"step":4,"da',
      '{"step":4,"data":{}}\n{"st',
      "\0\0\0",
      "\n",
      "[]\n",
    ]) {
      await writeFile(join(dir, "metrics.jsonl"), saved + tail);
      await inRun({}, async () => {});
      expect(await metricsText()).toBe(saved);
    }
  });

  const losses: Record<string, [change: (path: string) => Promise<void>, said: RegExp]> = {
    deleted: [
      (path) => rm(path),
      /metrics.jsonl has lost 3 lines: it had 3 lines at step 3 and has 0 that can be read/,
    ],
    "cut short": [async (path) => truncate(path, 40), /metrics.jsonl has lost 2 lines: .* has 1 that can be read/],
    garbled: [
      async (path) => writeFile(path, (await readFile(path, "utf8")).replace('{"step":2', '{"stop":2')),
      /metrics.jsonl has lost 2 lines: .* has 1 that can be read/,
    ],
  };
  for (const [what, [change, expected]] of Object.entries(losses)) {
    test(`says which lines are lost when the metrics were ${what}`, async () => {
      await steps(3);
      await change(join(dir, "metrics.jsonl"));
      const said = await warnings(() => inRun({}, async () => {}));
      expect(said).toEqual([expect.stringMatching(expected)]);
    });
  }

  test("says that rollouts are lost", async () => {
    await inRun({}, async (run) => {
      await run.logRollouts(1, "train", []);
      await step(run, 1);
    });
    await truncate(join(dir, "rollouts.jsonl"), 5);
    const said = await warnings(() => inRun({}, async () => {}));
    expect(said).toEqual([expect.stringMatching(/rollouts.jsonl has lost 1 line: it had 1 line at step 1/)]);
  });

  test("takes the newest checkpoint when the pointer is gone, and says so", async () => {
    await steps(3);
    await rm(join(dir, "latest_checkpointed_iteration.txt"));
    let start: number | undefined;
    const said = await warnings(() =>
      inRun({}, async (run) => {
        start = run.start?.step;
      }),
    );
    expect([start, said]).toEqual([
      3,
      [expect.stringMatching(/iteration.txt is missing; taking the newest .* step 3/)],
    ]);
    expect(await pointer()).toBe("3");
  });

  test("a run that starts over does not resume from what the one before left, even if it saves nothing", async () => {
    await steps(3);
    await inRun({ resumeMode: "disable" }, async () => {});
    expect(await inRun({}, async (run) => run.start)).toBe(null);
    expect(await pointer()).toBe("0");
  });

  test("starts with empty metrics when no checkpoint was saved", async () => {
    await inRun({}, (run) => run.logMetrics(1, { a: 1 }));
    await inRun({}, (run) => run.logMetrics(1, { a: 2 }));
    expect(await readMetrics(dir)).toEqual([{ step: 1, data: { a: 2 } }]);
  });

  const damages: Record<string, (checkpoint: string) => Promise<void>> = {
    "is missing": (checkpoint) => rm(checkpoint, { recursive: true }),
    "has no state.json": (checkpoint) => rm(join(checkpoint, "state.json")),
    "has half a state.json": (checkpoint) => truncate(join(checkpoint, "state.json"), 3),
  };
  for (const [what, damage] of Object.entries(damages)) {
    test(`auto resumes from the newest complete checkpoint when the named one ${what}`, async () => {
      await steps(3);
      await damage(join(dir, "global_step_3"));
      expect(await inRun({}, async (run) => run.start?.step)).toBe(2);
      expect(await pointer()).toBe("2");
      expect((await readMetrics(dir)).map((line) => line.step)).toEqual([1, 2]);
      await steps(3);
      expect(await inRun({}, async (run) => run.start?.step)).toBe(3);
    });
  }

  test("disable starts over, and a later auto does not resume the earlier run", async () => {
    await steps(3);
    await inRun({ resumeMode: "disable" }, async (run) => {
      expect(run.start).toBeNull();
      await step(run, 1, "new");
    });
    expect(await inRun({}, async (run) => run.start?.step)).toBe(1);
    expect(await readMetrics(dir)).toHaveLength(1);
    await steps(3);
    expect((await readMetrics(dir)).map((line) => line.step)).toEqual([1, 2, 3]);
  });

  test("resume_path resumes from an earlier step of the same run and replaces what came after", async () => {
    await steps(3);
    await inRun({ resumeMode: "resume_path", resumeFromPath: join(dir, "global_step_1/") }, async (run) => {
      expect(run.start).toMatchObject({ step: 1, state: { n: 1 } });
      expect((await run.latest())?.step).toBe(1);
      await step(run, 2, "another second step");
    });
    expect(await readFile(join(dir, "global_step_2", "weights"), "utf8")).toBe("another second step");
    expect((await readMetrics(dir)).map((line) => line.step)).toEqual([1, 2]);
  });

  test("resume_path takes the checkpoint of another folder and leaves that folder alone", async () => {
    await steps(2);
    const other = join(root, "other");
    const from = { resumeMode: "resume_path", resumeFromPath: join(dir, "global_step_2") } as const;
    await inRun(from, (run) => step(run, 3), other);
    expect((await readMetrics(other)).map((line) => line.step)).toEqual([3]);
    expect(await pointer()).toBe("2");
    expect(await inRun({}, async (run) => run.start?.step, other)).toBe(3);
  });

  const wrongPaths: Record<string, [() => string | null, RegExp]> = {
    "not set": [() => null, /`trainer.resume_from_path` is not set/],
    "not a checkpoint": [() => dir, /does not end in global_step_N/],
    "of a step that was not saved": [() => join(dir, "global_step_9"), /does not exist.*steps 1, 2/],
    "in a folder that does not exist": [() => join(root, "no", "global_step_9"), /no checkpoint beside it/],
    "of a checkpoint without its state": [() => join(dir, "global_step_7"), /has no readable state.json/],
  };
  for (const [what, [path, message]] of Object.entries(wrongPaths)) {
    test(`a resume_path that is ${what} is explained, and the folder is released`, async () => {
      await steps(2);
      if (what.endsWith("state")) await mkdir(join(dir, "global_step_7"));
      const options = { resumeMode: "resume_path", resumeFromPath: path() } as const;
      const error: unknown = await claimRun(dir, options).catch((thrown: unknown) => thrown);
      expect(error).toBeInstanceOf(UserError);
      expect(String(error)).toMatch(message);
      expect(await inRun({}, async (run) => run.start?.step)).toBe(2);
    });
  }
});

describe("keeping checkpoints", () => {
  for (const keep of [1, 2, 3]) {
    test(`only the newest ${keep} remain`, async () => {
      await steps(5, { keep });
      expect(await checkpoints()).toEqual([3, 4, 5].slice(3 - keep).map((n) => `global_step_${n}`));
      expect(await hidden()).toEqual([]);
    });
  }

  test("the old one is there until the new one is saved", async () => {
    await steps(1, { keep: 1 });
    await inRun({ keep: 1 }, (run) =>
      run.saveCheckpoint(2, async () => expect(await checkpoints()).toEqual(["global_step_1"]), {}),
    );
    expect(await checkpoints()).toEqual(["global_step_2"]);
  });

  test("after starting over, checkpoints of the earlier run are deleted first", async () => {
    await steps(4);
    await inRun({ keep: 2, resumeMode: "resume_path", resumeFromPath: join(dir, "global_step_1") }, (run) =>
      step(run, 2),
    );
    expect(await checkpoints()).toEqual(["global_step_1", "global_step_2"]);
  });

  test("a folder that was moved aside and never replaced gets its name back", async () => {
    await steps(2);
    await rename(join(dir, "global_step_2"), join(dir, ".global_step_2.aside"));
    await mkdir(join(dir, ".global_step_2.0123abcd.tmp"));
    expect(await inRun({}, async (run) => run.start?.step)).toBe(2);
    expect(await hidden()).toEqual([]);
  });
});

describe("a save that does not succeed leaves the earlier checkpoint and nothing else", () => {
  async function expectUntouched(save: (run: Run) => Promise<void>, message: RegExp): Promise<void> {
    await steps(1, { keep: 1 });
    await inRun({ keep: 1 }, async (run) => {
      await expect(save(run)).rejects.toThrow(message);
      expect(await checkpoints()).toEqual(["global_step_1"]);
      expect(await hidden()).toEqual([]);
      expect(await run.latest()).toMatchObject({ step: 1, state: { n: 1 } });
      await step(run, 2);
    });
    expect(await checkpoints()).toEqual(["global_step_2"]);
  }

  test("when the writer throws", async () => {
    await expectUntouched(
      (run) =>
        run.saveCheckpoint(
          2,
          async (target) => {
            await writeFile(join(target, "half"), "of the weights");
            throw new Error("no more");
          },
          {},
        ),
      /^no more$/,
    );
  });

  test.skipIf(!existsSync("/dev/full"))("when the disk is full (skipped where there is no /dev/full)", async () => {
    await expectUntouched(
      (run) =>
        run.saveCheckpoint(
          2,
          async (target) => {
            await symlink("/dev/full", join(target, "weights"));
            await writeFile(join(target, "weights"), "one byte too many");
          },
          {},
        ),
      /global_step_2 cannot be written: the disk is full\. Free some space/,
    );
  });
});

describe("a small file system", () => {
  let isMounted = false;
  const mountPoint = () => join(root, "small");
  afterEach(() => {
    if (isMounted) spawnSync("umount", ["-l", mountPoint()]);
    isMounted = false;
  });
  const canMount = process.platform === "linux" && process.getuid?.() === 0 && probeMount();

  test.skipIf(!canMount)(
    "that fills up keeps the last whole checkpoint (skipped where tmpfs cannot be mounted)",
    async () => {
      await mkdir(mountPoint());
      isMounted = spawnSync("mount", ["-t", "tmpfs", "-o", "size=1m", "tmpfs", mountPoint()]).status === 0;
      dir = join(mountPoint(), "run");
      const error: unknown = await inRun({}, async (run) => {
        for (let n = 1; ; n++) await step(run, n, "x".repeat(200_000));
      }).catch((thrown: unknown) => thrown);
      expect(error).toBeInstanceOf(UserError);
      expect(String(error)).toMatch(/cannot be written: the disk is full/);
      const last = Number(await pointer());
      expect(last).toBeGreaterThan(2);
      expect((await readFile(join(dir, `global_step_${last}`, "weights"))).length).toBe(200_000);
      expect(await hidden()).toEqual([]);
    },
  );
});

/** Whether this process may mount: being root in a container is not enough. */
function probeMount(): boolean {
  const probe = join(tmpdir(), `trainyard-mount-${process.pid}`);
  const script = `mkdir ${probe} && mount -t tmpfs -o size=64k tmpfs ${probe} && umount ${probe}; s=$?; rmdir ${probe}; exit $s`;
  return spawnSync("sh", ["-c", script]).status === 0;
}

test("a folder that cannot be created is explained", async () => {
  await writeFile(join(root, "file"), "");
  const error: unknown = await claimRun(join(root, "file", "run")).catch((thrown: unknown) => thrown);
  expect(error).toBeInstanceOf(UserError);
  expect(String(error)).toMatch(/a part of the path is a file, not a folder/);
});

const childScript = fileURLToPath(new URL("../../test/fixtures/run-child.ts", import.meta.url));

/** Start the small run of test/fixtures in a process of its own. */
function start(where: string, mode: "go" | "hold"): ChildProcess {
  const child = spawn(process.execPath, [childScript, where, mode], { stdio: ["ignore", "pipe", "inherit"] });
  children.push(child);
  return child;
}

/** The first line that a child says. */
function firstLine(child: ChildProcess): Promise<string> {
  return new Promise((resolve) => {
    let text = "";
    child.stdout?.on("data", (chunk) => {
      text += chunk;
      if (text.includes("\n")) resolve(text.slice(0, text.indexOf("\n")));
    });
    child.once("close", () => resolve(text));
  });
}

const ended = (child: ChildProcess): Promise<number | null> =>
  new Promise((resolve) => {
    if (child.exitCode !== null || child.signalCode !== null) resolve(child.exitCode);
    else child.once("close", (code) => resolve(code));
  });

describe("the lock", () => {
  test("of a running process is refused with its number and folder, and is released when that ends", async () => {
    const holder = start(dir, "hold");
    expect(await firstLine(holder)).toBe(`open ${holder.pid}`);
    const error: unknown = await claimRun(dir).catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(UserError);
    expect(String(error)).toContain(`${dir} is being written by process ${holder.pid}.`);
    holder.kill("SIGKILL");
    await ended(holder);
    await inRun({}, async () => {});
  });

  test("refuses a second opening by the same process", async () => {
    await inRun({}, async () => {
      await expect(claimRun(dir)).rejects.toThrow(`is being written by process ${process.pid}.`);
    });
  });

  test("of a process that is gone is taken over by exactly one of many that start together", async () => {
    const holder = start(dir, "hold");
    await firstLine(holder);
    holder.kill("SIGKILL");
    await ended(holder);
    const lines = await Promise.all(Array.from({ length: 6 }, () => firstLine(start(dir, "hold"))));
    expect(lines.filter((line) => line.startsWith("open "))).toHaveLength(1);
    expect(lines.filter((line) => line.startsWith(`UserError: ${dir} is being written by process`))).toHaveLength(5);
  });

  const liveOtherThan = async (change: (owner: Record<string, unknown>) => void): Promise<void> => {
    await mkdir(dir);
    const run = await claimRun(dir);
    const owner = JSON.parse(await readFile(join(dir, "run.lock"), "utf8"));
    await run.close();
    change(owner);
    await writeFile(join(dir, "run.lock"), JSON.stringify(owner));
  };

  test.skipIf(!existsSync("/proc/self/stat"))(
    "of a process that has ended, but that nobody waits for, is taken over (skipped where there is no /proc)",
    async () => {
      // The shell becomes a program that never waits for the child that it has.
      const parent = spawn("sh", ["-c", "sleep 0.1 & echo $!; exec sleep 60"], { stdio: ["ignore", "pipe", "ignore"] });
      try {
        const pid = Number(await firstLine(parent));
        const stat = () => readFile(`/proc/${pid}/stat`, "utf8").then((line) => line.split(") ")[1]!.split(" "));
        const started = (await stat())[19]!;
        while ((await stat())[0] !== "Z") await new Promise((resolve) => setTimeout(resolve, 10));
        await liveOtherThan((owner) => Object.assign(owner, { pid, started }));
        await inRun({}, async () => {});
      } finally {
        parent.kill("SIGKILL");
      }
    },
  );

  test.skipIf(!existsSync("/proc/self/stat"))(
    "is taken over when its process number now belongs to another program (skipped where there is no /proc)",
    async () => {
      await liveOtherThan((owner) => {
        owner.started = "1";
      });
      await inRun({}, async () => {});
    },
  );

  test("is taken over after a reboot", async () => {
    await liveOtherThan((owner) => {
      owner.boot = "an earlier one";
    });
    await inRun({}, async () => {});
  });

  test("of another machine counts until it was not touched for a minute", async () => {
    await liveOtherThan((owner) => {
      owner.host = "elsewhere";
    });
    await expect(claimRun(dir)).rejects.toThrow(`process ${process.pid} on elsewhere.`);
    const twoMinutesAgo = new Date(Date.now() - 120_000);
    await utimes(join(dir, "run.lock"), twoMinutesAgo, twoMinutesAgo);
    await inRun({}, async () => {});
    expect(await readdir(dir)).not.toContain("run.lock");
  });

  test("that is not readable is taken over", async () => {
    await mkdir(dir);
    for (const text of ["", "{", '{"pid":"x"}', "\0\0"]) {
      await writeFile(join(dir, "run.lock"), text);
      await inRun({}, async () => {});
    }
  });
});

test("a run that is killed at random moments ends with the metrics and weights of one that was not", async () => {
  const whole = join(root, "whole");
  expect(await ended(start(whole, "go"))).toBe(0);

  const random = new Random(Date.now() % 1_000_000);
  let kills = 0;
  for (let attempt = 0; ; attempt++) {
    const child = start(dir, "go");
    expect(await firstLine(child)).toMatch(/^open /);
    if (attempt < 20) await new Promise((done) => setTimeout(done, random.uniform() * 25));
    if (attempt < 20) child.kill("SIGKILL");
    if ((await ended(child)) === 0) break;
    kills++;
    await expectWholeCheckpoint();
  }

  expect(kills).toBeGreaterThan(0);
  expect(await withoutTimings(dir)).toEqual(await withoutTimings(whole));
  expect(await checkpoints()).toEqual(["global_step_10", "global_step_12"]);
  for (const name of ["global_step_10", "global_step_12"]) {
    for (const file of ["state.json", "actor/a.bin", "actor/b.bin", "actor/c.bin"]) {
      expect(await readFile(join(dir, name, file))).toEqual(await readFile(join(whole, name, file)));
    }
  }
  expect(await hidden()).toEqual([]);
});

/** What the pointer names after a kill is whole, and every file in it is of that one step. */
async function expectWholeCheckpoint(): Promise<void> {
  const named = await pointer().catch(() => null);
  if (named === null) return;
  const { hash } = JSON.parse(await readFile(join(dir, `global_step_${named}`, "state.json"), "utf8"));
  for (const part of ["a", "b", "c"]) {
    const text = await readFile(join(dir, `global_step_${named}`, "actor", `${part}.bin`), "utf8");
    expect(text === `${hash} ${part}\n`.repeat(3000)).toBe(true);
  }
}

async function withoutTimings(where: string): Promise<string[]> {
  const lines = await readMetrics(where);
  return lines.map(({ step: n, data }) =>
    JSON.stringify([n, Object.entries(data).filter(([name]) => !isTiming(name))]),
  );
}

describe("a claim", () => {
  test("without a run changes nothing in a folder that existed, and leaves no folder that did not", async () => {
    await steps(2);
    const before = await readdir(dir);
    const text = await metricsText();
    await (await claimRun(dir, { resumeMode: "disable" })).close();
    expect(await readdir(dir)).toEqual(before);
    expect(await metricsText()).toBe(text);
    expect(await pointer()).toBe("2");

    await (await claimRun(join(root, "new", "deep", "run"))).close();
    expect(await readdir(root)).toEqual(["run"]);
  });
});
