/**
 * The Ray engine: PyTorch models, sharded over workers that Ray places. The workers, and a cluster if there is none,
 * start with the first model. All models of an engine share its workers, except those with a pool of their own.
 *
 * When a worker of any pool is lost, all are lost (`EngineLost`): close the engine, open another one, and continue from a
 * checkpoint.
 */
import { mkdir } from "node:fs/promises";
import { dirname, resolve } from "node:path";
import * as z from "zod";
import { readAnyConfig } from "../../models/config.ts";
import { Runtime } from "../../runtime/runtime.ts";
import { messageOf } from "../../util/errors.ts";
import { warn } from "../../util/log.ts";
import { Random } from "../../util/random.ts";
import type { Engine, ModelSpec, ServerGroup, ServerSpec } from "../contract.ts";
import { LossGradients } from "./loss-gradient.ts";
import { RayModel } from "./model.ts";
import { checkShared } from "./shared-folder.ts";
import { type PoolSpec, Shim, type ShimSpec } from "./shim.ts";
import { ensurePython, type PythonOptions } from "./venv.ts";
import { placeServers } from "./vllm.ts";
import type { WorkerPlace } from "./worker-group.ts";

export type RayEngineOptions = PythonOptions & {
  readonly nodes?: number;
  readonly workersPerNode?: number;
  /** Further workers, for models whose `pool` names them; they have resources of their own. */
  readonly pools?: Readonly<Record<string, { readonly nodes: number; readonly perNode: number }>>;
  /** On `cpu`, workers communicate over gloo and need no GPU. */
  readonly device?: "cpu" | "cuda";
  /** CPUs of each worker, and of each server that has resources of its own. */
  readonly cpusPerWorker?: number;
  /** Servers with resources of their own: a cluster that is started here reserves room for them. */
  readonly servers?: number;
  /** A cluster to join: an address, or `auto`. Without one, RAY_ADDRESS names it, or a cluster is started here. */
  readonly address?: string;
  /** Further arguments of `ray.init`, such as `num_cpus` and `runtime_env`. */
  readonly init?: Readonly<Record<string, unknown>>;
  /** A file that Ray's timeline is written to when the engine is closed, in the format of Chrome's tracing. */
  readonly timeline?: string;
  /** Its workers replace others that were lost: wait until the cluster has room for them. */
  readonly isReplacing?: boolean;
  readonly startMs?: number;
  readonly collectiveMs?: number;
  readonly silenceMs?: number;
  /** A Python that has vLLM, under the same path on every node; the workers' own Python by default. */
  readonly vllmPython?: string;
  /** Threads of the controller's own computations. */
  readonly threads?: number;
};

/** verl's defaults for its workers (constants_ppo.py); a variable that the shell sets keeps its value. */
const defaultEnv: Readonly<Record<string, string>> = {
  TOKENIZERS_PARALLELISM: "true",
  NCCL_DEBUG: "WARN",
  VLLM_LOGGING_LEVEL: "WARN",
  VLLM_ALLOW_RUNTIME_LORA_UPDATING: "true",
  CUDA_DEVICE_MAX_CONNECTIONS: "1",
  VLLM_DISABLE_COMPILE_CACHE: "1",
  NCCL_CUMEM_ENABLE: "0",
};

/** Where an engine runs. */
export type GroupPlace = {
  /** By rank. */
  readonly workers: readonly WorkerPlace[];
  readonly address: string;
  readonly shimPid: number | undefined;
};

export class RayEngine implements Engine {
  readonly #options: RayEngineOptions;
  readonly #runtime: Runtime;
  readonly #losses: LossGradients;
  #shim: Promise<Shim> | null = null;
  readonly #closing = new AbortController();
  #models = 0;

  constructor(options: RayEngineOptions = {}) {
    this.#options = options;
    this.#runtime = new Runtime({ threads: options.threads ?? 1 });
    this.#losses = new LossGradients(this.#runtime);
  }

