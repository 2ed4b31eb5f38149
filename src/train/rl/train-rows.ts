/**
 * The training rows of a run: which prompts come next, what the user's hooks are told after each step, and the rows that
 * a data generator adds. Generated rows are in every checkpoint, for they depend on what was sampled.
 */
import { z } from "zod";
import type { PpoConfig } from "../../config/ppo/schema.ts";
import type { DataRow, TrainedBatch, TrainedGroup } from "../../data/hooks.ts";
import type { Row } from "../../data/row.ts";
import { UserError } from "../../util/errors.ts";
import { notJson } from "../../util/plain-json.ts";
import { Random } from "../../util/random.ts";
import { HookState, type LoadedHook } from "../load-hook.ts";
import { hookRows } from "../split-rows.ts";
import { rlSteps } from "../steps.ts";
import { responseLength } from "./episode.ts";
import type { Group } from "./produce.ts";
import { encodePrompts, type Prompt, type Prompts } from "./prompts.ts";
import { loaderOrder, type RowOrder, samplerOrder } from "./row-order.ts";

/** What a checkpoint keeps of the rows. */
export const RowsState = z.object({
  /** Of the order of the rows. */
  loader: z.unknown(),
  /** Of the data generator, with the rows that it added. */
  datagen: z
    .object({ state: z.record(z.string(), z.unknown()), rows: z.array(z.record(z.string(), z.unknown())) })
    .optional(),
});
export type RowsState = z.infer<typeof RowsState>;

/** A finished step. */
type Finished = {
  readonly step: number;
  readonly groups: readonly Group[];
  readonly metrics: Readonly<Record<string, number>>;
};

type Generator = { readonly hook: LoadedHook<"generator">; readonly state: HookState; readonly added: DataRow[] };

/** The rows of a run, and how many steps it takes. */
export function openTrainRows(
  config: PpoConfig,
  prompts: Prompts,
): { readonly rows: TrainRows; readonly totalSteps: number } {
  const { data, trainer } = config;
  const { sampler } = prompts.hooks;
  const { loader, totalSteps } = rlSteps(config, prompts.train.length);
  const { batchSize, batchesPerEpoch } = loader;
  const batchKey = batchSize === data.train_batch_size ? "data.train_batch_size" : "data.gen_batch_size";
  const seed = data.seed ?? trainer.seed;
  const order =
    sampler === null
      ? loaderOrder(loader)
      : samplerOrder(sampler, { batchSize, batchKey, batchesPerEpoch, seed, config: data });
  return { rows: new TrainRows(config, prompts, order), totalSteps };
}

export class TrainRows {
  readonly #config: PpoConfig;
  readonly #tokenizer: Prompts["tokenizer"];
  readonly #order: RowOrder;
  readonly #generator: Generator | null;
  readonly #prompts: Prompt[] = [];
  /** The rows of the prompts. */
  readonly #rows: DataRow[] = [];
  readonly #places = new Map<Prompt, number>();

  constructor(config: PpoConfig, { train, tokenizer, hooks }: Prompts, order: RowOrder) {
    this.#config = config;
    this.#tokenizer = tokenizer;
    this.#order = order;
    const { generator: hook } = hooks;
    this.#generator = hook === null ? null : { hook, state: new HookState(hook), added: [] };
    this.#add(train);
  }

  /** The prompts of the next round of sampling. */
  async next(step: number): Promise<{ readonly prompts: readonly Prompt[]; readonly epoch: number }> {
    const { indices, epoch } = await this.#order.next(step, this.#rows);
    return { prompts: indices.map((index) => this.#prompts[index]!), epoch };
  }

  /** Tell the hooks how a step went; a generator may add rows. */
  async update({ step, groups, metrics }: Finished): Promise<void> {
    const batch: TrainedBatch = {
      step,
      groups: groups.map((group) => this.#trained(group)),
      metrics: Object.fromEntries(Object.entries(metrics).filter(([name]) => !/^(timing_|perf\/)/.test(name))),
    };
    await this.#order.update(batch);
    if (this.#generator !== null) await this.#generate(this.#generator, batch);
  }

  state(): RowsState {
    const loader = this.#order.state();
    if (this.#generator === null) return { loader };
    const { state, added } = this.#generator;
    return { loader, datagen: { state: { ...state.saved() }, rows: [...added] } };
  }

  /** Go on from a saved state. */
  restore({ loader, datagen }: RowsState): void {
    if ((datagen === undefined) !== (this.#generator === null)) {
      const [before, now] = datagen === undefined ? ["without", "one"] : ["with", "none"];
      throw new UserError(
        `The checkpoint was made ${before} a data generator, and now \`data.datagen\` names ${now}. Use the earlier ` +
          "setting, or start over with `trainer.resume_mode=disable`.",
      );
    }
    if (this.#generator !== null && datagen !== undefined) {
      const { state, hook } = this.#generator;
      state.restore(datagen.state);
      this.#append(
        this.#generator,
        datagen.rows.map((values, i): Row => ({ values, file: hook.name, row: i + 1 })),
      );
    }
    this.#order.restore(loader, this.#rows.length);
  }

  async #generate(generator: Generator, batch: TrainedBatch): Promise<void> {
    const { hook, state, added } = generator;
    const { data, trainer } = this.#config;
    const random = new Random(data.seed ?? trainer.seed, "datagen", batch.step);
    const request = { ...batch, rows: [...this.#rows], random: () => random.uniform(), config: data };
    const rows = await state.call("generate", async (own) =>
      hookRows(await hook.definition.generate(own, request), { file: hook.name, first: added.length + 1 }),
    );
    for (const { values, row } of rows) {
      const wrong = notJson(values, "the row");
      if (wrong !== null)
        throw new UserError(`${hook.name}, row ${row}: ${wrong}, which a checkpoint cannot keep. Rows are plain JSON.`);
    }
    this.#append(
      generator,
      rows.map((row) => ({ ...row, values: JSON.parse(JSON.stringify(row.values)) })), // as a resumed run reads them
    );
  }

  /** Add generated rows, without those that are too long. */
  #append({ added }: Generator, rows: readonly Row[]): void {
    const prompts = encodePrompts(rows, this.#tokenizer, this.#config);
    added.push(...prompts.map(({ row }) => row.source.values));
    this.#add(prompts);
  }

  #add(prompts: readonly Prompt[]): void {
    for (const prompt of prompts) {
      this.#places.set(prompt, this.#prompts.push(prompt) - 1);
      this.#rows.push(prompt.row.source.values);
    }
  }

  #trained({ episodes }: Group): TrainedGroup {
    const { prompt } = episodes[0]!; // a group has an episode for each response
    const responses = episodes.map(({ text, score, ledgers }) => ({
      text,
      score: score?.score ?? null,
      extra: score?.extra ?? {},
      length: responseLength({ ledgers }),
    }));
    return { index: this.#places.get(prompt)!, row: prompt.row.source.values, responses };
  }
}
