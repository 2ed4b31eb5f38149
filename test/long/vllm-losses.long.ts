/**
 * Runs that lose a server of vLLM, and servers that are stopped and not dead; `ray-servers.test.ts` stops a stand-in, which
 * starts faster.
 * TRAINYARD_TEST_PYTHON names an interpreter that has python/requirements.txt, TRAINYARD_VLLM_PYTHON one that has vllm.
 */
import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { EngineLost } from "../../src/engine/lost.ts";
import { RayEngine } from "../../src/engine/ray/engine.ts";
import type { RewardFunction } from "../../src/rewards/reward.ts";
import { hasRay, playWith, processesOf, python } from "../ray-yard.ts";
import { sevens, Yard } from "../rl-yard.ts";
import { expectAgreement, hasVllm, isServer, runningWith, serverSpec, vllmConfig, vllmPython } from "../vllm-yard.ts";

const SECONDS = 1000;

describe.skipIf(!hasVllm || !hasRay)(
  "a vLLM server (where vLLM and Ray are installed)",
  { timeout: 600 * SECONDS },
  () => {
    let yard: Yard;
    let model: string;
    beforeAll(async () => {
      yard = await Yard.make();
      model = await yard.makeModel("tied", vllmConfig);
    });
    afterAll(() => yard.remove());

    test("that is killed in the middle of a run is replaced, and the run goes on from its last checkpoint", async () => {
      let scored = 0;
      const killing: RewardFunction = async (input) => {
        if (++scored === 24) for (const pid of runningWith(yard.path("killed"))) process.kill(pid, "SIGKILL");
        return sevens(input);
      };
      const keys = [
        `actor_rollout_ref.model.path=${model}`,
        "actor_rollout_ref.rollout.name=vllm",
        "trainer.engine=ray",
        "trainer.total_training_steps=3",
        "trainer.save_freq=1",
      ];
      const env = { TRAINYARD_PYTHON: python, TRAINYARD_VLLM_PYTHON: vllmPython };
      expectAgreement(await playWith(yard, "killed", keys, env, killing));
      expect(scored).toBeGreaterThan(48); // a step of 16 responses was taken again
    });

    test.each<{ part: string; find: (pid: number) => boolean; whose: RegExp }>([
      { part: "that speaks HTTP", find: isServer, whose: /: it does not answer/ },
      {
        part: "that computes",
        find: (pid) => nameOf(pid) === "VLLM::EngineCor",
        whose: /: its engine does not answer/,
      },
    ])("whose process $part is stopped is named, and leaves nothing behind", async (one) => {
      const engine = new RayEngine({ python, vllmPython, silenceMs: 10 * SECONDS });
      try {
        const actor = await engine.open({ folder: model });
        const weights = yard.path(`weights ${one.part}`);
        await actor.save(weights);
        const group = await engine.serve(serverSpec);
        await group!.start(weights);
        const { shimPid } = await engine.group();
        await sleep(15 * SECONDS);
        expect(group!.lost.aborted).toBe(false); // it is idle, and well
        const begun = performance.now();
        for (const pid of processesOf(shimPid!).filter(one.find)) process.kill(pid, "SIGSTOP");
        while (!group!.lost.aborted && performance.now() - begun < 60 * SECONDS) await sleep(50);
        expect(group!.lost.reason).toBeInstanceOf(EngineLost);
        expect(String(group!.lost.reason)).toMatch(/The vLLM server 0 \(process \d+ on .*\) was lost: /);
        expect(String(group!.lost.reason)).toMatch(one.whose);
        while (processesOf(shimPid!).length > 0 && performance.now() - begun < 90 * SECONDS) await sleep(50);
        expect(processesOf(shimPid!)).toEqual([]);
      } finally {
        await engine.close();
      }
    });
  },
);

/** What a process calls itself, in at most 15 characters (Linux). */
function nameOf(pid: number): string {
  return readFileSync(`/proc/${pid}/comm`, "utf8").trim();
}
