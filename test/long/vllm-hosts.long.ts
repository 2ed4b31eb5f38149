/**
 * Servers of vLLM on another host than the worker that sends them weights, over the network between them.
 * TRAINYARD_TEST_PYTHON names an interpreter that has python/requirements.txt, TRAINYARD_VLLM_PYTHON one that has vllm.
 */
import { randomBytes } from "node:crypto";
import { writeFile } from "node:fs/promises";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { canMakeHosts, Hosts } from "../hosts.ts";
import { hasRay } from "../ray-yard.ts";
import { Yard } from "../rl-yard.ts";
import { expectAgreement, hasVllm, vllmConfig, vllmPython } from "../vllm-yard.ts";

const SECONDS = 1000;
const rollout = "actor_rollout_ref.rollout";

const name = "vLLM servers on a host of their own (where hosts can be made, and vLLM and Ray are installed)";
describe.skipIf(!(canMakeHosts && hasRay && hasVllm))(name, { timeout: 600 * SECONDS }, () => {
  let hosts: Hosts;
  let yard: Yard;
  beforeAll(async () => {
    process.env.RAY_AUTH_TOKEN ??= randomBytes(20).toString("hex");
    yard = await Yard.make();
    hosts = await Hosts.make();
  });
  afterAll(async () => {
    await hosts?.end();
    yard?.remove();
  });

  test("sample from the weights after each update", async () => {
    await writeFile(yard.path("reward.mjs"), `export default ({ response }) => response.length;\n`);
    const model = await yard.makeModel("tied", vllmConfig);
    const [first, second] = [await hosts.add(), await hosts.add()];
    await first.startRay(2, {});
    await second.startRay(2, {}, first);
    // A worker leaves one processor of its host, and two servers need two of another.
    const apart = ["trainer.threads=1", `${rollout}.nnodes=1`, `${rollout}.n_gpus_per_node=2`];
    const keys = [
      `actor_rollout_ref.model.path=${model}`,
      "trainer.total_training_steps=3",
      "trainer.engine=ray",
      `${rollout}.name=vllm`,
      ...apart,
      `custom_reward_function.path=${yard.path("reward.mjs")}`,
    ];
    const env = { RAY_ADDRESS: first.rayAddress, TRAINYARD_VLLM_PYTHON: vllmPython };
    const child = first.trainyard(yard.args("apart", keys), env);
    await child.saying(/Starting vLLM/);
    const kinds = [first, second].map((host) =>
      host.leftovers().map((line) => /^ray::(Worker|VllmServer)Actor/.exec(line)?.[0]),
    );
    expect(kinds.map((one) => one.filter((kind) => kind !== undefined)).sort()).toEqual([
      ["ray::WorkerActor"],
      ["ray::VllmServerActor", "ray::VllmServerActor"],
    ]);
    expect(await child.ended, child.said).toBe(0);
    expectAgreement(await yard.metrics("apart"));
  });
});
