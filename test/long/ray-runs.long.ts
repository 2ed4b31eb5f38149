/**
 * Whole runs on the Ray engine: `ppo`, `sft` and `reward` have the metrics of the embedded engine on one and on two
 * workers, and a run that loses a worker ends as one that does not. All join one cluster. TRAINYARD_TEST_PYTHON names an interpreter
 * that has python/requirements.txt.
 */
import { randomBytes } from "node:crypto";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { main } from "../../src/cli/main.ts";
import { readAll } from "../../src/models/safetensors.ts";
import type { RewardFunction } from "../../src/rewards/reward.ts";
import { readMetrics } from "../../src/run/metrics.ts";
import { setLevel } from "../../src/util/log.ts";
import { expectNear } from "../engine-conformance.ts";
import { hasRay, playOnRay, python, startNodes, workersOf } from "../ray-yard.ts";
import { sevens, Yard } from "../rl-yard.ts";
import { Sandbox } from "../sandbox.ts";

const SECONDS = 1000;
const env = { TRAINYARD_PYTHON: python, HF_HUB_OFFLINE: "1" };

type Metrics = readonly Readonly<Record<string, number>>[];

/** The same metrics, each within a thousandth. */
function expectSame(found: Metrics, expected: Metrics): void {
  expect(found.map((data) => Object.keys(data).sort())).toEqual(expected.map((data) => Object.keys(data).sort()));
  const far = expected.flatMap((data, step) =>
    Object.entries(data).flatMap(([name, value]) => {
      const other = found[step]![name]!;
      return Math.abs(other - value) <= 1e-3 * Math.abs(value) + 1e-5
        ? []
        : [`${step}: ${name} ${other}, not ${value}`];
    }),
  );
  expect(far).toEqual([]);
}

describe.skipIf(!hasRay)("runs on the Ray engine (need Python with ray)", { timeout: 240 * SECONDS }, () => {
  let yard: Yard;
  let sandbox: Sandbox;
  let cluster: Awaited<ReturnType<typeof startNodes>>;
  const onRay = (workers: number): string[] => [
    "trainer.engine=ray",
    `trainer.n_gpus_per_node=${workers}`,
    `ray_kwargs.ray_init.address=${cluster.address}`,
  ];
  beforeAll(async () => {
    process.env.RAY_AUTH_TOKEN ??= randomBytes(20).toString("hex"); // of the cluster and of those who join it
    cluster = await startNodes(2);
    yard = await Yard.make();
    sandbox = await Sandbox.make();
    setLevel("quiet");
  });
  afterAll(async () => {
    setLevel("info");
    await cluster?.stop();
    yard?.remove();
    sandbox?.remove();
  });

  const gae = [
    "algorithm.adv_estimator=gae",
    "algorithm.use_kl_in_reward=true",
    "actor_rollout_ref.actor.use_kl_loss=true",
    "actor_rollout_ref.actor.optim.lr=1e-3",
    "critic.optim.lr=1e-3",
  ];

  const play = (run: string, overrides: readonly string[], reward: RewardFunction = sevens): Promise<Metrics> =>
    playOnRay(yard, run, [...gae, ...overrides], reward);

  async function weightsAt(run: string, step: number, role: string) {
    const tensors = await readAll(yard.path(run, `global_step_${step}`, role, "model.safetensors"));
    return new Map([...tensors].map(([name, { data }]) => [name, Float32Array.from(data as ArrayLike<number>)]));
  }

  describe("PPO with a critic and a reference has the metrics of the embedded engine", () => {
    let expected: Metrics;
    beforeAll(async () => {
      expected = await play("embedded", []);
    });

    test.each([1, 2])("on %i of them", async (workers) => {
      expectSame(await play(`ray-${workers}`, onRay(workers)), expected);
    });
  });

  const steps = ["trainer.total_training_steps=2", "optim.lr=1e-3", "trainer.logger=[]", "trainer.threads=1"];
  const verbs = {
    SFT: (run: string): string[] => sandbox.args(run),
    "reward-model training": (run: string): string[] => [
      "reward",
      `model.path=${sandbox.model}`,
      `data.train_files=${sandbox.path("pairs.jsonl")}`,
      "data.val_size=4",
      "data.train_batch_size=8",
      `trainer.default_local_dir=${sandbox.path(run)}`,
    ],
  };
  describe.each(Object.entries(verbs))("%s has the metrics of the embedded engine", (verb, args) => {
    const train = async (run: string, overrides: readonly string[]): Promise<Metrics> => {
      expect(await main([...args(`${verb} ${run}`), ...steps, ...overrides], env)).toBe(0);
      return await sandbox.metrics(`${verb} ${run}`);
    };
    let expected: Metrics;
    beforeAll(async () => {
      const pairs = Array.from({ length: 28 }, (_, i) => ({
        prompt: `Say ${i}`,
        chosen: `Yes, ${i}.`,
        rejected: "No.",
      }));
      await sandbox.writeLines("pairs.jsonl", pairs);
      expected = await train("embedded", []);
    });

    test.each([1, 2])("on %i of them", async (workers) => {
      expectSame(await train(`ray-${workers}`, onRay(workers)), expected);
    });
  });

  test("a run of which a worker hangs says so once the others have waited for it, and goes on without it", async () => {
    const keys = ["trainer.total_training_steps=2", "trainer.save_freq=1", ...onRay(2)];
    const unbroken = await play("never", keys);
    let scored = 0;
    const hanging = await play("hanging", [...keys, "actor_rollout_ref.nccl_timeout=30"], (input) => {
      if (++scored === 17) process.kill(workersOf(cluster.session).at(-1)!, "SIGSTOP");
      return sevens(input);
    });
    expect(scored).toBeGreaterThan(2 * 16);
    expect(hanging).toEqual(unbroken);
  });

  test("a run that loses a worker goes on from its last checkpoint and ends as one that lost none", async () => {
    const four = ["trainer.total_training_steps=4", "trainer.save_freq=2", ...onRay(2)];
    const unbroken = await play("unbroken", four);
    const killed: number[] = [];
    let scored = 0;
    const perStep = 16;
    const broken = await play("broken", four, (input) => {
      // The third step is learnt and not saved, and the fourth has begun.
      if (++scored === 3 * perStep + 1) {
        killed.push(workersOf(cluster.session).at(-1)!);
        process.kill(killed[0]!, "SIGKILL");
      }
      return sevens(input);
    });
    expect(killed).toHaveLength(1);
    expect(scored).toBeGreaterThan(5 * perStep); // the third and the fourth step were taken again
    expectSame(broken, unbroken);
    expect((await readMetrics(yard.path("broken"))).map(({ step }) => step)).toEqual([1, 2, 3, 4]);
    for (const role of ["actor", "critic"])
      expectNear(await weightsAt("broken", 4, role), await weightsAt("unbroken", 4, role), 1e-4);
  });

  test("a run that loses its workers more often than it may ends with a message, and goes on when it is started again", async () => {
    const keys = ["trainer.total_training_steps=2", "trainer.save_freq=1", "trainer.max_restarts=0", ...onRay(1)];
    const run = (kills: boolean) => {
      let scored = 0;
      return play("often", keys, (input) => {
        if (kills && ++scored === 17) process.kill(workersOf(cluster.session)[0]!, "SIGKILL");
        return sevens(input);
      });
    };
    await expect(run(true)).rejects.toThrow(/Worker 0 \(process \d+ .*was lost.*The same command goes on/);
    expect(await run(false)).toHaveLength(2);
  });
});
