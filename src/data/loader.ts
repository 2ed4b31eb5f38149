/**
 * The order in which rows are visited: endless batches of row indices, shuffled again in each epoch.
 *
 * The order of an epoch depends only on (seed, epoch, number of rows), so a position is two numbers, and a resumed
 * loader continues exactly where the saved one stopped. The loader knows only indices, not the rows. Rows may be added at
 * the end while it runs; they count from the next epoch on.
 */
import { z } from "zod";
import { invariant, UserError } from "../util/errors.ts";
import { Random } from "../util/random.ts";

export type LoaderOptions = {
  readonly rows: number;
  readonly batchSize: number;
  readonly shuffle: boolean;
  readonly seed: number;
  /** Leave out the last batch of an epoch when it is not full (verl's training loaders do). */
  readonly dropLast: boolean;
};

/** The position of a loader, plain JSON. */
export type LoaderState = z.infer<typeof LoaderState>;

/** The row indices of one batch; `isEpochEnd` on the last batch of an epoch, whose number starts at 0. */
type IndexBatch = { readonly indices: readonly number[]; readonly epoch: number; readonly isEpochEnd: boolean };

const LoaderState = z.object({
  /** Of this epoch. */
  rows: z.int().min(1),
  shuffle: z.boolean(),
  seed: z.number(),
  epoch: z.int().min(0),
  /** How many rows of this epoch were already used. */
  position: z.int().min(0),
});

/** Endless batches of row indices with a position that saves and restores. */
export class Loader {
  readonly #options: LoaderOptions;
  #epoch = 0;
  #position = 0;
  /** The rows of this epoch. */
  #rows: number;
  #order: { epoch: number; indices: ArrayLike<number> } | null = null;

  constructor(options: LoaderOptions) {
    const { rows, batchSize, dropLast } = options;
    invariant(
      Number.isInteger(batchSize) && batchSize >= 1,
      `a batch size is a positive whole number, not ${batchSize}`,
    );
    if (rows === 0)
      throw new UserError("There is no row to read. Check the data files, and the length limits if rows are filtered.");
    if (dropLast && rows < batchSize)
      throw new UserError(
        `There are ${rows} rows, which is less than one batch of ${batchSize}. ` +
          `Lower the batch size (\`data.train_batch_size\`) to ${rows} or less, or add rows.`,
      );
    this.#options = options;
    this.#rows = rows;
  }

  get batchSize(): number {
    return this.#options.batchSize;
  }

  /** Of the first epoch. */
  get batchesPerEpoch(): number {
    const batches = this.#options.rows / this.#options.batchSize;
    return this.#options.dropLast ? Math.floor(batches) : Math.ceil(batches);
  }

  /** The next batch; after the last one of an epoch, the first one of the next, which has all `rows` that there are now. */
  next(rows = this.#rows): IndexBatch {
    if (this.#isAtEnd()) {
      this.#epoch++;
      this.#position = 0;
      this.#rows = rows;
    }
    const { batchSize } = this.#options;
    const order = this.#orderOf(this.#epoch);
    const end = Math.min(this.#rows, this.#position + batchSize);
    const indices = Array.from({ length: end - this.#position }, (_, i) => order[this.#position + i]!);
    this.#position = end;
    return { indices, epoch: this.#epoch, isEpochEnd: this.#isAtEnd() };
  }

  state(): LoaderState {
    const { shuffle, seed } = this.#options;
    return { rows: this.#rows, shuffle, seed, epoch: this.#epoch, position: this.#position };
  }

  /**
   * Continue from `state`; throws if the number of rows or their order has changed since. `most` is how many rows there
   * are now, where rows have been added.
   */
  restore(state: unknown, most = this.#options.rows): void {
    const parsed = LoaderState.safeParse(state);
    if (!parsed.success)
      throw new UserError(
        `The saved position in the data cannot be read: ${JSON.stringify(state) ?? "nothing"}. ` +
          "Resume from another checkpoint, or start over with `trainer.resume_mode=disable`.",
      );
    const saved = parsed.data;
    const { rows, shuffle, seed } = this.#options;
    if (saved.rows < rows || saved.rows > most)
      throw new UserError(
        `The checkpoint was made with ${saved.rows} training rows, and now there are ${rows}. Use the same data ` +
          "(files, filters and `max_samples`), or start over with `trainer.resume_mode=disable`.",
      );
    if (saved.shuffle !== shuffle || (shuffle && saved.seed !== seed))
      throw new UserError(
        `The checkpoint was made with shuffle ${saved.shuffle} and seed ${saved.seed}, and now they are ${shuffle} and ` +
          `${seed}, so rows would come twice or not at all. Use the earlier values, or start over with ` +
          "`trainer.resume_mode=disable`.",
      );
    this.#epoch = saved.epoch;
    this.#rows = saved.rows;
    this.#position = Math.min(saved.position, saved.rows);
  }

  #isAtEnd(): boolean {
    const left = this.#rows - this.#position;
    return this.#options.dropLast ? left < this.#options.batchSize : left === 0;
  }

  #orderOf(epoch: number): ArrayLike<number> {
    if (this.#order?.epoch !== epoch) {
      const { shuffle, seed } = this.#options;
      const indices = shuffle
        ? new Random(seed, "epoch", epoch).permutation(this.#rows)
        : Uint32Array.from({ length: this.#rows }, (_, i) => i);
      this.#order = { epoch, indices };
    }
    return this.#order.indices;
  }
}
