/**
 * Servers beside the workers that are frozen: each is named within a deadline, and ends with all processes that it has
 * started. A small program replaces vLLM and answers like it (test/python/vllm_stand_in);
 * test/long/vllm-losses.long.ts does the same to vLLM itself. TRAINYARD_TEST_PYTHON names an interpreter that has
 * python/requirements.txt.
 */
import { chmod, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { EngineLost } from "../src/engine/lost.ts";
import { RayEngine } from "../src/engine/ray/engine.ts";
import { Shim } from "../src/engine/ray/shim.ts";
import { UserError } from "../src/util/errors.ts";
import { fixture } from "./engine-conformance.ts";
import { hasRay, processesOf, python } from "./ray-yard.ts";
import { serverSpec } from "./vllm-yard.ts";

const SECONDS = 1000;
const silenceMs = 4 * SECONDS;
const standIn = fileURLToPath(new URL("python/vllm_stand_in", import.meta.url));

describe.skipIf(!hasRay)("servers beside the workers (needs Python with ray)", { timeout: 200 * SECONDS }, () => {
  let folder = "";
  let vllmPython = "";
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "stand-in-"));
    vllmPython = join(folder, "python");
    await writeFile(vllmPython, `#!/bin/sh\nPYTHONPATH=${standIn} exec ${python} "$@"\n`);
    await chmod(vllmPython, 0o755);
  });
  afterAll(() => rm(folder, { recursive: true }));

  /** A server in an engine of its own, and what can be done to it. */
  async function serve() {
    const engine = new RayEngine({ python, vllmPython, silenceMs });
    const group = await engine.serve(serverSpec);
    const [url] = await group!.start(folder);
    const { shimPid } = await engine.group();
    const [api, core] = (await (await fetch(`${url}/pids`)).json()) as [number, number];
    const occupy = async (what: "compute" | "hang", seconds: number) => {
      await fetch(`${url}/engine?do=${what}&seconds=${seconds}`);
    };
    return { engine, group: group!, shimPid: shimPid!, url: url!, pids: { api, core }, occupy };
  }
  type Served = Awaited<ReturnType<typeof serve>>;

  test.each<{ what: string; freeze: (served: Served) => unknown; message: RegExp }>([
    {
      what: "is stopped",
      freeze: ({ pids }) => process.kill(pids.api, "SIGSTOP"),
      message: /: it does not answer, and has computed nothing for 4 s\.$/,
    },
    {
      what: "has an engine that is stopped, and not while that took long over a pass before,",
      freeze: async ({ pids, group, url, occupy }) => {
        await occupy("compute", (3 * silenceMs) / SECONDS);
        const start = performance.now();
        await fetch(`${url}/is_paused`);
        expect(performance.now() - start).toBeGreaterThan(2 * silenceMs);
        expect(group.lost.aborted).toBe(false);
        process.kill(pids.core, "SIGSTOP");
      },
      message: /: its engine does not answer, and has computed nothing for 4 s\.$/,
    },
    {
      what: "has an engine that waits for what does not come",
      freeze: ({ occupy }) => occupy("hang", 1000),
      message: /: its engine does not answer, and has computed nothing for 4 s\.$/,
    },
  ])("one that $what is named, and nothing is left of it", async ({ freeze, message }) => {
    const served = await serve();
    const { engine, group, shimPid, pids } = served;
    try {
      expect(processesOf(shimPid)).toEqual(expect.arrayContaining(Object.values(pids)));
      await freeze(served);
      const start = performance.now();
      while (!group.lost.aborted && performance.now() - start < 6 * silenceMs) await sleep(50);
      expect(performance.now() - start).toBeGreaterThan(0.9 * silenceMs);
      expect(group.lost.reason).toBeInstanceOf(EngineLost);
      expect(String(group.lost.reason)).toMatch(/The vLLM server 0 \(process \d+ on .*\) was lost: /);
      expect(String(group.lost.reason)).toMatch(message);
      while (processesOf(shimPid).length > 0 && performance.now() - start < 8 * silenceMs) await sleep(50);
      expect(processesOf(shimPid)).toEqual([]);
    } finally {
      await engine.close();
    }
  });

  test("one that is killed while it receives weights is named within seconds, and none of its processes is left", async () => {
    const { engine, group, shimPid, pids } = await serve();
    try {
      const sending = group
        .send(await engine.open({ folder: fixture("logits/llama") }))
        .catch((error: unknown) => error);
      await sleep(1 * SECONDS);
      process.kill(pids.api, "SIGKILL");
      const start = performance.now();
      expect(await sending).toBeInstanceOf(EngineLost);
      expect(performance.now() - start).toBeLessThan(5 * SECONDS);
      expect(String(group.lost.reason)).toMatch(/The vLLM server 0 \(process \d+ on .*\) was lost: .*signal 9/);
      while (processesOf(shimPid).length > 0 && performance.now() - start < 30 * SECONDS) await sleep(50);
      expect(processesOf(shimPid)).toEqual([]);
    } finally {
      await engine.close();
    }
  });

  test("servers with resources of their own are placed beside the workers, and too many are an error", async () => {
    const engine = new RayEngine({ python, vllmPython, silenceMs, servers: 2 });
    try {
      const many = engine.serve({ ...serverSpec, own: { nodes: 1, perNode: 3 } });
      await expect(many).rejects.toThrow(UserError);
      await expect(many).rejects.toThrow(
        /has 3 CPU in all, and 3 are asked for, beside 1 for the workers: 1 for each of the vLLM servers/,
      );
      const group = await engine.serve({ ...serverSpec, own: { nodes: 2, perNode: 1 } });
      const urls = await group!.start(folder);
      expect(new Set(urls).size).toBe(2);
      const lines = await Promise.all(urls.map(async (url) => await (await fetch(`${url}/environment`)).json()));
      expect(lines).toEqual([0, 1].map((index) => expect.objectContaining({ first: 1 + index, world: 3, threads: 1 })));
    } finally {
      await engine.close();
    }
  });

  test("another NCCL version than the workers' is an error, and the error of a server names the server", async () => {
    const times = { startMs: 120 * SECONDS, collectiveMs: 60 * SECONDS, silenceMs: 60 * SECONDS };
    const pools = [{ pool: null, nodes: 1, perNode: 1 }];
    const one = { pools, device: "cpu", bundle: { CPU: 1 }, address: null } as const;
    const more = { init: {}, local: { num_cpus: 1 }, env: {}, isReplacing: false };
    const shim = await Shim.start(python, { ...one, ...more, ...times }, AbortSignal.any([]));
    try {
      const spec = { python: vllmPython, parallel: 1, own: null, isReplacing: false, silence: 60 };
      expect(await shim.serve(spec, 60 * SECONDS)).toBe(1);
      const other = () => ({ transfer: { nccl: "(1, 0, 0)" } });
      const versions = shim.callServers("start", other, 60 * SECONDS);
      await expect(versions).rejects.toThrow(UserError);
      await expect(versions).rejects.toThrow(
        /has NCCL \(2, .* and the workers, .* have \(1, 0, 0\).*Install vLLM in the workers' Python/,
      );
      const asked = shim.callServers("unknown_method", () => ({}), 60 * SECONDS);
      await expect(asked).rejects.toThrow(EngineLost);
      await expect(asked).rejects.toThrow(/^The vLLM server 0 \(process \d+ on .*\) stopped with AttributeError: /);
    } finally {
      await shim.close();
    }
  });
});
