/**
 * A model on a group of workers. What crosses the wire is tokens and numbers per token; weights never do.
 *
 * Calls on one model run one after the other, in the order they were made; sampling takes its turn round by round.
 * Training a micro-batch is a forward pass whose graph the workers keep, the loss here, and a backward pass from its
 * derivatives. A gradient is the sum over workers, so results are the embedded engine's but for rounding.
 */
import { mkdir, readdir, rename, rm, stat } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import * as z from "zod";
import { checkExtra } from "../../algos/losses/token-loss.ts";
import { type AnyModelConfig, parseConfig, readAnyConfig, withHead } from "../../models/config.ts";
import { isFamily } from "../../models/families.ts";
import { configText, copyTokenizer } from "../../models/weights.ts";
import type { Completion, SampleRequest, SamplerLimits, SamplerStats } from "../../rollout/request.ts";
import { loadTokenizer } from "../../text/tokenizer.ts";
import { invariant, UserError } from "../../util/errors.ts";
import { explainWrite, syncDirectory, temporaryName, writeFileAtomic } from "../../util/files.ts";
import { info } from "../../util/log.ts";
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
import { EngineLost } from "../lost.ts";
import { type Block, divide, layOut, type Regime, type Round, standIn } from "./layout.ts";
import type { Counted, LossGradients } from "./loss-gradient.ts";
import { RaySampler } from "./sampler.ts";
import { checkShared } from "./shared-folder.ts";
import type { Shim } from "./shim.ts";

export type RayModelParts = {
  readonly shim: Shim;
  /** The model's number at the workers. */
  readonly model: number;
  readonly config: AnyModelConfig;
  readonly regime: Regime | null;
  readonly parameterCount: number;
  readonly losses: LossGradients;
  readonly tokenizerFolder: string;
  readonly limits: SamplerLimits;
};

/** The group in which weights are sent: the first worker, and after it the GPUs, or processes, of each server. */
export type Line = { readonly world: number; readonly device: "cpu" | "cuda"; readonly timeout: number };

/** What a pass is about, besides its blocks. */
type Pass = {
  readonly heads: readonly HeadName[];
  readonly learnt: readonly HeadName[];
  readonly temperature: number;
};

export class RayModel implements Model {
  readonly config: AnyModelConfig;
  readonly parameterCount: number;
  readonly #parts: RayModelParts;
  #sampler: Promise<RaySampler> | null = null;
  #stats: () => SamplerStats = () => idle;
  #queue: Promise<unknown> = Promise.resolve();
  #hasGradient = false;

  constructor(parts: RayModelParts) {
    this.#parts = parts;
    this.config = parts.config;
    this.parameterCount = parts.parameterCount;
  }

