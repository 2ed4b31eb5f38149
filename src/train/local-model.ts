/** A model to sample from in this process: its folder, its tokenizer and, when it is first needed, the model itself. */
import type { Engine, ModelSpec } from "../engine/contract.ts";
import { checkSampling } from "../engine/device-sampling.ts";
import { type ModelConfig, readConfig } from "../models/config.ts";
import type { SamplerLimits } from "../rollout/request.ts";
import { findActor } from "../run/find-model.ts";
import { loadTokenizer, type Tokenizer } from "../text/tokenizer.ts";
import type { TrainContext } from "./context.ts";
import { fetchModel } from "./fetch-model.ts";
import { type LazySampler, lazily } from "./generate/responder.ts";

export type LocalOptions = {
  /** A Hugging Face folder or hub id, or a run folder or checkpoint, whose actor it is. */
  readonly path: string;
  /** Another folder or hub id for the tokenizer. */
  readonly tokenizerPath?: string | null;
  readonly device: "cpu" | "webgpu" | "cuda";
  /** 0 for all cores. */
  readonly threads: number;
  readonly limits?: SamplerLimits;
};

export type LocalModel = {
  readonly folder: string;
  readonly config: ModelConfig;
  readonly tokenizer: Tokenizer;
  readonly sampler: LazySampler;
};

/** Find a model and read its config and tokenizer; a model of the hub is downloaded first. */
export async function findModel(options: LocalOptions, context: TrainContext): Promise<LocalModel> {
  const { path, tokenizerPath = null } = options;
  const folder = await fetchModel(await findActor(path), context);
  const config = await readConfig(folder);
  checkSampling(config, options.device, options.limits?.maxLength);
  const tokenizer = await loadTokenizer(tokenizerPath === null ? folder : await fetchModel(tokenizerPath, context));
  return { folder, config, tokenizer, sampler: lazily(embedded({ folder, tokenizerFolder: tokenizer.dir }, options)) };
}

function embedded(spec: ModelSpec, { device, threads, limits = {} }: LocalOptions): LazySampler {
  let engine: Engine | null = null;
  return {
    async open() {
      const { EmbeddedEngine } = await import("../engine/embedded/engine.ts");
      engine = new EmbeddedEngine({ device, threads });
      return engine.open({ ...spec, sampler: limits });
    },
    close: async () => engine?.close(),
  };
}
