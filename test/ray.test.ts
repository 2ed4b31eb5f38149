/**
 * The Ray engine: the laws of every engine on one and on two workers, and the numbers of the embedded engine.
 * TRAINYARD_TEST_PYTHON names an interpreter that has python/requirements.txt.
 *
 * The engine of two workers starts a cluster of its own; the one of one worker joins it.
 */
import { randomBytes } from "node:crypto";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Engine, Sharding } from "../src/engine/contract.ts";
import { EmbeddedEngine } from "../src/engine/embedded/engine.ts";
import { RayEngine } from "../src/engine/ray/engine.ts";
import {
  batchOf,
  engineLaws,
  expectAgreement,
  expectNear,
  type Findings,
  findings,
  fixture,
  trainSteps,
  weightsOf,
} from "./engine-conformance.ts";
import { hasRay, python } from "./ray-yard.ts";

describe.skipIf(!hasRay)("the Ray engine (needs Python with ray)", { timeout: 180_000 }, () => {
  process.env.RAY_AUTH_TOKEN ??= randomBytes(20).toString("hex"); // both shims inherit it
  let one: RayEngine;
  let two: RayEngine;
  let temporary = "";
  const engines: Record<string, () => RayEngine> = { "one worker": () => one, "two workers": () => two };

  beforeAll(async () => {
    process.env.NCCL_DEBUG = "INFO"; // a variable that has another default
    temporary = await mkdtemp(join(tmpdir(), "ray-"));
    two = new RayEngine({ python, workersPerNode: 2, init: { num_cpus: 3 }, collectiveMs: 30_000 });
    const { address } = await two.group();
    process.env.NCCL_DEBUG = "VERSION"; // and another one than the cluster was started with
    one = new RayEngine({ python, address, collectiveMs: 30_000 });
    await one.group();
  });
  afterAll(async () => {
    delete process.env.NCCL_DEBUG;
    await one?.close();
    await two?.close();
    await rm(temporary, { recursive: true, force: true });
  });

  test.skipIf(process.platform !== "linux")(
    "workers have verl's variables, and the shell's value where it sets one, in a new cluster and in a joined one",
    async () => {
      for (const [engine, level] of [
        [two, "INFO"],
        [one, "VERSION"],
      ] as const)
        for (const { pid } of (await engine.group()).workers) {
          const variables = (await readFile(`/proc/${pid}/environ`, "utf8")).split("\0");
          const defaults = [
            "TOKENIZERS_PARALLELISM=true",
            "VLLM_LOGGING_LEVEL=WARN",
            "VLLM_ALLOW_RUNTIME_LORA_UPDATING=true",
            "CUDA_DEVICE_MAX_CONNECTIONS=1",
            "VLLM_DISABLE_COMPILE_CACHE=1",
            "NCCL_CUMEM_ENABLE=0",
          ];
          expect(variables).toEqual(expect.arrayContaining([`NCCL_DEBUG=${level}`, ...defaults]));
        }
    },
  );

  describe.each(Object.keys(engines))("on %s", (name) => {
    engineLaws(
      () => engines[name]!(),
      () => temporary,
    );
  });

  describe("has the numbers of the embedded engine", () => {
    const embedded = new EmbeddedEngine();
    let expected: Findings;
    beforeAll(async () => {
      expected = await findings(embedded, temporary);
    });
    afterAll(() => embedded.close());

    test.each(Object.keys(engines))("on %s", async (name) => {
      expectAgreement(await findings(engines[name]!(), temporary), expected);
    });

    test("with optimizer state of one worker, two workers or the embedded engine", async () => {
      const run = async (first: Engine, second: Engine) => {
        const dir = await mkdtemp(join(temporary, "hand-over-"));
        const before = await first.open({ folder: fixture("logits/llama_tied") });
        await trainSteps(before, 2);
        await before.save(join(dir, "model"));
        await before.saveOptimizer(join(dir, "optimizer"));
        await before.close();
        const after = await second.open({ folder: join(dir, "model") });
        await after.loadOptimizer(join(dir, "optimizer"));
        await trainSteps(after, 2, { from: 2 });
        const weights = await weightsOf(after, temporary);
        await after.close();
        return weights;
      };
      const weights = await run(embedded, embedded);
      expectNear(await run(one, two), weights, 1e-3);
      expectNear(await run(two, one), weights, 1e-3);
      expectNear(await run(embedded, two), weights, 1e-3);
      // The other way only the weights are read, and that is said.
      await expect(run(one, embedded)).rejects.toThrow(/optimizer state of trainer\.engine=ray.*its weights can be/);
    });
  });

  describe("two workers compute the same with any sharding:", () => {
    const gradients = async (sharding: Sharding) => {
      const model = await two.open({ folder: fixture("logits/qwen3"), sharding });
      await trainSteps(model, 2);
      const weights = await weightsOf(model, temporary);
      const [output] = await model.forward(batchOf(1), ["logprobs"], { micro: { rows: 9 } });
      const { samples } = await model.sample({ prompt: [1, 2, 3], maxNewTokens: 9, seed: 1, ignoreEos: true });
      await model.close();
      return { weights, logprobs: output!.logprobs!, ids: samples[0]!.ids };
    };
    let plain: Awaited<ReturnType<typeof gradients>>;
    beforeAll(async () => {
      plain = await gradients({});
    });

    const ways: Sharding[] = [{ replicas: 2 }, { reshards: false }, { checkpointing: true }, { offloads: true }];
    test.each(ways)("%j", async (sharding) => {
      const found = await gradients(sharding);
      expectNear(found.weights, plain.weights, 1e-4);
      expect(found.ids).toEqual(plain.ids);
    });

    test("in bfloat16, about the same", async () => {
      const { weights, logprobs } = await gradients({ dtype: "bfloat16" });
      const error = logprobs.reduce((most, v, t) => Math.max(most, Math.abs(v - plain.logprobs[t]!)), 0);
      expect(error).toBeGreaterThan(1e-4);
      expect(error).toBeLessThan(0.3);
      expectNear(weights, plain.weights, 0.2);
    });

    test("a number of replicas that does not divide the workers is an error", async () => {
      await expect(two.open({ folder: fixture("logits/llama"), sharding: { replicas: 3 } })).rejects.toThrow(
        /2 workers cannot be divided into 3 equal groups/,
      );
    });
  });

  test("messages larger than Ray's limit for inline values arrive complete", async () => {
    const model = await two.open({ folder: fixture("logits/llama") });
    const rows = Array.from({ length: 700 }, (_, i) => ({
      ids: Int32Array.from({ length: 64 }, (_, t) => (i * 7 + t * 3) % 100),
      mask: new Uint8Array(64).fill(1),
    }));
    const micro = { maxTokens: 64 * 400 };
    const all = await model.forward(rows, ["logprobs", "entropy"], { micro });
    for (const i of [0, 350, 699]) {
      const [alone] = await model.forward([rows[i]!], ["logprobs", "entropy"], { micro });
      for (const head of ["logprobs", "entropy"] as const) {
        const error = all[i]![head]!.reduce((most, v, t) => Math.max(most, Math.abs(v - alone![head]![t]!)), 0);
        expect(error, `row ${i}, ${head}`).toBeLessThan(1e-4);
      }
    }
    await model.close();
  });
});
