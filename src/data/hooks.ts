/**
 * The hooks of a user's own TypeScript into the data of a run: a sampler decides which rows come next, a dataset gives the
 * rows, a data generator adds rows after each step. verl takes Python classes at these places.
 *
 * A hook is a value that a `define…` function makes. The memory of a sampler or generator is `state`, plain JSON: it is
 * saved in every checkpoint, and the functions change it in place. So a resumed run goes on as one that never stopped.
 */
import type { Tokenizer } from "../text/tokenizer.ts";

/** One row of data as it is in its file: columns by name. */
export type DataRow = Readonly<Record<string, unknown>>;

/** The prompts of a finished step with their responses, and the metrics of the step. */
export type TrainedBatch = {
  readonly step: number;
  /** The groups that were trained on, in the order of their prompts. */
  readonly groups: readonly TrainedGroup[];
  /** All metrics of the step but those that the clock decides (`timing_…`, `perf/…`): they differ after a resume. */
  readonly metrics: Readonly<Record<string, number>>;
};

/** A prompt of the batch. */
export type TrainedGroup = {
  /** Its place among the training rows. */
  readonly index: number;
  readonly row: DataRow;
  readonly responses: readonly TrainedResponse[];
};

/** A response; the score is null where the reward had an error. */
export type TrainedResponse = {
  readonly text: string;
  readonly score: number | null;
  /** Other columns of the reward, such as `acc`. */
  readonly extra: Readonly<Record<string, unknown>>;
  /** In tokens. */
  readonly length: number;
};

/** What a sampler chooses from. */
export type SamplerChoice = {
  /** All training rows that are left after `filter_overlong_prompts`, with the generated ones at the end. */
  readonly rows: readonly DataRow[];
  /** How many rows to choose. */
  readonly batchSize: number;
  /** The step that the rows are for, from 1. With `algorithm.filter_groups` a step may ask several times. */
  readonly step: number;
  /** A number in [0, 1) from the seed of the run: the same after a resume, unlike that of `Math.random`. */
  readonly random: () => number;
  /** The keys below `data.`. */
  readonly config: DataRow;
};

/** Functions of a sampler; `state` is theirs to change. */
export type SamplerDefinition<State extends object> = {
  /** The state before the first step: plain JSON. */
  readonly state: State;
  /** The rows of the next batch by their places in `rows`, each at most once. */
  next(state: State, choice: SamplerChoice): readonly number[] | Promise<readonly number[]>;
  /** Called after each step. */
  update?(state: State, batch: TrainedBatch): void | Promise<void>;
};

/** What a dataset is asked for. */
export type DatasetRequest = {
  readonly split: "train" | "val";
  /** `data.train_files` or `data.val_files`. */
  readonly files: readonly string[];
  readonly tokenizer: Tokenizer;
  /** The keys below `data.`. */
  readonly config: DataRow;
};

/** Rows as a hook gives them. */
type HookRows = Iterable<DataRow> | AsyncIterable<DataRow>;

/** Gives the rows of a split; no rows for `val` means no validation. */
export type DatasetFunction = (request: DatasetRequest) => HookRows | Promise<HookRows>;

/** Functions of a data generator; `state` is theirs to change. */
export type DataGeneratorDefinition<State extends object> = {
  /** The state before the first step: plain JSON. */
  readonly state: State;
  /** New training rows, plain JSON; called after each step. */
  generate(state: State, batch: GeneratorBatch): HookRows | Promise<HookRows>;
};

/** A finished step, with all training rows so far. */
export type GeneratorBatch = TrainedBatch & Pick<SamplerChoice, "rows" | "random" | "config">;

/** What each kind of hook holds. */
type Definitions = {
  readonly sampler: SamplerDefinition<object>;
  readonly dataset: DatasetFunction;
  readonly generator: DataGeneratorDefinition<object>;
};

export type HookKind = keyof Definitions;

/** Read by name, because a user's file may have the class from another copy of the package. */
const kindKey = Symbol.for("trainyard.hook");

/** A hook of one kind: a value that a config or an export can hold. */
export class Hook<Kind extends HookKind> {
  readonly [kindKey]: Kind;
  readonly definition: Definitions[Kind];

  constructor(kind: Kind, definition: Definitions[Kind]) {
    this[kindKey] = kind;
    this.definition = definition;
  }

  /** How a saved config shows it. */
  toJSON(): string {
    return `(${this[kindKey]} in the config file)`;
  }
}

/** Whether a value is a hook, of one kind or of any. */
export function isHook<Kind extends HookKind>(value: unknown, kind?: Kind): value is Hook<Kind> {
  if (typeof value !== "object" || value === null) return false;
  const found: unknown = Reflect.get(value, kindKey);
  return kind === undefined ? found !== undefined : found === kind;
}

/** Makes a sampler: `data.sampler.class_path`. */
export const defineSampler = <State extends object>(definition: SamplerDefinition<State>): Hook<"sampler"> =>
  new Hook("sampler", definition);

/** Makes a dataset: `data.custom_cls.path`. */
export const defineDataset = (dataset: DatasetFunction): Hook<"dataset"> => new Hook("dataset", dataset);

/** Makes a data generator: `data.datagen.path`. */
export const defineDataGenerator = <State extends object>(
  definition: DataGeneratorDefinition<State>,
): Hook<"generator"> => new Hook("generator", definition);
