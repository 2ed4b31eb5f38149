/**
 * The keys that count with `trainer.engine=ray`, in verl's places and under verl's names, and what is read from them: the
 * workers, how each model is divided among them, who samples, and how often a lost group is replaced.
 *
 * Defaults are verl's, except: one worker per node where verl has 8, and passes in float32 where verl computes in
 * bfloat16, so that a run has the numbers of the embedded engine. `trainer.max_restarts` is ours. With another engine a
 * config does not hold these keys at all; the messages about them are then in `ppo/inert.ts` and `sft/verl.ts`.
 */
import { z } from "zod";
import type { ServerSpec, Sharding } from "../../engine/contract.ts";
import type { RayEngineOptions } from "../../engine/ray/engine.ts";
import { UserError } from "../../util/errors.ts";
import { bool, dict, type Field, field, int, name, nullable, number, path, type Type } from "../../util/field.ts";
import { checkPools, poolsOf, poolWorkers, rewardPoolKeys } from "./pool.ts";

type Precision = NonNullable<Sharding["dtype"]>;

const precisions = { float32: "float32", fp32: "float32", bfloat16: "bfloat16", bf16: "bfloat16" } as const;
const precision: Type<Precision, keyof typeof precisions> = {
  schema: z.enum(["float32", "fp32", "bfloat16", "bf16"]).transform((name) => precisions[name]),
  expects: "`float32` or `bfloat16`",
};

const fsdpSize: Type<number> = {
  schema: z.int().refine((size) => size === -1 || size > 0),
  expects: "a whole number of at least 1, or -1 for all workers",
};

function divided(dtype: "float32" | "${actor_rollout_ref.actor.fsdp_config.dtype}") {
  return {
    fsdp_size: field(fsdpSize, -1, "Workers among which one copy of the model is divided; further ones hold copies."),
    reshard_after_forward: field(bool, true, "Let go of a layer after its forward pass, and gather it again."),
    dtype: field(precision, dtype, "What passes compute in; weights, gradients and moments are float32."),
    param_offload: field(
      bool,
      false,
      "Keep weights, gradients and moments in the CPU's memory; for trainer.device=cuda.",
    ),
    optimizer_offload: field(bool, false, "The same as param_offload: FSDP2 moves all three or none."),
    offload_policy: field(bool, false, "The same as param_offload."),
  };
}

/** Keys that move a model off its GPU, below each branch that divides one. */
export const offloadKeys: readonly string[] = [
  "engine",
  "actor_rollout_ref.actor.fsdp_config",
  "actor_rollout_ref.ref.fsdp_config",
  "critic.model.fsdp_config",
].flatMap((branch) => ["param_offload", "optimizer_offload", "offload_policy"].map((key) => `${branch}.${key}`));

/** Why they mean nothing in a run; null where they do. */
export function whyNotOffloaded({ trainer }: Pick<EngineConfig, "trainer">): string | null {
  const isIdle = trainer.engine === "ray" && trainer.device === "cpu";
  return isIdle ? "`trainer.device` is cpu, whose memory is where everything is in any case" : null;
}

const enable_gradient_checkpointing = field(
  bool,
  true,
  "Compute layers again in the backward pass instead of keeping what they made: less memory, a third more work.",
);

const workers = {
  nnodes: field(int(1), 1, "Nodes of the cluster to train on."),
  n_gpus_per_node: field(int(1), 1, "Workers on each node: GPUs, or with trainer.device=cpu processes."),
  max_restarts: field(
    int(0),
    3,
    "How often a run whose workers were lost continues from its last checkpoint, with new workers.",
  ),
};

const ray_kwargs = {
  ray_init: field(
    dict,
    {},
    "Arguments of ray.init: address of a cluster to join, num_cpus, runtime_env and so on; without an address one is started here.",
  ),
  timeline_json_file: field(
    nullable(path),
    null,
    "File for Ray's timeline, written when the run ends: when each worker computed what; null for none.",
  ),
};

/** Keys of `trainyard sft` and `trainyard reward`. */
export const raySft = {
  model: { enable_gradient_checkpointing },
  engine: divided("float32"),
  trainer: workers,
  ray_kwargs,
};

