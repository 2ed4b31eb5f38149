/**
 * A model on a group of workers. Only tokens and numbers per token are sent to the workers and back, never weights.
 *
 * Calls on one model run one after the other, in the order they were made; sampling gets its turn round by round.
 * Training a micro-batch is a forward pass whose graph the workers keep, the loss on the controller, and a backward pass
 * from its derivatives. A gradient is the sum over the workers, so results equal the embedded engine's up to rounding.
 */
import { mkdir, readdir, rename, rm, stat } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import * as z from "zod";
import { checkExtra } from "../../algos/losses/token-loss.ts";
import { type AnyModelConfig, parseConfig, readAnyConfig, withHead } from "../../models/config.ts";
import { configText } from "../../models/config-text.ts";
import { isFamily } from "../../models/families.ts";
import { copyTokenizer } from "../../models/weights.ts";
import type { Completion, SampleRequest, SamplerLimits, SamplerStats } from "../../rollout/request.ts";
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
import { exclusive } from "../exclusive.ts";
import { idleStats } from "../idle-stats.ts";
import { EngineLost } from "../lost.ts";
import { openSamplingTokenizer } from "../sampling-tokenizer.ts";
import { type Block, divide, dummyBlock, layOut, type Regime, type Round } from "./layout.ts";
import type { Counted, LossGradients } from "./loss-gradient.ts";
import { RaySampler } from "./sampler.ts";
import { checkShared } from "./shared-folder.ts";
import type { WorkerAnswer, WorkerGroup } from "./worker-group.ts";

export type RayModelParts = {
  readonly group: WorkerGroup;
  /** The model's number at the workers. */
  readonly model: number;
  readonly config: AnyModelConfig;
  readonly regime: Regime | null;
  readonly parameterCount: number;
  readonly losses: LossGradients;
  readonly tokenizerFolder: string;
  readonly limits: SamplerLimits;
};

/** The process group in which weights are sent: the first worker, then the GPUs or processes of each server. */
export type WeightTransfer = { readonly world: number; readonly device: "cpu" | "cuda"; readonly timeout: number };

/** The settings of a pass. */
type Pass = {
  readonly heads: readonly HeadName[];
  readonly gradHeads: readonly HeadName[];
  readonly temperature: number;
};

