/**
 * A reward model with workers of its own on Ray: the same run as with a reward model among the trainer's workers, room
 * for both, and what happens when one of its workers is lost. TRAINYARD_TEST_PYTHON names an interpreter that has
 * python/requirements.txt.
 */
import { randomBytes } from "node:crypto";
import { existsSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Model } from "../src/engine/contract.ts";
import { EngineLost } from "../src/engine/lost.ts";
import { RayEngine, type RayEngineOptions } from "../src/engine/ray/engine.ts";
import { UserError } from "../src/util/errors.ts";
import { batchOf, fixture } from "./engine-conformance.ts";
import { hasRay, python, startNodes, workersOf } from "./ray-yard.ts";
import { charConfig, Yard } from "./rl-yard.ts";

const SECONDS = 1000;

describe.skipIf(!hasRay)("a pool of its own (needs Python with ray)", { timeout: 300 * SECONDS }, () => {
  let cluster: Awaited<ReturnType<typeof startNodes>>;
  beforeAll(async () => {
    process.env.RAY_AUTH_TOKEN ??= randomBytes(20).toString("hex"); // of the cluster and of those who join it
    cluster = await startNodes(2, 1, 1);
  }, 120 * SECONDS);
  afterAll(() => cluster?.stop());

  const joined = (options: RayEngineOptions) =>
    new RayEngine({ python, address: cluster.address, collectiveMs: 60 * SECONDS, ...options });

  test("holds the models that ask for it, and a lost worker of it is named; nothing is left", async () => {
    const engine = joined({ pools: { "reward model": { nodes: 1, perNode: 1 } } });
    try {
      const folder = fixture("logits/llama");
      const head = { head: "score", seed: 1 } as const;
      const trained = await engine.open({ folder, ...head });
      const scored = await engine.open({ folder, ...head, pool: "reward model" });
      const [{ workers }, { workers: own }] = [await engine.group(), await engine.group("reward model")];
      expect(new Set([...workers, ...own].map(({ pid }) => pid)).size).toBe(2);
      const forward = (model: Model) => model.forward(batchOf(1), ["scores"], { micro: { rows: 9 } });
      const [here, there] = await Promise.all([forward(trained), forward(scored)]);
      expect(there).toEqual(here);

      process.kill(own[0]!.pid, "SIGKILL");
      const until = performance.now() + 30 * SECONDS;
      const goOn = async () => {
        while (performance.now() < until) await forward(trained);
      };
      const error: unknown = await goOn().catch((it: unknown) => it);
      expect(error).toBeInstanceOf(EngineLost);
      expect(String(error)).toMatch(
        new RegExp(`The reward model's worker 0 \\(process ${own[0]!.pid} on .*\\) was lost: its process ended`),
      );
      const end = performance.now() + 10 * SECONDS;
      while (workersOf(cluster.session).length > 0 && performance.now() < end) await sleep(50);
      expect(workersOf(cluster.session)).toEqual([]);
    } finally {
      await engine.close();
    }
  });

  test("without room beside the trainer's workers is refused before any worker starts", async () => {
    const engine = joined({ workersPerNode: 2, pools: { "reward model": { nodes: 1, perNode: 3 } } });
    try {
      const error: unknown = await engine.open({ folder: fixture("logits/llama") }).catch((it: unknown) => it);
      expect(error).toBeInstanceOf(UserError);
      expect(String(error)).toMatch(
        /has 4 CPU in all, and 2 are asked for, beside 3 for the workers of the reward model: 1 for each of the workers\./,
      );
    } finally {
      await engine.close();
    }
  });

  test("gives a PPO run the same bytes, also when a node of the pool is lost and another joins", async () => {
    const yard = await Yard.make();
    const score = { architectures: ["LlamaForSequenceClassification"], num_labels: 1, hidden_size: 32 };
    const scorer = await yard.makeModel("scorer", { ...charConfig, ...score }, 5);
    const run = (name: string, ...more: readonly string[]) =>
      yard.commandWith(
        { TRAINYARD_PYTHON: python },
        ...yard.args(name, [
          ...["reward_model.enable=true", `reward_model.model.path=${scorer}`, "trainer.save_freq=1"],
          // Both workers fit on the first node only.
          ...["trainer.engine=ray", `ray_kwargs.ray_init.address=${cluster.address}`, "trainer.n_gpus_per_node=2"],
          ...more,
        ]),
      );
    try {
      expect(await run("together")).toMatchObject({ code: 0 });
      let isOver = false;
      const pool = ["enable_resource_pool=true", "nnodes=2", "n_gpus_per_node=1"].map((it) => `reward_model.${it}`);
      const running = run("apart", ...pool).finally(() => {
        isOver = true;
      });
      while (!existsSync(yard.path("apart", "global_step_1")) && !isOver) await sleep(10);
      await cluster.do("kill 2");
      await cluster.do("add 1");
      const { code, said } = await running;
      expect({ code, said }).toMatchObject({ code: 0 });
      expect(said).toContain("Starting 2 workers, 2 for the reward model, in the Ray cluster");
      expect(said).toMatch(/The reward model's worker [01] \(process \d+ on .*\) (was lost|has lost its connection)/);
      expect(said).toContain("New workers resume from the last checkpoint");
      const outcome = async (name: string) => {
        const { files, ...rest } = await yard.outcome(name);
        const { "actor/optimizer/.metadata": _, ...same } = files; // it holds the folder's name
        return { ...rest, files: same };
      };
      expect(await outcome("apart")).toEqual(await outcome("together"));
    } finally {
      yard.remove();
    }
  });
});
