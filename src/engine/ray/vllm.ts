/**
 * vLLM servers on the nodes of the workers or on other nodes, as Ray actors that each run one process. They sample:
 * `rollout/` sends them requests over HTTP. The first worker sends them weights by a broadcast (weight_transfer.py).
 *
 * When a server ends or is frozen, the group is lost, as with a worker. Requests need a key that only this process and
 * the servers know. In a cluster that was started here, servers listen on the loopback address only.
 */
import { randomBytes } from "node:crypto";
import { resolve } from "node:path";
import * as z from "zod";
import { invariant } from "../../util/errors.ts";
import type { ServerGroup, ServerSpec } from "../contract.ts";
import { RayModel, type WeightTransfer } from "./model.ts";
import type { Shim } from "./shim.ts";

export type VllmOptions = {
  readonly spec: ServerSpec;
  readonly device: "cpu" | "cuda";
  /** CPUs of each server that has resources of its own. */
  readonly cpus: number;
  /** They replace others that were lost. */
  readonly isReplacing: boolean;
  /** An interpreter that has vLLM; the workers' own if absent. */
  readonly python: string | undefined;
  readonly startMs: number;
  readonly silenceMs: number;
  /** How long the workers and the servers wait for each other. */
  readonly collectiveMs: number;
};

/** Create the actors of servers; null if the Python of one of them has no vLLM. */
export async function placeServers(shim: Shim, options: VllmOptions): Promise<ServerGroup | null> {
  const { spec, device, cpus, isReplacing, python, startMs, silenceMs, collectiveMs } = options;
  const each = device === "cuda" ? spec.parallel : 1;
  const bundle = device === "cuda" ? { CPU: cpus, GPU: each } : { CPU: cpus };
  const own = spec.own && { nodes: spec.own.nodes, perNode: spec.own.perNode / each, bundle };
  const request = { python: python ?? null, parallel: each, own, isReplacing, silence: silenceMs / 1000 };
  const count = await shim.serve(request, startMs);
  if (count === null) return null;
  // NCCL allows one process per GPU, so it cannot be used if a worker and a server share one.
  const transferDevice = own === null ? "cpu" : device;
  const transfer: WeightTransfer = { world: 1 + count * each, device: transferDevice, timeout: collectiveMs / 1000 };
  const workers = shim.group();
  const answers = await workers.call("open_transfer", () => transfer);
  const store = openedTransfer.parse(answers[0]);
  const apiKey = randomBytes(24).toString("hex");
  const format = spec.dtype === "float32" ? "F32" : "BF16";
  return {
    apiKey,
    format,
    lost: shim.lost,
    async start(folder) {
      const times = { timeout: startMs / 1000, silence: Math.min(silenceMs, SILENCE_MS) / 1000 };
      const about = { folder: resolve(folder), key: apiKey, env: defaultServerEnv, ...times };
      const command = commandOptions(spec, device);
      const startOf = (index: number) => {
        return { ...about, options: command, transfer: { ...transfer, ...store, first: 1 + index * each } };
      };
      const answers = await shim.callServers("start", startOf, startMs + 30_000);
      return answers.map((answer) => running.parse(answer).url);
    },
    async verify(folder) {
      const where = { folder: resolve(folder) };
      await workers.call("write_manifest", () => where);
      await shim.callServers("verify", () => where, VERIFY_MS);
    },
    async send(model) {
      invariant(model instanceof RayModel, "the model belongs to the engine of these servers");
      await model.send(transfer, format);
    },
  };
}

const VERIFY_MS = 1_800_000;

/** How long a server may neither answer nor compute before it counts as lost. */
const SILENCE_MS = 60_000;

/** The address where servers find the first worker, and its NCCL version if weights are sent over NCCL. */
const openedTransfer = z.object({ address: z.string(), nccl: z.string().nullable() });
const running = z.object({ url: z.string() });

/**
 * Defaults that the servers' environment can override. The space for keys and values on a CPU is in GiB; threads are not
 * bound to CPUs, because the workers use them too.
 */
const defaultServerEnv: Readonly<Record<string, string>> = {
  VLLM_CPU_KVCACHE_SPACE: "2",
  VLLM_CPU_OMP_THREADS_BIND: "nobind",
  VLLM_NO_USAGE_STATS: "1",
  HF_HUB_OFFLINE: "1",
};

/** The options of `vllm serve`; those of `spec.options` come last and override the others. */
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
    // vLLM needs room for at least one sequence.
    "max-num-batched-tokens": Math.max(spec.maxBatchedTokens, spec.maxLength),
    "enable-prefix-caching": spec.hasPrefixCache,
    "logprobs-mode": "processed_logprobs", // of the distribution that tokens are sampled from
    "generation-config": "vllm", // every request sets its own sampling parameters
    ...(device === "cuda" ? onGpus : { "enforce-eager": true }),
    ...Object.fromEntries(Object.entries(spec.options).map(([name, value]) => [name.replaceAll("_", "-"), value])),
  });
}

/** `--name value`; a boolean is `--name` or `--no-name`, and null omits an option. */
function flags(options: Readonly<Record<string, unknown>>): string[] {
  return Object.entries(options).flatMap(([name, value]) => {
    if (value === null || value === undefined) return [];
    if (typeof value === "boolean") return [value ? `--${name}` : `--no-${name}`];
    return [`--${name}`, typeof value === "object" ? JSON.stringify(value) : String(value)];
  });
}
