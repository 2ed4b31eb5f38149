/** Samples from `trainyard serve` processes: of the weights after each update, and none left behind. */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { readdir } from "node:fs/promises";
import { createServer, request } from "node:http";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { RewardFunction } from "../src/rewards/reward.ts";
import { UserError } from "../src/util/errors.ts";
import { sevens, Yard } from "./rl-yard.ts";
import { pause } from "./sandbox.ts";

const launcher = fileURLToPath(new URL("../bin/trainyard.js", import.meta.url));
const rollout = "actor_rollout_ref.rollout";

let yard: Yard;
beforeAll(async () => {
  yard = await Yard.make();
});
afterAll(() => yard.remove());

describe("samples from a server", () => {
  const servers: ChildProcess[] = [];
  afterAll(async () => {
    for (const server of servers) {
      server.kill("SIGTERM");
      if (server.exitCode === null && server.signalCode === null) await once(server, "close");
    }
  });

  /** Start `trainyard serve` in a process of its own; the result is its address. */
  async function serve(...flags: readonly string[]): Promise<string> {
    const args = [launcher, "serve", yard.model, "--port=0", "--threads=1", ...flags];
    const server = spawn(process.execPath, args, {
      stdio: ["ignore", "pipe", "ignore"],
      env: { ...process.env, HF_HUB_OFFLINE: "1" },
    });
    servers.push(server);
    let said = "";
    for await (const chunk of server.stdout) {
      said += chunk;
      const [address] = /http:\/\/127\.0\.0\.1:\d+/.exec(said) ?? [];
      if (address !== undefined) return address;
    }
    throw new Error(`The server ended: ${said}`);
  }

  test("are those of the weights after each update", async () => {
    const url = await serve("--allow-reload");
    const metrics = await yard.play("served", [
      ...[`${rollout}.base_url=[${url}/v1]`, "trainer.total_training_steps=3"],
      ...["algorithm.adv_estimator=gae", "algorithm.rollout_correction.preset=decoupled_token_is"],
    ]);
    expect(metrics).toHaveLength(3);
    for (const data of metrics) {
      expect(data["training/rollout_probs_diff_max"]).toBeLessThan(1e-4);
      expect(data["rollout_corr/rollout_is_mean"]).toBeCloseTo(1, 3);
      expect(data["actor/grad_norm"]).toBeGreaterThan(0);
    }
    // The log-probs above are of weights that changed, so the server has been given them; the copies are gone.
    expect(await readdir(yard.path("served"))).not.toContain("rollout_weights");
  });

  test("of weights that a server keeps to itself are found out by their log-probs", async () => {
    const url = await serve("--allow-reload");
    const deaf = createServer((asked, response) => {
      if (asked.url === "/reload_weights") return void response.end("{}");
      const onward = request(new URL(asked.url ?? "/", url), { method: asked.method, headers: asked.headers });
      onward.on("response", (answer) => {
        response.writeHead(answer.statusCode ?? 500, answer.headers);
        answer.pipe(response);
      });
      asked.pipe(onward);
    });
    await once(deaf.listen(0, "127.0.0.1"), "listening");
    try {
      const address = deaf.address();
      const port = typeof address === "object" ? address?.port : 0;
      const keys = [`${rollout}.base_url=[http://127.0.0.1:${port}/v1]`, "trainer.total_training_steps=3"];
      const metrics = await yard.play("deaf", keys);
      const gaps = metrics.map((data) => data["training/rollout_probs_diff_max"]! > 1e-3);
      expect(gaps).toEqual([false, true, true]);
    } finally {
      deaf.closeAllConnections();
      await new Promise((resolve) => deaf.close(resolve));
    }
  });

  test("leave no weights behind in a run that is stopped, nor in one whose server goes away", async () => {
    const url = await serve("--allow-reload");
    const server = servers.at(-1)!;
    const keys = [`${rollout}.base_url=[${url}/v1]`, "trainer.total_training_steps=9"];
    const controller = new AbortController();
    let scored = 0;
    const stopping: RewardFunction = (input) => {
      if (++scored === 20) controller.abort();
      return sevens(input);
    };
    await yard.play("stopped", keys, stopping, controller.signal);
    scored = 0;
    const leaving: RewardFunction = async (input) => {
      if (++scored === 16) {
        await pause(100); // until the last answer has been read to its end
        server.kill("SIGKILL");
      }
      return sevens(input);
    };
    await expect(yard.play("stopped", keys, leaving)).rejects.toThrow(
      /\/reload_weights .* does not answer: .* Is the server still there\?/,
    );
    const left = await readdir(yard.path("stopped"));
    expect([left.includes("rollout_weights"), left.includes("global_step_1")]).toEqual([false, true]);
  });

  test("of one that may not be given weights are refused before the first step", async () => {
    const url = await serve();
    const playing = yard.play("unserved", [`${rollout}.base_url=[${url}/v1]`]);
    await expect(playing).rejects.toThrow(/refused the new weights.*--allow-reload/);
    await expect(playing).rejects.toThrow(UserError);
    await expect(yard.metrics("unserved")).resolves.toEqual([]);
  });
});