/** How vLLM samples; other samplers take no notice. Defaults are verl's, but for the precision and one GPU a server. */
export const vllmKeys = {
  nnodes: field(int(0), 0, "Nodes with GPUs for vLLM alone; 0 has its servers share those of the workers."),
  n_gpus_per_node: field(
    int(1),
    "${trainer.n_gpus_per_node}",
    "GPUs for vLLM alone on each of rollout.nnodes; with trainer.device=cpu servers, each with a worker's processors.",
  ),
  tensor_model_parallel_size: field(int(1), 1, "GPUs of one vLLM server; it divides those of a node."),
  gpu_memory_utilization: field(number(0, 1), 0.5, "The share of each GPU's memory that vLLM takes."),
  enforce_eager: field(bool, false, "Without graphs in vLLM; on a CPU it has none in any case."),
  dtype: field(precision, "float32", "What vLLM computes in."),
  engine_kwargs: field(dict, {}, "Further options of `vllm serve`, under `vllm`: {vllm: {swap_space: 8}}."),
};

/** Keys of `trainyard ppo`. */
export const rayPpo = {
  actor_rollout_ref: {
    model: { enable_gradient_checkpointing },
    actor: { fsdp_config: divided("float32") },
    ref: { fsdp_config: divided("${actor_rollout_ref.actor.fsdp_config.dtype}") },
    rollout: {
      name: field(
        nullable(name),
        null,
        "What samples: `vllm`, on the workers' nodes where it is installed; otherwise the workers themselves.",
      ),
      ...vllmKeys,
    },
    nccl_timeout: field(int(1), 600, "Seconds that workers wait for each other before they count as lost."),
  },
  critic: {
    model: { enable_gradient_checkpointing, fsdp_config: divided("${actor_rollout_ref.actor.fsdp_config.dtype}") },
  },
  reward_model: rewardPoolKeys,
  trainer: {
    ...workers,
    ray_wait_register_center_timeout: field(int(1), 300, "Seconds that the cluster and its workers may take to start."),
  },
  ray_kwargs,
};

/** What a config holds of the keys that only one engine has. */
export type Further<T> =
  T extends Field<infer Out, unknown> ? Out : { readonly [K in keyof T]?: Further<T[K]> | undefined };

type Rows = Further<typeof raySft>;
type Rl = Further<typeof rayPpo>;

/** What all verbs that can train on Ray have in common. */
export type EngineConfig = {
  readonly trainer: Rows["trainer"] & {
    readonly engine: "embedded" | "ray";
    readonly device: "cpu" | "webgpu" | "cuda";
    readonly threads: number;
    readonly ray_wait_register_center_timeout?: number | undefined;
  };
  readonly actor_rollout_ref?: {
    readonly nccl_timeout?: number | undefined;
    readonly rollout?: NonNullable<Rl["actor_rollout_ref"]>["rollout"] & { readonly base_url?: readonly string[] };
  };
  readonly reward_model?: Rl["reward_model"] & { readonly enable?: boolean };
  readonly reward?: { readonly sources?: Readonly<Record<string, readonly { readonly use: string }[]>> | null };
  readonly ray_kwargs?: Rl["ray_kwargs"];
};

/** How many workers train. */
export function workerCount({ trainer }: Pick<EngineConfig, "trainer">): number {
  return (trainer.nnodes ?? 1) * (trainer.n_gpus_per_node ?? 1);
}

/** How many servers have a place of their own. */
function serversOf({ trainer, actor_rollout_ref: { rollout = {} } = {} }: EngineConfig): number {
  if (rollout.name !== "vllm" || rollout.base_url?.length) return 0;
  const { nnodes = 0, n_gpus_per_node: perNode = 1, tensor_model_parallel_size: parallel = 1 } = rollout;
  return (nnodes * perNode) / (trainer.device === "cuda" ? parallel : 1);
}

