/**
 * The Ray engine when something is killed, hangs or does not exist: a message names it within seconds, and no process
 * stays behind. TRAINYARD_TEST_PYTHON names an interpreter that has python/requirements.txt.
 *
 * The shim leads a session, and all processes of a cluster that it starts belong to that session.
 */
import { fork } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { chmod, mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Model } from "../src/engine/contract.ts";
import { EngineLost } from "../src/engine/lost.ts";
import { type GroupPlace, RayEngine, type RayEngineOptions } from "../src/engine/ray/engine.ts";
import { Shim, type ShimSpec } from "../src/engine/ray/shim.ts";
import { UserError } from "../src/util/errors.ts";
import { fixture, trainSteps } from "./engine-conformance.ts";
import { hasRay, playOnRay, processesOf, python, startNodes, workersOf } from "./ray-yard.ts";
import { sevens, Yard } from "./rl-yard.ts";
import { checksums } from "./sandbox.ts";

const SECONDS = 1000;

/** Waits until no process that a shim has started is left. */
async function expectNothingLeft(shimPid: number, withinMs = 10 * SECONDS): Promise<void> {
  const end = performance.now() + withinMs;
  while (processesOf(shimPid).length > 0 && performance.now() < end) await sleep(50);
  expect(processesOf(shimPid)).toEqual([]);
}