  /** Load a Hugging Face folder; every worker must have it under the same path. */
  async open(spec: ModelSpec): Promise<RayModel> {
    const { folder, tokenizerFolder = folder, head, seed = 0, sampler: limits = {}, sharding, pool = null } = spec;
    const read = await readAnyConfig(folder);
    const group = (await this.#started()).group(pool);
    const model = this.#models++;
    const call = (method: string, message: object) => group.call(method, () => ({ model, ...message }));
    const where = { folder: resolve(folder) };
    const facts = described.parse((await call("describe", where))[0]);
    const config = { ...read, vocabSize: facts.vocabSize, maxPositions: facts.maxPositions, head: head ?? read.head };
    const newHead = head === undefined || head === "lm" ? {} : { newHead: headWeights(facts, seed) };
    const about = { ...where, head: config.head, sharding: { ...defaultSharding, ...sharding }, ...newHead };
    const answers = await call("load", about).catch(async (error: unknown) => {
      await call("close", {}).catch(() => {}); // some workers may have loaded it
      throw error;
    });
    const { parameters: parameterCount } = loaded.parse(answers[0]);
    const parts = { group, model, config, regime: facts.regime, parameterCount, losses: this.#losses };
    return new RayModel({ ...parts, tokenizerFolder, limits });
  }

  async checkFolder(folder: string): Promise<void> {
    await checkShared((await this.#started()).group(), folder);
  }

  /** vLLM servers, on the nodes of the workers or on other nodes; null if vLLM is not installed. */
  async serve(spec: ServerSpec): Promise<ServerGroup | null> {
    const { device = "cpu", cpusPerWorker: cpus = 1, isReplacing = false, vllmPython: python } = this.#options;
    const options = { spec, device, cpus, isReplacing, python, ...this.#times };
    return placeServers(await this.#started(), options);
  }

  /** Where the shim and the workers of a pool run, and the address of their cluster. Starts them if they do not run yet. */
  async group(pool: string | null = null): Promise<GroupPlace> {
    const shim = await this.#started();
    return { workers: shim.group(pool).workers, address: shim.address, shimPid: shim.pid };
  }

  async close(): Promise<void> {
    this.#closing.abort(new Error("the engine was closed"));
    const shim = await this.#shim?.catch(() => null);
    const { timeline } = this.#options;
    if (shim && timeline !== undefined) await writeTimeline(shim, resolve(timeline));
    await shim?.close();
    await this.#runtime.close();
  }

  #started(): Promise<Shim> {
    this.#shim ??= this.#start().catch((error) => {
      this.#shim = null; // the next call tries again
      throw error;
    });
    return this.#shim;
  }

  get #times() {
    const { startMs = START_MS, silenceMs = SILENCE_MS, collectiveMs = COLLECTIVE_MS } = this.#options;
    return { startMs, silenceMs, collectiveMs };
  }

  async #start(): Promise<Shim> {
    const { device = "cpu", nodes = 1, workersPerNode = 1, address, init = {} } = this.#options;
    const { cpusPerWorker = 1, servers = 0, pools: further = {} } = this.#options;
    const pools: readonly PoolSpec[] = [
      { pool: null, nodes, perNode: workersPerNode },
      ...Object.entries(further).map(([pool, size]) => ({ pool, ...size })),
    ];
    const processes = pools.reduce((sum, pool) => sum + pool.nodes * pool.perNode, servers);
    const spec: ShimSpec = {
      pools,
      device,
      address: address ?? null,
      bundle: device === "cuda" ? { CPU: cpusPerWorker, GPU: 1 } : { CPU: cpusPerWorker },
      init,
      local: { num_cpus: processes * cpusPerWorker, object_store_memory: STORE_BYTES },
      env: defaultEnv,
      isReplacing: this.#options.isReplacing ?? false,
      ...this.#times,
    };
    const signal = AbortSignal.any([this.#closing.signal, this.#options.signal ?? []].flat());
    return Shim.start(await ensurePython({ ...this.#options, signal }), spec, signal);
  }
}

/** A timeline that cannot be written is no reason to end a run, or to hide why it ended. */
async function writeTimeline(shim: Shim, file: string): Promise<void> {
  if (shim.lost.aborted) return;
  try {
    await mkdir(dirname(file), { recursive: true });
    await shim.writeTimeline(file);
  } catch (error) {
    warn(`Ray's timeline was not written to ${file} (\`ray_kwargs.timeline_json_file\`): ${messageOf(error)}`);
  }
}

const START_MS = 300_000;

/** verl's nccl_timeout. */
const COLLECTIVE_MS = 600_000;

/** Writing a large file can block a Python process for a long time. */
const SILENCE_MS = 300_000;

/** Only one micro-batch at a time goes through Ray's object store. */
const STORE_BYTES = 256 * 2 ** 20;

const defaultSharding = { replicas: 1, reshards: true, dtype: "float32", checkpointing: false, offloads: false };

/** What a worker reads from a model's config.json, where families use different names. */
const described = z.object({
  vocabSize: z.number(),
  width: z.number(),
  maxPositions: z
    .number()
    .nullable()
    .transform((most) => most ?? Infinity),
  /** The standard deviation of new weights. */
  initializerRange: z.number(),
  regime: z.object({ type: z.enum(["dynamic", "longrope"]), end: z.number() }).nullable(),
});

const loaded = z.object({ parameters: z.number() });

/** A new head, the same on every engine: normal weights with the model's `initializer_range`, as in transformers. */
function headWeights({ width, initializerRange }: z.infer<typeof described>, seed: number): Float32Array {
  const random = new Random(seed, "new head");
  return Float32Array.from({ length: width }, () => random.normal(0, initializerRange));
}