/** What the Ray engine is made of; `cores` are those of this machine, `isJoining` when a cluster is there already. */
export function raySettings(
  config: EngineConfig,
  { cores, isJoining }: { readonly cores: number; readonly isJoining: boolean },
): RayEngineOptions {
  const { device, threads, nnodes = 1, n_gpus_per_node: workersPerNode = 1 } = config.trainer;
  const given = Object.entries(config.ray_kwargs?.ray_init ?? {}).filter(([, value]) => value !== null);
  const { address, ...init } = Object.fromEntries(given);
  const starts = typeof address !== "string" && !isJoining;
  const processors = typeof init.num_cpus === "number" ? init.num_cpus : cores;
  const servers = serversOf(config);
  const pools = poolsOf(config);
  const processes = workerCount(config) + servers + poolWorkers(config);
  const share = starts && device === "cpu" ? Math.max(1, Math.floor(processors / processes)) : 1;
  const { timeline_json_file: timeline } = config.ray_kwargs ?? {};
  const { ray_wait_register_center_timeout: startSeconds } = config.trainer;
  const collectiveSeconds = config.actor_rollout_ref?.nccl_timeout;
  return {
    nodes: nnodes,
    workersPerNode,
    device: device === "cuda" ? "cuda" : "cpu",
    init: withText(init),
    cpusPerWorker: threads > 0 ? threads : share,
    servers,
    pools,
    ...(timeline !== null && timeline !== undefined && { timeline }),
    ...(typeof address === "string" && { address }),
    ...(startSeconds !== undefined && { startMs: startSeconds * 1000 }),
    ...(collectiveSeconds !== undefined && { collectiveMs: collectiveSeconds * 1000 }),
  };
}

/** Arguments of `ray.init` in which the workers' variables are text, as Ray wants them; in YAML, 1 and true are not. */
function withText(init: Readonly<Record<string, unknown>>): Readonly<Record<string, unknown>> {
  const { data } = withVariables.safeParse(init);
  return data ?? init; // Ray reports what is wrong with it
}

const withVariables = z.looseObject({
  runtime_env: z.looseObject({
    env_vars: z.record(z.string(), z.union([z.string(), z.number(), z.boolean()]).transform(String)),
  }),
});

type Divided = NonNullable<Rows["engine"]>;

/** How a model is divided; an engine of one device has no use for it. */
function shardingOf(
  config: Pick<EngineConfig, "trainer">,
  { fsdp_size: size = -1, reshard_after_forward: reshards = true, dtype = "float32", ...offload }: Divided,
  checkpointing = false,
): Sharding {
  const all = workerCount(config);
  const offloads = Object.values(offload).includes(true);
  return { replicas: size > 0 && size < all ? all / size : 1, reshards, dtype, checkpointing, offloads };
}

/** How the model of a supervised run is divided. */
export function rowSharding(config: Rows & Pick<EngineConfig, "trainer">): Sharding {
  return shardingOf(config, config.engine ?? {}, config.model?.enable_gradient_checkpointing);
}

/** How a model of a reinforcement-learning run is divided. */
export function roleSharding(
  config: Rl & Pick<EngineConfig, "trainer">,
  role: "actor" | "reference" | "critic",
): Sharding {
  const { actor_rollout_ref: all, critic } = config;
  if (role === "critic")
    return shardingOf(config, critic?.model?.fsdp_config ?? {}, critic?.model?.enable_gradient_checkpointing);
  if (role === "reference") return shardingOf(config, all?.ref?.fsdp_config ?? {});
  return shardingOf(config, all?.actor?.fsdp_config ?? {}, all?.model?.enable_gradient_checkpointing);
}

type Sampling = Pick<Rl, "actor_rollout_ref"> & {
  readonly actor_rollout_ref: {
    readonly rollout: {
      readonly prompt_length: number;
      readonly response_length: number;
      readonly max_model_len: number | null;
      readonly max_num_seqs: number;
      readonly max_num_batched_tokens: number;
      readonly enable_prefix_caching: boolean;
    };
  };
};

