/**
 * The Ray engine: models on PyTorch, divided among workers that Ray places. The workers, and the cluster if there is
 * none, start with the first model. All models of an engine share its workers.
 *
 * A group that has lost a worker is lost as a whole (`EngineLost`): close the engine, open another, go on from a
 * checkpoint.
 */
import { resolve } from "node:path";
import * as z from "zod";
import { type ModelConfig, readConfig, withHead } from "../../models/config.ts";
import { Runtime } from "../../runtime/runtime.ts";
import { Random } from "../../util/random.ts";
import type { Engine, ModelSpec } from "../contract.ts";
import { LossGradients } from "./loss-gradient.ts";
import { RayModel } from "./model.ts";
import { type GroupSpec, Shim, type WorkerPlace } from "./shim.ts";
import { ensurePython, type PythonOptions } from "./venv.ts";

export type RayEngineOptions = Omit<PythonOptions, "signal"> & {
  readonly nodes?: number;
  readonly workersPerNode?: number;
  /** On `cpu`, workers talk over gloo and no GPU is asked for. */
  readonly device?: "cpu" | "cuda";
  /** Processors of each worker. */
  readonly cpusPerWorker?: number;
  /** A cluster to join: an address, or `auto`. Absent, one is started here, unless RAY_ADDRESS names one. */
  readonly address?: string;
  /** Further arguments of `ray.init`, such as `num_cpus` and `runtime_env`. */
  readonly init?: Readonly<Record<string, unknown>>;
  /** Environment variables of the workers, over the defaults. */
  readonly env?: Readonly<Record<string, string>>;
  readonly startMs?: number;
  readonly collectiveMs?: number;
  readonly silenceMs?: number;
  /** Threads of the controller's own arithmetic. */
  readonly threads?: number;
};

/** verl's defaults for its workers (constants_ppo.py), where they concern what runs here. */
export const defaultEnv: Readonly<Record<string, string>> = {
  TOKENIZERS_PARALLELISM: "true",
  NCCL_DEBUG: "WARN",
  CUDA_DEVICE_MAX_CONNECTIONS: "1",
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

  /** Load a Hugging Face folder, which every worker must see under the same path. */
  async open(spec: ModelSpec): Promise<RayModel> {
    const { folder, tokenizerFolder = folder, head, seed = 0, sampler: limits = {}, sharding } = spec;
    const read = await readConfig(folder);
    const config = head === undefined ? read : withHead(read, head);
    const shim = await this.#group();
    const model = this.#models++;
    const call = (verb: string, message: object) =>
      shim.call(
        verb,
        shim.workers.map(() => ({ model, ...message })),
      );
    const newHead = head === undefined || config.head === "lm" ? {} : { newHead: headWeights(config, seed) };
    const about = { folder: resolve(folder), head: config.head, sharding: { ...plain, ...sharding }, ...newHead };
    const answers = await call("load", about).catch(async (error: unknown) => {
      await call("close", {}).catch(() => {}); // some workers may have it
      throw error;
    });
    const { parameters: parameterCount } = loaded.parse(answers[0]);
    return new RayModel({ shim, model, config, parameterCount, losses: this.#losses, tokenizerFolder, limits });
  }

  /** Where the shim and the workers run, and the address of their cluster; they are started if need be. */
  async group(): Promise<GroupPlace> {
    const { workers, address, pid } = await this.#group();
    return { workers, address, shimPid: pid };
  }

  async close(): Promise<void> {
    this.#closing.abort(new Error("the engine was closed"));
    const shim = await this.#shim?.catch(() => null);
    await shim?.close();
    await this.#runtime.close();
  }

  #group(): Promise<Shim> {
    this.#shim ??= this.#start().catch((error) => {
      this.#shim = null; // what was wrong may be put right
      throw error;
    });
    return this.#shim;
  }

  async #start(): Promise<Shim> {
    const { device = "cpu", cpusPerWorker = 1, nodes = 1, workersPerNode = 1, address, init = {} } = this.#options;
    const spec: GroupSpec = {
      ...{ nodes, perNode: workersPerNode, device, address: address ?? null },
      bundle: device === "cuda" ? { CPU: cpusPerWorker, GPU: 1 } : { CPU: cpusPerWorker },
      init,
      local: { num_cpus: nodes * workersPerNode * cpusPerWorker, object_store_memory: STORE_BYTES },
      env: { ...defaultEnv, ...this.#options.env },
      startMs: this.#options.startMs ?? 300_000,
      collectiveMs: this.#options.collectiveMs ?? 600_000, // verl's nccl_timeout
      silenceMs: this.#options.silenceMs ?? 300_000, // writing a large file can hold up a Python process for long
    };
    const { signal } = this.#closing;
    return Shim.start(await ensurePython({ ...this.#options, signal }), spec, signal);
  }
}

/** What goes through Ray's store is a micro-batch at a time. */
const STORE_BYTES = 256 * 2 ** 20;

const plain = { replicas: 1, reshards: true, dtype: "float32", checkpointing: false };

const loaded = z.object({ parameters: z.number() });

/** A new head as every engine draws it: normal weights of the model's own spread, as transformers does. */
function headWeights(config: ModelConfig, seed: number): Float32Array {
  const random = new Random(seed, "new head");
  const spread = typeof config.raw.initializer_range === "number" ? config.raw.initializer_range : 0.02;
  return Float32Array.from({ length: config.width }, () => random.normal(0, spread));
}