describe.skipIf(!hasRay)("the Ray engine (needs Python with ray), when", { timeout: 300 * SECONDS }, () => {
  /** An engine at work, and what it is made of. */
  async function atWork(options: RayEngineOptions) {
    const engine = new RayEngine({ python, collectiveMs: 60 * SECONDS, ...options });
    const model = await engine.open({ folder: fixture("logits/llama") });
    const place = await engine.group();
    const outcome = trainSteps(model, 1_000_000).catch((error: unknown) => error);
    await sleep(500);
    return { engine, model, place, shimPid: place.shimPid!, outcome };
  }

  async function expectLost(model: Model, outcome: Promise<unknown>, message: RegExp): Promise<void> {
    const error = await outcome;
    expect(error).toBeInstanceOf(EngineLost);
    expect(String(error)).toMatch(message);
    const row = { ids: Int32Array.of(1, 2), mask: [1, 1] };
    await expect(model.forward([row], ["logprobs"], { micro: { rows: 1 } })).rejects.toThrow(EngineLost);
    await expect(model.sample({ prompt: [1], maxNewTokens: 2 })).rejects.toThrow(EngineLost);
  }

  test("a worker is killed while another waits for it, names the one that died and ends the other", async () => {
    const { engine, model, place, shimPid, outcome } = await atWork({ workersPerNode: 2 });
    const start = performance.now();
    process.kill(place.workers[1]!.pid, "SIGKILL");
    await expectLost(model, outcome, new RegExp(`Worker 1 \\(process ${place.workers[1]!.pid} on .*\\) was lost`));
    expect(performance.now() - start).toBeLessThan(5 * SECONDS);
    await expectNothingLeft(shimPid); // though the engine is not closed yet
    await engine.close();
  });

  test("a worker hangs, names it once it was silent for too long, and ends it", async () => {
    const { engine, model, place, shimPid, outcome } = await atWork({ silenceMs: 3 * SECONDS });
    const { pid } = place.workers[0]!;
    process.kill(pid, "SIGSTOP");
    const start = performance.now();
    await expectLost(
      model,
      outcome,
      new RegExp(`Worker 0 \\(process ${pid} on .*\\) was lost: .* not answered for 3 s`),
    );
    expect(performance.now() - start).toBeLessThan(8 * SECONDS);
    await engine.close();
    await expectNothingLeft(shimPid);
  });

  test("a node is lost, says so within seconds, and another group continues from a checkpoint with the same results", async () => {
    process.env.RAY_AUTH_TOKEN ??= randomBytes(20).toString("hex"); // of the cluster and of those who join it
    const cluster = await startNodes(1, 1);
    const dir = await mkdtemp(join(tmpdir(), "ray-node-"));
    const options = { address: cluster.address, nodes: 2, workersPerNode: 1 };
    try {
      const before = new RayEngine({ python, ...options });
      const model = await before.open({ folder: fixture("logits/llama") });
      const { workers } = await before.group();
      expect(workers[0]!.node).not.toBe(workers[1]!.node);
      await trainSteps(model, 2);
      await model.save(join(dir, "model"));
      await model.saveOptimizer(join(dir, "optimizer"));
      const uninterrupted = await trainSteps(model, 2, { from: 2 });
      const outcome = trainSteps(model, 1_000_000).catch((error: unknown) => error);
      const start = performance.now();
      await cluster.do("kill 1");
      await expectLost(model, outcome, /Worker [01] \(process \d+ on .*\) (was lost|has lost its connection)/);
      expect(performance.now() - start).toBeLessThan(10 * SECONDS);
      await before.close();

      await cluster.do("add 1");
      const after = new RayEngine({ python, ...options });
      const resumed = await after.open({ folder: join(dir, "model") });
      await resumed.loadOptimizer(join(dir, "optimizer"));
      expect(await trainSteps(resumed, 2, { from: 2 })).toEqual(uninterrupted);
      await after.close();
    } finally {
      await cluster.stop();
      await rm(dir, { recursive: true });
    }
  });

  test("a node is lost in a PPO run, and another joins: the run has the same result as one without a loss", async () => {
    process.env.RAY_AUTH_TOKEN ??= randomBytes(20).toString("hex");
    const cluster = await startNodes(1, 1);
    const yard = await Yard.make();
    const keys = [
      "trainer.engine=ray",
      "trainer.nnodes=2",
      `ray_kwargs.ray_init.address=${cluster.address}`,
      "trainer.total_training_steps=3",
      "trainer.save_freq=1",
    ];
    try {
      const unbroken = await playOnRay(yard, "unbroken", keys);
      let scored = 0;
      const perStep = 16;
      let replaced: Promise<void> | null = null;
      const broken = await playOnRay(yard, "broken", keys, async (input) => {
        // The second step is saved, and the third has begun.
        if (++scored === 2 * perStep + 1) {
          await cluster.do("kill 1");
          const end = performance.now() + 30 * SECONDS; // its worker outlives it by a moment
          while (workersOf(cluster.session).length > 1 && performance.now() < end) await sleep(50);
          replaced = cluster.do("add 1");
        }
        return sevens(input);
      });
      await replaced;
      expect(scored).toBeGreaterThan(3 * perStep); // the third step was begun again
      expect(broken).toEqual(unbroken);
      const files = async (run: string) => {
        const { "optimizer/.metadata": _, ...rest } = await checksums(yard.path(run, "global_step_3", "actor"));
        return rest; // weights and moments to the last byte; what is left out holds the folder's name
      };
      expect(await files("broken")).toEqual(await files("unbroken"));
    } finally {
      await cluster.stop();
      yard.remove();
    }
  });

  test("it is closed while it starts, does so at once", async () => {
    const engine = new RayEngine({ python });
    const starting = expect(engine.group()).rejects.toThrow(/engine was closed/);
    await sleep(1500);
    const start = performance.now();
    await engine.close();
    await starting;
    expect(performance.now() - start).toBeLessThan(3 * SECONDS);
  });

  test("a run is interrupted while its cluster does not answer, ends at once", async () => {
    const interrupt = new AbortController();
    const engine = new RayEngine({ python, address: "127.0.0.1:9", signal: interrupt.signal });
    const starting = expect(engine.group()).rejects.toThrow(/aborted/);
    await sleep(1500);
    const start = performance.now();
    interrupt.abort();
    await starting;
    expect(performance.now() - start).toBeLessThan(3 * SECONDS);
    await engine.close();
  });

  test("the shim is killed, names it and ends its cluster", async () => {
    const { engine, model, shimPid, outcome } = await atWork({});
    process.kill(shimPid, "SIGKILL");
    await expectLost(model, outcome, new RegExp(`The Ray shim \\(process ${shimPid}\\) ended: SIGKILL`));
    await expectNothingLeft(shimPid);
    await engine.close();
  });

  test.each([
    { who: "the controller is", withShim: false },
    { who: "the controller and the shim are", withShim: true },
  ])("$who killed, leaves nothing behind", async ({ withShim }) => {
    const child = fork(fileURLToPath(new URL("fixtures/ray-child.ts", import.meta.url)), [python]);
    const [{ shimPid }] = (await once(child, "message")) as [GroupPlace];
    expect(processesOf(shimPid!).length).toBeGreaterThan(3);
    child.kill("SIGKILL");
    if (withShim) process.kill(shimPid!, "SIGKILL");
    await expectNothingLeft(shimPid!, 20 * SECONDS);
  });

  describe("a worker cannot do what it is asked,", () => {
    const pair: ShimSpec = {
      pools: [{ pool: null, nodes: 1, perNode: 2 }],
      device: "cpu",
      bundle: { CPU: 1 },
      address: null,
      env: {},
      isReplacing: false,
      // A disk that is full for Ray: it would put there what the store has no room for.
      init: { _system_config: { local_fs_capacity_threshold: 0.000001 } },
      local: { num_cpus: 2, object_store_memory: 80_000_000 },
      startMs: 120 * SECONDS,
      collectiveMs: 60 * SECONDS,
      silenceMs: 60 * SECONDS,
    };
    let shim: Shim;
    beforeAll(async () => {
      shim = await Shim.start(python, pair, AbortSignal.any([]));
    }, 150 * SECONDS);
    afterAll(() => shim?.close());

    test("find a folder that another worker has: the machine is named, and the group continues", async () => {
      const [there, nowhere] = [{ folder: fixture("logits/llama") }, { folder: "/nowhere/model" }];
      const asked = shim.group().call("describe", (rank) => [there, nowhere][rank]!);
      await expect(asked).rejects.toThrow(UserError);
      await expect(asked).rejects.toThrow(
        /\/nowhere\/model does not exist on the machine .*same path on every machine/,
      );
      const { vocabSize } = (await shim.group().call("describe", () => there))[0]!;
      expect(vocabSize).toBeGreaterThan(0);
    });

    test("receive a message that does not fit into Ray's object store: it says so", async () => {
      const large = { folder: fixture("logits/llama"), more: new Float64Array(15_000_000) };
      const asked = shim.group().call("describe", () => large);
      await expect(asked).rejects.toThrow(EngineLost);
      await expect(asked).rejects.toThrow(/Ray's object store is full.*object_store_memory/);
    });
  });

  test("a worker runs out of memory, says what to lower", async () => {
    const engine = new RayEngine({ python });
    const model = await engine.open({ folder: fixture("logits/gemma2") });
    const length = 400_000; // pairs of positions, a byte each, are more than any machine of today has
    const row = { ids: new Int32Array(length), mask: Uint8Array.from({ length }, (_, t) => Number(t === 1)) };
    const asked = model.forward([row], ["logprobs"], { micro: { rows: 1 } });
    await expect(asked).rejects.toThrow(/stopped with \w+: .*memory.*\. Lower the tokens/);
    await engine.close();
  });

  describe("the environment is wrong,", () => {
    let temporary = "";
    /** The same interpreter with something amiss: modules and packages that come before its own. */
    const madeUp = async (name: string, files: Readonly<Record<string, string>>): Promise<string> => {
      const folder = join(temporary, name);
      for (const [file, text] of Object.entries(files)) {
        await mkdir(dirname(join(folder, file)), { recursive: true });
        await writeFile(join(folder, file), text);
      }
      await writeFile(join(folder, "python"), `#!/bin/sh\nPYTHONPATH=${folder} exec ${python} "$@"\n`);
      await chmod(join(folder, "python"), 0o755);
      return join(folder, "python");
    };
    beforeAll(async () => {
      temporary = await mkdtemp(join(tmpdir(), "ray-bad-"));
    });
    afterAll(() => rm(temporary, { recursive: true }));

    test.each<{ what: string; files: Record<string, string>; message: RegExp }>([
      {
        what: "an old Python",
        files: { "sitecustomize.py": "import sys\nsys.version_info = (3, 9, 2)\nsys.version = '3.9.2 (old)'\n" },
        message: /it is Python 3\.9\.2, and 3\.11 or newer is needed/,
      },
      {
        what: "no Ray",
        files: {
          "sitecustomize.py":
            "import importlib.metadata as m\nfound = m.version\ndef version(name):\n    if name == 'ray':\n        raise m.PackageNotFoundError(name)\n    return found(name)\nm.version = version\n",
        },
        message: /ray is not installed\. Install it there with `pip install /,
      },
      {
        what: "another Ray",
        files: { "ray-1.13.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: ray\nVersion: 1.13.0\n" },
        message: /ray is 1\.13\.0 there, and 2\.\d+\.\d+ is needed/,
      },
    ])("$what: one message with the way out", async ({ what, files, message }) => {
      const engine = new RayEngine({ python: await madeUp(what.replaceAll(" ", "-"), files) });
      const error = await engine.group().catch((it: unknown) => it);
      expect(error).toBeInstanceOf(UserError);
      expect(String(error)).toMatch(message);
      await engine.close();
    });

    test.each<{ what: string; options: RayEngineOptions; message: RegExp }>([
      {
        what: "no such Python",
        options: { python: "/nowhere/python" },
        message: /\/nowhere\/python cannot be started/,
      },
      {
        what: "a cluster that does not answer",
        options: { address: "127.0.0.1:9", startMs: 4 * SECONDS },
        message: /127\.0\.0\.1:9 within 4 s/,
      },
      {
        what: "fewer processors than workers",
        options: { workersPerNode: 3, init: { num_cpus: 1 } },
        message: /has 1 CPU in all, and 3 are asked for/,
      },
    ])("$what: one message with the way out", async ({ options, message }) => {
      const engine = new RayEngine({ python, ...options });
      const start = performance.now();
      const error = await engine.open({ folder: fixture("logits/llama") }).catch((it: unknown) => it);
      expect(error).toBeInstanceOf(UserError);
      expect(String(error)).toMatch(message);
      expect(performance.now() - start).toBeLessThan(120 * SECONDS);
      await engine.close();
    });
  });
});