  forward(rows: readonly TokenRow[], heads: readonly HeadName[], options: ForwardOptions): Promise<TokenOutputs[]> {
    return this.#exclusive(async () => {
      const results = rows.map((row) =>
        Object.fromEntries(heads.map((head) => [head, new Float32Array(row.ids.length)])),
      );
      const pass = { heads, learnt: [], temperature: options.temperature ?? 1 };
      for await (const blocks of this.#rounds(rows, heads, options)) {
        const outputs = await this.#forward(blocks, pass);
        blocks.forEach((block, rank) => {
          block?.owners.forEach(({ row, at }, i) => {
            for (const head of heads) results[row]![head]![at] = outputs[rank]![head]![i]!;
          });
        });
      }
      return results;
    });
  }

  train(rows: readonly TokenRow[], loss: TokenLoss, options: TrainOptions): Promise<LossMetrics> {
    return this.#exclusive(async () => {
      checkExtra(rows, loss);
      const { losses } = this.#parts;
      const totals: Record<string, number> = {};
      const learnt = await losses.learnt(loss);
      const pass = { heads: loss.heads, learnt, temperature: loss.temperature ?? 1 };
      for await (const blocks of this.#rounds(rows, loss.heads, options)) {
        const outputs = await this.#forward(blocks, pass);
        const gradients: Counted[] = [];
        for (const [rank, block] of blocks.entries()) {
          if (block === null) {
            gradients.push(Object.fromEntries(learnt.map((head) => [head, new Float32Array(1)])));
            continue;
          }
          const given = { rows, outputs: outputs[rank]!, scalars: options.scalars ?? {} };
          const trained = await losses.of(loss, block, given);
          gradients.push(trained.gradients);
          for (const [name, value] of Object.entries(trained.metrics)) totals[name] = (totals[name] ?? 0) + value;
        }
        if (learnt.length > 0) await this.#call("backward", (rank) => ({ gradients: gradients[rank]! }));
      }
      this.#hasGradient = true;
      return { loss: 0, ...totals };
    });
  }

  step(optimizer: OptimizerStep): Promise<StepResult> {
    return this.#exclusive(async () => {
      invariant(this.#hasGradient, "a step needs a gradient: call train first");
      this.#hasGradient = false;
      const [answer] = await this.#call("step", () => optimizer);
      const { gradNorm } = stepAnswer.parse(answer);
      return { gradNorm, isSkipped: !Number.isFinite(gradNorm) };
    });
  }

  async sample(request: SampleRequest): Promise<Completion> {
    this.#sampler ??= this.#openSampler().catch((error) => {
      this.#sampler = null; // so that nothing else waits for it
      throw error;
    });
    return (await this.#sampler).sample(request);
  }

  samplerStats(): SamplerStats {
    return this.#stats();
  }

  save(dir: string, format: SaveFormat = "F32", { isUntied = false }: SaveLayout = {}): Promise<void> {
    return this.#exclusive(async () => {
      const { config, tokenizerFolder } = this.#parts;
      const isThere = await stat(dir).then(
        () => true,
        () => false,
      );
      const staging = resolve(temporaryName(isThere ? join(dir, "save") : dir));
      try {
        await mkdir(staging, { recursive: true });
        await copyTokenizer(tokenizerFolder, staging);
        // Of our own families config.json is as every engine writes it; the workers write the others', and weights.
        const isOurs = isFamily(config.family);
        if (isOurs) await writeFileAtomic(join(staging, "config.json"), configOf(config, format, isUntied));
        await checkShared(this.#parts.shim, staging);
        await this.#call("save", () => ({ folder: staging, format, isUntied, writesConfig: !isOurs }));
        await putInPlace(staging, dir, isThere);
      } catch (error) {
        throw explainWrite(dir, error);
      } finally {
        await rm(staging, { recursive: true, force: true }).catch(() => {}); // never hide what stopped the save
      }
    });
  }

  /** Give servers the weights as they are now, in the precision that they compute in; they have to be receiving. */
  send(line: Line, format: SaveFormat): Promise<void> {
    return this.#exclusive(async () => {
      await this.#call("send", () => ({ ...line, format }));
    });
  }

  load(dir: string): Promise<void> {
    return this.#exclusive(async () => {
      const other = await readAnyConfig(dir);
      if (other.family !== this.config.family)
        throw new UserError(
          `${dir} holds a ${other.family} model, and this one is ${this.config.family}: load it on its own.`,
        );
      await this.#call("take", () => ({ folder: resolve(dir) }));
    });
  }

  saveOptimizer(dir: string): Promise<void> {
    return this.#exclusive(async () => {
      await mkdir(dir, { recursive: true });
      await checkShared(this.#parts.shim, dir);
      await this.#call("save_optimizer", () => ({ folder: resolve(dir) }));
    });
  }

  loadOptimizer(dir: string): Promise<void> {
    return this.#exclusive(async () => {
      await this.#call("load_optimizer", () => ({ folder: resolve(dir) }));
    });
  }

  async close(): Promise<void> {
    if (this.#sampler !== null) (await this.#sampler).close(new Error("the model was closed"));
    await this.#exclusive(() => this.#call("close", () => ({}))).catch((error: unknown) => {
      if (!(error instanceof EngineLost)) throw error; // it is as closed as it can be
    });
  }

  async #openSampler(): Promise<RaySampler> {
    const { config, limits, tokenizerFolder, shim, regime } = this.#parts;
    if (config.head !== "lm") throw new UserError("A model with a value or score head draws no tokens.");
    const hasTokenizer = await stat(join(tokenizerFolder, "tokenizer.json")).then(
      () => true,
      () => false,
    );
    const tokenizer = hasTokenizer ? await loadTokenizer(tokenizerFolder) : null;
    const own = [config.raw.eos_token_id].flat().filter((id) => typeof id === "number");
    const [prepared] = await this.#exclusive(() => this.#call("prepare", () => ({})));
    const { hasCache, why, perToken, perRow } = preparedAnswer.parse(prepared);
    if (!hasCache) info(readsAnew(config.raw.model_type, why));
    const numbers = (limits.cacheBytes ?? DEFAULT_CACHE_BYTES) / 4; // in single precision
    const sampler = new RaySampler({
      tokenizer,
      limits,
      workers: shim.workers.length,
      vocabSize: config.vocabSize,
      cache: { numbers, perToken, perRow },
      eosIds: tokenizer?.eosIds ?? own,
      maxLength: Math.min(config.maxPositions, limits.maxLength ?? Infinity, Math.floor((numbers - perRow) / perToken)),
      regimeEnd: regime?.type === "longrope" ? regime.end : null,
      round: (messages) => this.#exclusive(() => this.#call("sample", (rank) => messages[rank]!)),
    });
    this.#stats = () => sampler.stats();
    return sampler;
  }

  /** The blocks of each round, by rank; rounds in which nothing counts are left out. */
  async *#rounds(
    rows: readonly TokenRow[],
    heads: readonly HeadName[],
    { micro, onMicroBatch }: Pick<ForwardOptions, "micro" | "onMicroBatch">,
  ): AsyncIterable<readonly (Block | null)[]> {
    const { config, regime, shim } = this.#parts;
    const rounds: Round[] = divide(rows, { micro, regime, workers: shim.workers.length });
    for (const [done, round] of rounds.entries()) {
      onMicroBatch?.(done, rounds.length);
      const blocks = round.map((indices) => layOut(rows, indices, { heads, vocabSize: config.vocabSize }));
      if (blocks.some((block) => block !== null)) yield blocks;
    }
  }

  async #forward(blocks: readonly (Block | null)[], pass: Pass): Promise<Counted[]> {
    const answers = await this.#call("forward", (rank) => {
      const { rows, ids, positions, targets } = blocks[rank] ?? standIn;
      return { rows, ids, positions, targets, ...pass };
    });
    return answers.map((answer) => counted.parse(answer));
  }

  #call(verb: string, message: (rank: number) => object): Promise<Readonly<Record<string, unknown>>[]> {
    const { shim, model } = this.#parts;
    return shim.call(
      verb,
      shim.workers.map((_, rank) => ({ ...message(rank), model })),
    );
  }

  /** Run after everything that was asked for before, whether or not that went well. */
  #exclusive<T>(work: () => Promise<T>): Promise<T> {
    const result = this.#queue.then(work);
    this.#queue = result.catch(() => undefined);
    return result;
  }
}

