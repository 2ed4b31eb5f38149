/**
 * A model on the embedded engine: parameters in shared memory, programs compiled when first needed.
 *
 * Calls on one model run one after the other, in the order they were made; sampling takes its turn step by step. Files
 * are written beside other calls, and what changes the weights waits for them. The first micro-batch after a step overwrites the gradient and the others add to it, so no pass clears it.
 */
import { checkExtra, type Extra } from "../../algos/losses/token-loss.ts";
import { isSameArchitecture, type ModelConfig, type ParameterSpec, readConfig } from "../../models/config.ts";
import { loadParameters, saveParameters } from "../../models/weights.ts";
import type { Completion, SampleRequest, SamplerLimits, SamplerStats } from "../../rollout/request.ts";
import { Sampler } from "../../rollout/sampler.ts";
import { clipFactor } from "../../runtime/optimizer.ts";
import type { Executable, Group, Runtime } from "../../runtime/runtime.ts";
import type { Vectors } from "../../runtime/vectors.ts";
import { invariant, UserError } from "../../util/errors.ts";
import type {
  ForwardOptions,
  HeadName,
  LossMetrics,
  Model,
  OptimizerStep,
  SaveFormat,
  SaveLayout,
  StepResult,
  TokenLoss,
  TokenOutputs,
  TokenRow,
  TrainOptions,
} from "../contract.ts";
import { checkSampling } from "../device-sampling.ts";
import { exclusive } from "../exclusive.ts";
import { idleStats } from "../idle-stats.ts";
import { openSamplingTokenizer } from "../sampling-tokenizer.ts";
import { EmbeddedDecoder } from "./decoder.ts";
import { cacheBytesFor } from "./kv-cache.ts";
import type { Layout } from "./layout.ts";
import { type Block, cut, layOut } from "./micro-batches.ts";
import { loadOptimizerFile, saveOptimizerFile } from "./optimizer-file.ts";
import { ProgramCache } from "./program-cache.ts";
import { gradName, metricName, sumName } from "./programs.ts";
import { RotationCache } from "./rotations.ts";
import { Scratch } from "./scratch.ts";

export type ModelParts = {
  readonly runtime: Runtime;
  /** Where `save` takes the tokenizer from. */
  readonly tokenizerFolder: string;
  readonly config: ModelConfig;
  readonly specs: readonly ParameterSpec[];
  readonly vectors: Vectors;
  readonly limits: SamplerLimits;
};

export class EmbeddedModel implements Model {
  readonly config: ModelConfig;
  readonly #parts: ModelParts;
  readonly #scratch = new Scratch();
  readonly #programs: ProgramCache;
  readonly #rotations: RotationCache;
  #sampler: Promise<{ sampler: Sampler; decoder: EmbeddedDecoder }> | null = null;
  #stats: () => SamplerStats = () => idleStats;
  #weights: Promise<Group> | null = null;
  #gradients: Promise<Group> | null = null;
  readonly #exclusive = exclusive();
  /** Optimizer steps taken. */
  #steps = 0;
  #hasGradient = false;
  /** Files that are being written from the weights or the moments. */
  readonly #writing = new Set<Promise<void>>();

  constructor(parts: ModelParts) {
    this.#parts = parts;
    this.config = parts.config;
    this.#programs = new ProgramCache(parts);
    this.#rotations = new RotationCache(parts.config);
  }

  get parameterCount(): number {
    return this.#parts.vectors.count;
  }

  /** A parameter's weights: the memory that the engine computes with. */
  weights(name: string): Float32Array {
    return this.#parts.vectors.view("weight", name);
  }

  /** A parameter's gradient since the last step. */
  gradient(name: string): Float32Array {
    return this.#parts.vectors.view("grad", name);
  }

  forward(rows: readonly TokenRow[], heads: readonly HeadName[], options: ForwardOptions): Promise<TokenOutputs[]> {
    return this.#exclusive(async () => {
      const temperature = options.temperature ?? 1;
      const results = rows.map((row) =>
        Object.fromEntries(heads.map((head) => [head, new Float32Array(row.ids.length)])),
      );
      const blocks = cut(rows, options.micro, { heads, config: this.config });
      for (const [done, block] of blocks.entries()) {
        options.onMicroBatch?.(done, blocks.length);
        const layout = this.#layOut(rows, block, heads);
        if (layout === null) continue;
        const executable = await this.#programs.forward(heads, { temperature, form: layout.form });
        const outputs = Object.fromEntries(
          heads.map((head) => [head, this.#scratch.floats(head, layout.owners.length)]),
        );
        await this.#run(executable, layout, outputs);
        layout.owners.forEach(({ row, at }, i) => {
          for (const head of heads) results[row]![head]![at] = outputs[head]![i]!;
        });
      }
      return results;
    });
  }

