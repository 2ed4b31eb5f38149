/**
 * Samples from a real server of SGLang on a CPU: of the weights after each update, in single precision.
 * TRAINYARD_SGLANG_PYTHON names an interpreter that has sglang and a sgl_kernel that can be imported.
 */
import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { readdir } from "node:fs/promises";
import { createServer } from "node:http";
import type { Server } from "node:net";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";
import { Servers } from "../src/rollout/servers.ts";
import { sampleFromSglang } from "../src/rollout/sglang.ts";
import { factsOf, loadWeights } from "../src/rollout/weight-sync.ts";
import { UserError } from "../src/util/errors.ts";
import { Yard } from "./rl-yard.ts";
import { pause } from "./sandbox.ts";
import { endServer, expectAgreement, freePort, vllmConfig } from "./vllm-yard.ts";

const SECONDS = 1000;
const rollout = "actor_rollout_ref.rollout";
const supervisor = fileURLToPath(new URL("../python/trainyard_worker/supervisor.py", import.meta.url));
const python = process.env.TRAINYARD_SGLANG_PYTHON ?? "";
const find = "import sys; from importlib.util import find_spec as f; sys.exit(not (f('sglang') and f('sgl_kernel')))";
const hasSglang = python !== "" && spawnSync(python, ["-c", find]).status === 0;

/** Start SGLang on a model in a process of its own, which ends with this one; the result is its address. */
async function serveSglang(model: string): Promise<{ readonly url: string; readonly server: ChildProcess }> {
  const port = await freePort();
  const command = [
    python,
    "-m",
    "sglang.launch_server",
    "--model-path",
    model,
    "--host",
    "127.0.0.1",
    "--port",
    String(port),
    "--device",
    "cpu",
    "--attention-backend",
    "torch_native",
    "--dtype",
    "float32",
    "--max-total-tokens",
    "4096",
    "--max-running-requests",
    "32",
  ];
  const server = spawn(python, ["-P", supervisor, ...command], {
    stdio: ["pipe", "pipe", "pipe"],
    env: { ...process.env, SGLANG_USE_CPU_ENGINE: "1", HF_HUB_OFFLINE: "1" },
  });
  let said = "";
  for (const stream of [server.stdout, server.stderr]) stream.on("data", (bytes: Buffer) => (said += bytes));
  const url = `http://127.0.0.1:${port}`;
  while (!(await isHealthy(url))) {
    if (server.exitCode !== null || server.signalCode !== null) throw new Error(`SGLang ended: ${said.slice(-2000)}`);
    await pause(200);
  }
  return { url, server };
}

function portOf(listening: Server): number {
  const address = listening.address();
  return typeof address === "object" ? (address?.port ?? 0) : 0;
}

/** SGLang draws a token to answer this. */
async function isHealthy(url: string): Promise<boolean> {
  return await fetch(`${url}/health`).then(
    ({ ok }) => ok,
    () => false,
  );
}