const stepAnswer = z.object({ gradNorm: z.number().or(z.nan()).or(z.literal(Infinity)) });
const headNames = z.enum(["logprobs", "entropy", "sumPiSquared", "values", "scores"]);
const counted = z.partialRecord(headNames, z.instanceof(Float32Array));

const preparedAnswer = z.object({
  hasCache: z.boolean(),
  /** What speaks against a cache. */
  why: z.string(),
  perToken: z.number(),
  perRow: z.number(),
});

const readsAnew = (family: unknown, why: string): string =>
  `Sampling from a model of the family ${family} reads the whole sequence for each token, which is slow: a cache does ` +
  `not do for it (${why}).`;

/** What keys, values and states may take on a worker unless said otherwise. */
const DEFAULT_CACHE_BYTES = 4 * 2 ** 30;

function configOf({ raw, family, head }: AnyModelConfig, format: SaveFormat, isUntied: boolean): string {
  const saved = isUntied ? { ...raw, tie_word_embeddings: false } : raw;
  return configText(withHead(parseConfig(saved, `the config.json of this ${family} model`), head), format);
}

const idle: SamplerStats = {
  running: 0,
  waiting: 0,
  cachedTokens: 0,
  cacheTokens: 0,
  promptTokens: 0,
  reusedTokens: 0,
  generatedTokens: 0,
  finishedSamples: 0,
  preemptions: 0,
};

/** A finished folder to its name; where there is one already, file by file, config.json last, older shards gone. */
async function putInPlace(staging: string, dir: string, isThere: boolean): Promise<void> {
  if (!isThere) {
    await rename(staging, dir);
    await syncDirectory(dirname(resolve(dir)));
    return;
  }
  const fresh = (await readdir(staging)).sort((a, b) => Number(a === "config.json") - Number(b === "config.json"));
  for (const name of fresh) await rename(join(staging, name), join(dir, name));
  const isWeights = (name: string) => /^model(-\d+-of-\d+)?\.safetensors(\.index\.json)?$/.test(name);
  for (const name of await readdir(dir)) {
    if (isWeights(name) && !fresh.includes(name)) await rm(join(dir, name));
  }
  await syncDirectory(dir);
}
