/**
 * Servers of vLLM on the nodes of the workers, as Ray actors that each keep one process. They sample; what they are asked
 * and how they are given weights is `rollout/`'s, over HTTP.
 *
 * A server that ends or is frozen is the end of the group, like a worker. Requests need the key, which only this process and the
 * servers know; in a cluster of its own they listen on the loopback address.
 */
import { randomBytes } from "node:crypto";
import { resolve } from "node:path";
import * as z from "zod";
import type { ServerGroup, ServerSpec } from "../contract.ts";
import type { Shim } from "./shim.ts";

export type VllmOptions = {
  readonly spec: ServerSpec;
  readonly device: "cpu" | "cuda";
  /** An interpreter that has vLLM; the workers' own if absent. */
  readonly python: string | undefined;
  readonly startMs: number;
  readonly silenceMs: number;
};

/** Find places for servers; null where the Python of one of them has no vLLM. */
export async function placeServers(shim: Shim, options: VllmOptions): Promise<ServerGroup | null> {
  const { spec, device, python, startMs, silenceMs } = options;
  const silence = silenceMs / 1000;
  const isThere = await shim.serve({ python: python ?? null, parallel: spec.parallel, silence }, startMs);
  if (!isThere) return null;
  const apiKey = randomBytes(24).toString("hex");
  return {
    apiKey,
    lost: shim.lost,
    async start(folder) {
      const times = { timeout: startMs / 1000, silence: Math.min(silenceMs, SILENCE_MS) / 1000 };
      const about = { folder: resolve(folder), key: apiKey, env: defaultServerEnv, ...times };
      const command = commandOptions(spec, device);
      const answers = await shim.callServers("start", { ...about, options: command }, startMs + 30_000);
      return answers.map((answer) => running.parse(answer).url);
    },
    async verify(folder) {
      await shim.callServers("verify", { folder: resolve(folder) }, VERIFY_MS);
    },
  };
}

const VERIFY_MS = 1_800_000;

/** How long a server may neither answer nor compute before it counts as lost. */
const SILENCE_MS = 60_000;

const running = z.object({ url: z.string() });

/**
 * Where the servers' environment does not say otherwise. Space for keys and values on a CPU is in GiB; threads are not
 * bound to processors, since the workers use them too.
 */
const defaultServerEnv: Readonly<Record<string, string>> = {
  VLLM_CPU_KVCACHE_SPACE: "2",
  VLLM_CPU_OMP_THREADS_BIND: "nobind",
  VLLM_NO_USAGE_STATS: "1",
  HF_HUB_OFFLINE: "1",
};

/** The options of `vllm serve`; those of `spec.options` come last, and win. */
export function commandOptions(spec: ServerSpec, device: "cpu" | "cuda"): string[] {
  const onGpus = {
    "tensor-parallel-size": spec.parallel,
    "gpu-memory-utilization": spec.memoryShare,
    "enforce-eager": spec.isEager,
  };
  return flags({
    dtype: spec.dtype,
    "max-model-len": spec.maxLength,
    "max-num-seqs": spec.maxSequences,
    // vLLM refuses less than one sequence.
    "max-num-batched-tokens": Math.max(spec.maxBatchedTokens, spec.maxLength),
    "enable-prefix-caching": spec.hasPrefixCache,
    "logprobs-mode": "processed_logprobs", // of the distribution that is drawn from
    "generation-config": "vllm", // every request says how it samples
    ...(device === "cuda" ? onGpus : { "enforce-eager": true }),
    ...Object.fromEntries(Object.entries(spec.options).map(([name, value]) => [name.replaceAll("_", "-"), value])),
  });
}

/** `--name value`; a switch is `--name` or `--no-name`, and null leaves an option out. */
function flags(options: Readonly<Record<string, unknown>>): string[] {
  return Object.entries(options).flatMap(([name, value]) => {
    if (value === null || value === undefined) return [];
    if (typeof value === "boolean") return [value ? `--${name}` : `--no-${name}`];
    return [`--${name}`, typeof value === "object" ? JSON.stringify(value) : String(value)];
  });
}
