/** Samples from `trainyard serve` processes: they come from the weights after each update, and no weights stay behind. */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { readdir } from "node:fs/promises";
import { createServer, request } from "node:http";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";
import type { RewardFunction } from "../src/rewards/reward.ts";
import { UserError } from "../src/util/errors.ts";
import { CallRecorder } from "./call-recorder.ts";
import { sevens, Yard } from "./rl-yard.ts";
import { pause } from "./sandbox.ts";

const launcher = fileURLToPath(new URL("../bin/trainyard.js", import.meta.url));
const rollout = "actor_rollout_ref.rollout";

const Completion = z.object({
  choices: z.array(
    z.object({
      text: z.string(),
      token_ids: z.array(z.number()),
      logprobs: z.object({ token_logprobs: z.array(z.number()) }),
      finish_reason: z.string(),
    }),
  ),
});
const Generate = z.object({
  input_ids: z.array(z.number()),
  sampling_params: z.looseObject({ n: z.number().default(1), max_new_tokens: z.number(), temperature: z.number() }),
});

/** SGLang's paths in front of `trainyard serve`, as SGLang 0.5.23 answers them; a deaf one keeps its weights. */
async function sglangBefore(url: string, { isDeaf = false } = {}): Promise<CallRecorder> {
  let version = "default";
  const post = async (path: string, body: object): Promise<unknown> => {
    const headers = { "content-type": "application/json" };
    const response = await fetch(url + path, { method: "POST", headers, body: JSON.stringify(body) });
    if (!response.ok) throw new Error(await response.text());
    return await response.json();
  };
  return CallRecorder.open({
    "/v1/models": { body: { data: [{ id: "m", object: "model", owned_by: "sglang" }] } },
    "/server_info": { body: { dtype: "float32", enable_deterministic_inference: false } },
    "/update_weights_from_disk": async (body) => {
      const asked = z.object({ model_path: z.string(), weight_version: z.string() }).parse(body);
      version = asked.weight_version;
      if (!isDeaf) await post("/reload_weights", { path: asked.model_path });
      return { body: { success: true, message: "Succeeded to update model weights.", num_paused_requests: 0 } };
    },
    "/generate": async (body) => {
      const { input_ids: prompt, sampling_params: sampling } = Generate.parse(body);
      const { n, max_new_tokens: max_tokens, temperature, stop_token_ids } = sampling;
      const asked = { prompt, n, max_tokens, temperature, stop_token_ids, logprobs: 0, return_token_ids: true };
      const { choices } = Completion.parse(await post("/v1/completions", asked));
      const made = choices.map(({ text, token_ids: ids, logprobs, finish_reason: type }) => ({
        text,
        output_ids: ids,
        meta_info: {
          finish_reason: type === "length" ? { type, length: ids.length } : { type, matched: ids.at(-1) },
          output_token_logprobs: logprobs.token_logprobs.map((logprob, i) => [logprob, ids[i], null]),
          prompt_tokens: prompt.length,
          completion_tokens: ids.length,
          cached_tokens: 0,
          weight_version: version,
        },
      }));
      return { body: n === 1 ? made[0] : made };
    },
  });
}

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
      `${rollout}.base_url=[${url}/v1]`,
      "trainer.total_training_steps=3",
      "algorithm.adv_estimator=gae",
      "algorithm.rollout_correction.preset=decoupled_token_is",
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

  test("from old weights that a server keeps are detected by their log-probs", async () => {
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

  test("with SGLang's API come from the weights after each update; other weights end the run", async () => {
    const spoken = await sglangBefore(await serve("--allow-reload"));
    const deaf = await sglangBefore(await serve("--allow-reload"), { isDeaf: true });
    try {
      const keys = (it: CallRecorder) => [`${rollout}.base_url=[${it.url}]`, "trainer.total_training_steps=3"];
      const metrics = await yard.play("sglang", [...keys(spoken), `${rollout}.temperature=0.8`]);
      expect(metrics).toHaveLength(3);
      for (const data of metrics) {
        expect(data["training/rollout_probs_diff_max"]).toBeLessThan(1e-4);
        expect(data["actor/grad_norm"]).toBeGreaterThan(0);
      }
      const played = yard.play("sglang-deaf", keys(deaf));
      await expect(played).rejects.toThrow(/other probabilities than the trainer.*single precision/);
      await expect(played).rejects.toThrow(UserError);
      expect(await yard.metrics("sglang-deaf")).toHaveLength(1);
    } finally {
      await spoken.close();
      await deaf.close();
    }
  });

  test("leave no weights behind in a run that is stopped, or whose server is gone", async () => {
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
      /\/reload_weights .* does not answer: .* Check that the server still runs\./,
    );
    const left = await readdir(yard.path("stopped"));
    expect([left.includes("rollout_weights"), left.includes("global_step_1")]).toEqual([false, true]);
  });

  test("from a server that refuses new weights are an error before the first step", async () => {
    const url = await serve();
    const playing = yard.play("unserved", [`${rollout}.base_url=[${url}/v1]`]);
    await expect(playing).rejects.toThrow(/refused the new weights.*--allow-reload/);
    await expect(playing).rejects.toThrow(UserError);
    await expect(yard.metrics("unserved")).resolves.toEqual([]);
  });
});