export class RayModel implements Model {
  readonly config: AnyModelConfig;
  readonly parameterCount: number;
  readonly #parts: RayModelParts;
  #sampler: Promise<RaySampler> | null = null;
  #stats: () => SamplerStats = () => idleStats;
  readonly #exclusive = exclusive();
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
      const pass = { heads, gradHeads: [], temperature: options.temperature ?? 1 };
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
      const gradHeads = await losses.gradHeads(loss);
      const pass = { heads: loss.heads, gradHeads, temperature: loss.temperature ?? 1 };
      for await (const blocks of this.#rounds(rows, loss.heads, options)) {
        const outputs = await this.#forward(blocks, pass);
        const gradients: Counted[] = [];
        for (const [rank, block] of blocks.entries()) {
          if (block === null) {
            gradients.push(Object.fromEntries(gradHeads.map((head) => [head, new Float32Array(1)])));
            continue;
          }
          const given = { rows, outputs: outputs[rank]!, scalars: options.scalars ?? {} };
          const trained = await losses.of(loss, block, given);
          gradients.push(trained.gradients);
          for (const [name, value] of Object.entries(trained.metrics)) totals[name] = (totals[name] ?? 0) + value;
        }
        if (gradHeads.length > 0) await this.#call("backward", (rank) => ({ gradients: gradients[rank]! }));
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
      this.#sampler = null; // the next request tries again
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
        // For our own families config.json is the same on every engine; the workers write that of others, and the weights.
        const isOurs = isFamily(config.family);
        if (isOurs) await writeFileAtomic(join(staging, "config.json"), configOf(config, format, isUntied));
        await checkShared(this.#parts.group, staging);
        await this.#call("save", () => ({ folder: staging, format, isUntied, writesConfig: !isOurs }));
        await putInPlace(staging, dir, isThere);
      } catch (error) {
        throw explainWrite(dir, error);
      } finally {
        await rm(staging, { recursive: true, force: true }).catch(() => {}); // report the first error
      }
    });
  }

  /** Send the current weights to servers, in the precision that they compute in. The servers must be receiving. */
  send(transfer: WeightTransfer, format: SaveFormat): Promise<void> {
    return this.#exclusive(async () => {
      await this.#call("send_weights", () => ({ ...transfer, format }));
    });
  }

  load(dir: string): Promise<void> {
    return this.#exclusive(async () => {
      const other = await readAnyConfig(dir);
      if (other.family !== this.config.family)
        throw new UserError(
          `${dir} holds a ${other.family} model, and this one is ${this.config.family}: load it on its own.`,
        );
      await this.#call("load_weights", () => ({ folder: resolve(dir) }));
    });
  }

  saveOptimizer(dir: string): Promise<void> {
    return this.#exclusive(async () => {
      await mkdir(dir, { recursive: true });
      await checkShared(this.#parts.group, dir);
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
      if (!(error instanceof EngineLost)) throw error; // then its workers are gone anyway
    });
  }

  async #openSampler(): Promise<RaySampler> {
    const { config, limits, tokenizerFolder, group, regime } = this.#parts;
    const { tokenizer, eosIds } = await openSamplingTokenizer(tokenizerFolder, config);
    const [prepared] = await this.#exclusive(() => this.#call("prepare_sampling", () => ({})));
    const { hasCache, reason, perToken, perRow } = preparedAnswer.parse(prepared);
    if (!hasCache) info(withoutCache(config.raw.model_type, reason));
    const numbers = (limits.cacheBytes ?? DEFAULT_CACHE_BYTES) / 4; // in single precision
    const sampler = new RaySampler({
      tokenizer,
      limits,
      workers: group.workers.length,
      vocabSize: config.vocabSize,
      cache: { numbers, perToken, perRow },
      eosIds,
      maxLength: Math.min(config.maxPositions, limits.maxLength ?? Infinity, Math.floor((numbers - perRow) / perToken)),
      regimeEnd: regime?.type === "longrope" ? regime.end : null,
      round: (messages) => this.#exclusive(() => this.#call("sample", (rank) => messages[rank]!)),
    });
    this.#stats = () => sampler.stats();
    return sampler;
  }

  /** The blocks of each round, by rank; rounds without counted tokens are skipped. */
  async *#rounds(
    rows: readonly TokenRow[],
    heads: readonly HeadName[],
    { micro, onMicroBatch }: Pick<ForwardOptions, "micro" | "onMicroBatch">,
  ): AsyncIterable<readonly (Block | null)[]> {
    const { config, regime, group } = this.#parts;
    const rounds: Round[] = divide(rows, { micro, regime, workers: group.workers.length });
    for (const [done, round] of rounds.entries()) {
      onMicroBatch?.(done, rounds.length);
      const blocks = round.map((indices) => layOut(rows, indices, { heads, vocabSize: config.vocabSize }));
      if (blocks.some((block) => block !== null)) yield blocks;
    }
  }

  async #forward(blocks: readonly (Block | null)[], pass: Pass): Promise<Counted[]> {
    const answers = await this.#call("forward", (rank) => {
      const { rows, ids, positions, targets } = blocks[rank] ?? dummyBlock;
      return { rows, ids, positions, targets, ...pass };
    });
    return answers.map((answer) => counted.parse(answer));
  }

  #call(method: string, message: (rank: number) => object): Promise<WorkerAnswer[]> {
    const { group, model } = this.#parts;
    return group.call(method, (rank) => ({ ...message(rank), model }));
  }
}

const stepAnswer = z.object({ gradNorm: z.number().or(z.nan()).or(z.literal(Infinity)) });
const headNames = z.enum(["logprobs", "entropy", "sumPiSquared", "values", "scores"]);
const counted = z.partialRecord(headNames, z.instanceof(Float32Array));

const preparedAnswer = z.object({
  hasCache: z.boolean(),
  /** Why no cache can be used. */
  reason: z.string(),
  perToken: z.number(),
  perRow: z.number(),
});

const withoutCache = (family: unknown, reason: string): string =>
  `Sampling from a model of the family ${family} computes the whole sequence for each token, which is slow: its cache ` +
  `cannot be used (${reason}).`;

/** The default memory for keys, values and states on a worker. */
const DEFAULT_CACHE_BYTES = 4 * 2 ** 30;

function configOf({ raw, family, head }: AnyModelConfig, format: SaveFormat, isUntied: boolean): string {
  const saved = isUntied ? { ...raw, tie_word_embeddings: false } : raw;
  return configText(withHead(parseConfig(saved, `the config.json of this ${family} model`), head), format);
}

/** Move a finished folder to its name. If that exists, move file by file, config.json last, and delete older shards. */
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