/** How servers that the engine runs sample. */
export function serverSpec({ actor_rollout_ref: { rollout } }: Sampling): ServerSpec {
  const { engine_kwargs: { vllm } = {}, nnodes: nodes = 0, n_gpus_per_node: perNode = 1 } = rollout;
  return {
    dtype: rollout.dtype ?? "float32",
    maxLength: rollout.max_model_len ?? rollout.prompt_length + rollout.response_length,
    maxSequences: rollout.max_num_seqs,
    maxBatchedTokens: rollout.max_num_batched_tokens,
    hasPrefixCache: rollout.enable_prefix_caching,
    memoryShare: rollout.gpu_memory_utilization ?? 0.5,
    parallel: rollout.tensor_model_parallel_size ?? 1,
    own: nodes > 0 ? { nodes, perNode } : null,
    isEager: rollout.enforce_eager ?? false,
    options: dict.schema.safeParse(vllm).data ?? {},
  };
}

/** Whether the actor rounds so much that the log-probs of its sampler differ from those of its training. */
export function roundsCoarsely({ trainer, actor_rollout_ref: all }: Rl & Pick<EngineConfig, "trainer">): boolean {
  return trainer.engine === "ray" && all?.actor?.fsdp_config?.dtype === "bfloat16";
}

/** Rules between these keys: each a `UserError` with the way out; none with another engine. */
export function checkRay(config: Rows & Rl & Pick<EngineConfig, "trainer">): void {
  if (config.trainer.engine !== "ray") return;
  if (config.trainer.device === "webgpu") {
    throw new UserError(
      "`trainer.device` is webgpu, and workers of `trainer.engine`=ray run PyTorch on cpu or cuda. Set trainer.device to one of them, or trainer.engine=embedded.",
    );
  }
  checkVllm(config);
  checkPools(config);
  const all = workerCount(config);
  const sizes: readonly (readonly [string, number | undefined])[] = [
    ["engine.fsdp_size", config.engine?.fsdp_size],
    ["actor_rollout_ref.actor.fsdp_config.fsdp_size", config.actor_rollout_ref?.actor?.fsdp_config?.fsdp_size],
    ["actor_rollout_ref.ref.fsdp_config.fsdp_size", config.actor_rollout_ref?.ref?.fsdp_config?.fsdp_size],
    ["critic.model.fsdp_config.fsdp_size", config.critic?.model?.fsdp_config?.fsdp_size],
  ];
  for (const [key, size = -1] of sizes) {
    if (size < 0 || size >= all || all % size === 0) continue;
    throw new UserError(
      `\`${key}\` is ${size}, which does not divide the ${all} workers (\`trainer.nnodes\` x \`trainer.n_gpus_per_node\`). ` +
        `Set it to a divisor of ${all}, or to -1 for one copy among all workers.`,
    );
  }
}

function checkVllm({ trainer, actor_rollout_ref: { rollout = {} } = {} }: Rl & Pick<EngineConfig, "trainer">): void {
  if (rollout.name !== "vllm") return;
  const place = "actor_rollout_ref.rollout";
  const given = Object.keys(dict.schema.safeParse(rollout.engine_kwargs?.vllm).data ?? {});
  const taken = given.find((option) => option.replaceAll("-", "_") in ownOptions);
  if (taken !== undefined) {
    throw new UserError(
      `\`${place}.engine_kwargs.vllm.${taken}\` cannot be given: ${ownOptions[taken.replaceAll("-", "_")]}.`,
    );
  }
  const { tensor_model_parallel_size: parallel = 1, nnodes = 0 } = rollout;
  const [gpus = 1, key] =
    nnodes > 0
      ? [rollout.n_gpus_per_node, `${place}.n_gpus_per_node`]
      : [trainer.n_gpus_per_node, "trainer.n_gpus_per_node"];
  if (trainer.device === "cuda" && gpus % parallel !== 0) {
    throw new UserError(
      `\`${place}.tensor_model_parallel_size\` is ${parallel}, which does not divide the ${gpus} GPUs of a node ` +
        `(\`${key}\`). Set it to a divisor.`,
    );
  }
}

/** Options of `vllm serve` that are not the user's, and why. */
const ownOptions: Readonly<Record<string, string>> = {
  tensor_parallel_size: "set `actor_rollout_ref.rollout.tensor_model_parallel_size`",
  pipeline_parallel_size: "a server has one stage",
  data_parallel_size: "there are as many servers as have room",
  worker_extension_cls: "it is how servers are given weights",
};