  /** The logits after each counted token, rows of the vocabulary's size: what `forward` computes log-probs from. */
  logits(rows: readonly TokenRow[]): Promise<Float32Array[][]> {
    return this.#exclusive(async () => {
      const results: Float32Array[][] = rows.map(() => []);
      const { vocabSize } = this.config;
      for (const index of rows.keys()) {
        const layout = this.#layOut(rows, { indices: [index], groups: null }, ["scores"]);
        if (layout === null) continue;
        const executable = await this.#programs.logits(layout.form);
        const logits = this.#scratch.floats("logits", layout.owners.length * vocabSize);
        await this.#run(executable, layout, { logits });
        results[index] = layout.owners.map((_, i) => logits.slice(i * vocabSize, (i + 1) * vocabSize));
      }
      return results;
    });
  }

  train(rows: readonly TokenRow[], loss: TokenLoss, options: TrainOptions): Promise<LossMetrics> {
    return this.#exclusive(async () => {
      checkExtra(rows, loss);
      const totals: Record<string, number> = {};
      const blocks = cut(rows, options.micro, { heads: loss.heads, config: this.config });
      for (const [done, block] of blocks.entries()) {
        options.onMicroBatch?.(done, blocks.length);
        const layout = this.#layOut(rows, block, loss.heads, loss.extra);
        if (layout === null) continue;
        const metrics = await this.#trainMicroBatch(layout, loss, options.scalars ?? {});
        for (const [name, value] of Object.entries(metrics)) totals[name] = (totals[name] ?? 0) + value;
      }
      if (!this.#hasGradient) await this.#clearGradient();
      return { loss: 0, ...totals };
    });
  }

  step(optimizer: OptimizerStep): Promise<StepResult> {
    return this.#exclusive(async () => {
      const { runtime, vectors } = this.#parts;
      invariant(this.#hasGradient, "a step needs a gradient: call train first");
      vectors.allocate("first");
      vectors.allocate("second");
      const gradNorm = await runtime.gradientNorm(vectors);
      this.#hasGradient = false;
      await this.#written();
      if (!Number.isFinite(gradNorm)) return { gradNorm, isSkipped: true };
      this.#steps++;
      const { lr, betas, eps, weightDecay, maxNorm } = optimizer;
      const gradScale = clipFactor(gradNorm, maxNorm);
      await runtime.adamw(vectors, { lr, betas, eps, weightDecay, step: this.#steps, gradScale });
      await this.#forgetCache();
      return { gradNorm, isSkipped: false };
    });
  }

  async sample(request: SampleRequest): Promise<Completion> {
    this.#sampler ??= this.#openSampler().catch((error) => {
      this.#sampler = null; // so that nothing else waits for it
      throw error;
    });
    return (await this.#sampler).sampler.sample(request);
  }

  samplerStats(): SamplerStats {
    return this.#stats();
  }

  load(dir: string): Promise<void> {
    return this.#exclusive(async () => {
      const { specs, config } = this.#parts;
      const staged = new Map(
        specs.map(({ name, shape }) => [name, new Float32Array(shape.reduce((a, b) => a * b, 1))]),
      );
      const other = await readConfig(dir);
      if (!isSameArchitecture(other, config))
        throw new UserError(
          `${dir} holds a ${other.family} model, and this one is ${config.family}: load it on its own.`,
        );
      await loadParameters(dir, specs, ({ name }) => staged.get(name)!, { allowNewHead: false });
      await this.#written();
      for (const [name, values] of staged) this.weights(name).set(values); // only once the whole folder was read
      await this.#forgetCache();
    });
  }

  save(dir: string, format: SaveFormat = "F32", layout: SaveLayout = {}): Promise<void> {
    const { config, specs, tokenizerFolder } = this.#parts;
    const get = (spec: ParameterSpec) => this.weights(spec.name);
    const options = { dtype: format, tokenizerFrom: tokenizerFolder, ...layout };
    return this.#write(() => saveParameters(dir, config, specs, get, options));
  }

  saveOptimizer(dir: string): Promise<void> {
    return this.#write(() => saveOptimizerFile(dir, this.#parts, this.#steps));
  }

  loadOptimizer(dir: string): Promise<void> {
    return this.#exclusive(async () => {
      await this.#written();
      this.#steps = await loadOptimizerFile(dir, this.#parts);
    });
  }

  /**
   * Write files from the weights or the moments as they are after all earlier calls, one set of files after the other.
   * Sampling and passes may run at the same time; what changes the weights or the moments waits.
   */
  async #write(work: () => Promise<void>): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    const earlier = await this.#exclusive(async () => {
      const before = [...this.#writing];
      this.#writing.add(promise);
      return before;
    });
    try {
      await Promise.all(earlier);
      await work();
    } finally {
      this.#writing.delete(promise);
      resolve();
    }
  }

  /** When no file is being written any more. */
  async #written(): Promise<void> {
    await Promise.all(this.#writing);
  }

  async close(): Promise<void> {
    await this.#written();
    if (this.#sampler !== null) {
      const { sampler, decoder } = await this.#sampler;
      sampler.close(new Error("the model was closed"));
      await decoder.close();
    }
    const groups = await Promise.all([this.#weights, this.#gradients]);
    for (const group of groups) if (group !== null) await this.#parts.runtime.unbind(group);
  }

  async #openSampler(): Promise<{ sampler: Sampler; decoder: EmbeddedDecoder }> {
    const { runtime, config, limits, tokenizerFolder } = this.#parts;
    checkSampling(config, runtime.device, limits.maxLength);
    const { tokenizer, eosIds } = await openSamplingTokenizer(tokenizerFolder, config);
    const cacheBytes = cacheBytesFor(config, limits);
    const decoder = new EmbeddedDecoder({ runtime, config, cacheBytes, weights: () => this.#weightGroup() });
    const sampler = new Sampler({
      decoder,
      tokenizer,
      limits,
      eosIds,
      maxLength: config.maxPositions,
      exclusive: this.#exclusive,
    });
    this.#stats = () => sampler.stats();
    return { sampler, decoder };
  }

  /** Keys and values in the cache belong to the old weights. */
  async #forgetCache(): Promise<void> {
    if (this.#sampler !== null) (await this.#sampler).sampler.forget();
  }

  #layOut(
    rows: readonly TokenRow[],
    block: Block,
    heads: readonly HeadName[],
    extra: readonly Extra[] = [],
  ): Layout | null {
    const tables = (time: number, longest: number) => this.#rotations.tables(time, longest);
    return layOut(rows, block, { heads, extra, config: this.config, scratch: this.#scratch, tables });
  }

  async #trainMicroBatch(
    layout: Layout,
    loss: TokenLoss,
    scalars: Readonly<Record<string, number>>,
  ): Promise<Record<string, number>> {
    const { runtime, vectors } = this.#parts;
    const isAdding = this.#hasGradient;
    const trainer = await this.#programs.trainer(loss, { isAdding, form: layout.form });
    const outputs: Record<string, Float32Array> = {};
    for (const name of trainer.metrics) outputs[metricName(name)] = this.#scratch.floats(metricName(name), 1);
    for (const name of loss.scalars ?? []) {
      const value = scalars[name];
      invariant(value !== undefined, `the loss ${loss.key} needs the number ${name}`);
      outputs[`scalar/${name}`] = this.#scratch.floats(`scalar/${name}`, 1).fill(value);
    }
    for (const { rows, ids, width } of trainer.rowGradients) {
      outputs[rows] = this.#scratch.floats(rows, layout.arrays[ids]!.length * width);
    }
    await this.#run(trainer.executable, layout, outputs, [await this.#gradientGroup()]);
    if (!isAdding) for (const parameter of trainer.clear) vectors.view("grad", parameter).fill(0);
    for (const { parameter, rows, ids, width } of trainer.rowGradients) {
      const into = vectors.view("grad", parameter);
      await runtime.scatterAdd(into, layout.arrays[ids] as Int32Array, outputs[rows]!, width); // ids are inputs of dtype i32
    }
    this.#hasGradient = true;
    return Object.fromEntries(trainer.metrics.map((name) => [name, outputs[metricName(name)]![0]!]));
  }

  async #run(
    executable: Executable,
    layout: Layout,
    outputs: Readonly<Record<string, Float32Array>>,
    groups: readonly Group[] = [],
  ): Promise<void> {
    await this.#parts.runtime.run(executable, {
      bindings: layout.bindings,
      arrays: { ...layout.arrays, ...outputs },
      groups: [await this.#weightGroup(), ...groups],
    });
  }

  #weightGroup(): Promise<Group> {
    const { runtime, vectors } = this.#parts;
    this.#weights ??= runtime.bind(
      Object.fromEntries(vectors.names.map((name) => [name, vectors.view("weight", name)])),
    );
    return this.#weights;
  }

  #gradientGroup(): Promise<Group> {
    const { runtime, vectors } = this.#parts;
    if (this.#gradients === null) {
      vectors.allocate("grad");
      const arrays = vectors.trainedNames.flatMap((name) => {
        const view = vectors.view("grad", name);
        return [[gradName(name), view] as const, [sumName(name), view] as const];
      });
      this.#gradients = runtime.bind(Object.fromEntries(arrays));
    }
    return this.#gradients;
  }

  async #clearGradient(): Promise<void> {
    await this.#gradientGroup();
    for (const name of this.#parts.vectors.trainedNames) this.gradient(name).fill(0);
    this.#hasGradient = true;
  }
}