describe.skipIf(!hasSglang)("samples from SGLang (where SGLang is installed)", { timeout: 300 * SECONDS }, () => {
  let yard: Yard;
  let model: string;
  let url: string;
  let server: ChildProcess;
  beforeAll(async () => {
    yard = await Yard.make();
    model = await yard.makeModel("tied", vllmConfig);
    ({ url, server } = await serveSglang(model));
  }, 600 * SECONDS);
  afterAll(async () => {
    await endServer(server);
    await yard.remove();
  });

  const rolloutServer = () => ({ url: `${url}/v1`, kind: "sglang", setting: "base_url", isUsers: true }) as const;

  const settings: readonly [string, readonly string[]][] = [
    ["at another temperature than 1", [`${rollout}.temperature=0.9`]],
    ["where unlikely tokens are cut off", [`${rollout}.top_k=12`, `${rollout}.top_p=0.95`]],
  ];
  /** A rate at which three steps move probabilities by far more than 0.001 and leave the entropy high. */
  const keysOf = (address: string) => [
    `actor_rollout_ref.model.path=${model}`,
    `${rollout}.base_url=[${address}/v1]`,
    "trainer.total_training_steps=3",
    "actor_rollout_ref.actor.optim.lr=3e-3",
  ];

  for (const [name, keys] of settings) {
    test(`are those of the weights after each update, also of a model whose head is its embedding, ${name}`, async () => {
      const run = `served ${keys.length}`;
      expectAgreement(await yard.play(run, [...keysOf(url), ...keys]));
      expect(await readdir(yard.path(run))).not.toContain("rollout_weights");
    });
  }

  test("of other weights under the name of those that it was given end the run before anything is learnt from them", async () => {
    const stale = createServer(async (asked, response) => {
      let body = "";
      for await (const chunk of asked) body += chunk;
      if (asked.url === "/update_weights_from_disk") body = JSON.stringify({ ...JSON.parse(body), model_path: model });
      const { method = "GET" } = asked;
      const headers = { "content-type": "application/json" };
      const answer = await fetch(url + asked.url, { method, headers, body: method === "GET" ? null : body });
      response.writeHead(answer.status, headers).end(await answer.text());
    });
    await once(stale.listen(0, "127.0.0.1"), "listening");
    try {
      const playing = yard.play("stale", keysOf(`http://127.0.0.1:${portOf(stale)}`));
      await expect(playing).rejects.toThrow(/does not sample from the weights that it was sent/);
      await expect(playing).rejects.toThrow(UserError);
      expect(await yard.metrics("stale")).toHaveLength(1);
    } finally {
      stale.closeAllConnections();
      await new Promise((resolve) => stale.close(resolve));
    }
  });

  test("are in the precision that it says, and each of a prompt's is drawn by itself", async () => {
    expect(await factsOf(rolloutServer())).toEqual({ dtype: "float32", logprobsMode: null, usesSeeds: false });
    const servers = new Servers({ baseUrls: [`${url}/v1`], setting: "base_url" });
    const request = { prompt: [5, 6, 7], n: 16, maxNewTokens: 8, stopIds: [11], seed: 1 };
    const { samples } = await sampleFromSglang(servers, request, false);
    expect(new Set(samples.map(({ ids }) => ids.join())).size).toBeGreaterThan(4);
    for (const { ids, logprobs, finishReason, stopReason } of samples) {
      expect(logprobs).toHaveLength(ids.length);
      const last = ids.at(-1);
      const isStopped = last === 11 || last === vllmConfig.eos_token_id;
      if (isStopped) expect([finishReason, stopReason]).toEqual(["stop", last === 11 ? 11 : null]);
      else expect([finishReason, ids.length]).toEqual(["length", 8]);
      expect(ids.slice(0, -1)).not.toContain(11);
    }
  });

  test("are of weights that it takes while others ask after its health, and names", async () => {
    let isAsking = true;
    const ask = async () => {
      while (isAsking) expect(await isHealthy(url)).toBe(true);
    };
    const asking = Promise.all([ask(), ask(), ask()]);
    try {
      for (let i = 0; i < 8; i++)
        await loadWeights(rolloutServer(), { folder: model, version: `law-${i}`, model: "", token: 1 });
    } finally {
      isAsking = false;
      await asking;
    }
    const info = z.object({ weight_version: z.string(), model_path: z.string() });
    const told = info.parse(await (await fetch(`${url}/model_info`)).json());
    expect(told).toEqual({ weight_version: "law-7", model_path: model });
  });

  test("go on after a folder that it does not see, which is refused in its words", async () => {
    const missing = { folder: yard.path("nowhere"), version: "none", model: "", token: 1 };
    const giving = loadWeights(rolloutServer(), missing);
    await expect(giving).rejects.toThrow(UserError);
    await expect(giving).rejects.toThrow(/\/update_weights_from_disk \(400\): .*nowhere.*under the same path/);
    expect(await isHealthy(url)).toBe(true);
  });
});
