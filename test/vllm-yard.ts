/** What tests of rollouts from vLLM need: an interpreter that has it, a model that it takes, and a server of it. */
import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { readdirSync, readFileSync } from "node:fs";
import { createServer } from "node:net";
import { fileURLToPath } from "node:url";
import { expect } from "vitest";
import type { ServerSpec } from "../src/engine/contract.ts";
import { charConfig } from "./rl-yard.ts";
import { pause } from "./sandbox.ts";

const supervisor = fileURLToPath(new URL("../python/trainyard_worker/supervisor.py", import.meta.url));

/** An interpreter that may have vllm. */
export const vllmPython: string = process.env.TRAINYARD_VLLM_PYTHON ?? "";

const find = "import sys; from importlib.util import find_spec as f; sys.exit(not f('vllm'))";

/** Whether vLLM can run here. */
export const hasVllm: boolean = vllmPython !== "" && spawnSync(vllmPython, ["-c", find]).status === 0;

/** Heads as vLLM's attention wants them on a CPU, and a head that is the embedding. */
export const vllmConfig = {
  ...charConfig,
  hidden_size: 64,
  intermediate_size: 96,
  num_attention_heads: 2,
  num_key_value_heads: 1,
  head_dim: 32,
  tie_word_embeddings: true,
};

/** What a server of an engine is to do in a test. */
export const serverSpec: ServerSpec = {
  dtype: "float32",
  maxLength: 64,
  maxSequences: 8,
  maxBatchedTokens: 64,
  hasPrefixCache: true,
  memoryShare: 0.5,
  parallel: 1,
  own: null,
  isEager: true,
  options: {},
};

/** Start vLLM on a model in a process of its own; the result is its address. */
export async function serveVllm(model: string): Promise<{ readonly url: string; readonly server: ChildProcess }> {
  const port = await freePort();
  const options = ["--dtype", "float32", "--max-model-len", "64", "--max-num-seqs", "32", "--enforce-eager"];
  const modes = ["--logprobs-mode", "processed_logprobs"];
  const address = ["--host", "127.0.0.1", "--port", String(port)];
  const command = [vllmPython, "-m", "vllm.entrypoints.cli.main", "serve", model, ...address, ...options, ...modes];
  // Kept, so that it ends with this process however that ends.
  const server = spawn(vllmPython, ["-P", supervisor, ...command], {
    stdio: ["pipe", "pipe", "pipe"],
    env: {
      ...process.env,
      VLLM_SERVER_DEV_MODE: "1",
      VLLM_CPU_KVCACHE_SPACE: "1",
      VLLM_NO_USAGE_STATS: "1",
      HF_HUB_OFFLINE: "1",
      VLLM_CPU_OMP_THREADS_BIND: "nobind",
    },
  });
  let said = "";
  for (const stream of [server.stdout, server.stderr]) stream.on("data", (bytes: Buffer) => (said += bytes));
  const url = `http://127.0.0.1:${port}`;
  while (
    !(await fetch(`${url}/health`).then(
      ({ ok }) => ok,
      () => false,
    ))
  ) {
    if (server.exitCode !== null || server.signalCode !== null) throw new Error(`vLLM ended: ${said.slice(-2000)}`);
    await pause(200);
  }
  return { url, server };
}

/** End a server, and wait until it has ended. */
export async function endServer(server: ChildProcess): Promise<void> {
  server.stdin?.end();
  if (server.exitCode === null && server.signalCode === null) await once(server, "exit");
}

/** A port at which nobody listens. */
export async function freePort(): Promise<number> {
  const probe = createServer().listen(0, "127.0.0.1");
  await once(probe, "listening");
  const address = probe.address();
  probe.close();
  await once(probe, "close");
  return typeof address === "object" && address !== null ? address.port : 0;
}

/** Three steps whose samples are of the trainer's weights, as another program computes them. */
export function expectAgreement(metrics: readonly Record<string, number>[]): void {
  expect(metrics).toHaveLength(3);
  for (const data of metrics) {
    expect(data["training/rollout_probs_diff_max"]).toBeLessThan(1e-3);
    expect(data["training/rollout_probs_diff_max"]).toBeGreaterThan(0); // another program has computed them
    expect(data["actor/entropy"]).toBeGreaterThan(0.5); // or probabilities near 1 would agree by themselves
    expect(data["actor/grad_norm"]).toBeGreaterThan(0);
  }
}

/** The servers of vLLM on a model below a folder (Linux). */
export function runningWith(folder: string): number[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .filter((pid) => isServer(pid) && argumentsOf(pid).some((arg) => arg.startsWith(folder)));
}

/** Where a server of vLLM listens, as its command says (Linux). */
export function addressOf(pid: number): string {
  const args = argumentsOf(pid);
  const [host, port] = ["--host", "--port"].map((option) => args[args.indexOf(option) + 1]);
  return `http://${host}:${port}`;
}

/** Whether a process is a server of vLLM that speaks HTTP (Linux). */
export const isServer = (pid: number): boolean => argumentsOf(pid)[2] === "vllm.entrypoints.cli.main";

/** Empty where the process has ended (Linux). */
function argumentsOf(pid: number): string[] {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0");
  } catch {
    return [];
  }
}
