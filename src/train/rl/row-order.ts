/**
 * Where the rows of the next batch come from: the loader, which shuffles, or the sampler of the user. Both have a state
 * that a checkpoint keeps, so a resumed run takes the same rows as one that was not interrupted.
 */
import { z } from "zod";
import type { DataRow, TrainedBatch } from "../../data/hooks.ts";
import type { Loader } from "../../data/loader.ts";
import { UserError } from "../../util/errors.ts";
import { counted } from "../../util/format.ts";
import { Random } from "../../util/random.ts";
import { HookState, type LoadedHook } from "../load-hook.ts";

export type RowOrder = {
  /** The places of the next rows among all rows, and the epoch they belong to. */
  next(
    step: number,
    rows: readonly DataRow[],
  ): Promise<{ readonly indices: readonly number[]; readonly epoch: number }>;
  /** What a finished step gave. */
  update(batch: TrainedBatch): Promise<void>;
  state(): unknown;
  /** Go on from a saved state; `rows` is how many there are now. */
  restore(state: unknown, rows: number): void;
};

/** The order of a loader. Rows that are added count from the next epoch on. */
export const loaderOrder = (loader: Loader): RowOrder => ({
  next: async (_, rows) => loader.next(rows.length),
  update: async () => undefined,
  state: () => loader.state(),
  restore(state, rows) {
    if (SamplerState.safeParse(state).success)
      throw otherOrder("with a sampler (`data.sampler`), and now there is none");
    loader.restore(state, rows);
  },
});

export type SamplerOptions = {
  readonly batchSize: number;
  /** The key that gives the size of a batch. */
  readonly batchKey: string;
  /** Batches that count as one epoch. */
  readonly batchesPerEpoch: number;
  readonly seed: number;
  /** The keys below `data.`. */
  readonly config: DataRow;
};

const SamplerState = z.object({
  sampler: z.record(z.string(), z.unknown()),
  /** How many batches it has given. */
  batches: z.int().min(0),
});

/** The order of a user's sampler. */
export function samplerOrder(hook: LoadedHook<"sampler">, options: SamplerOptions): RowOrder {
  const { definition } = hook;
  const { batchSize, batchesPerEpoch, seed, config } = options;
  const state = new HookState(hook);
  let batches = 0;
  return {
    async next(step, rows) {
      const random = new Random(seed, "sampler", batches);
      const choice = { rows: [...rows], batchSize, step, random: () => random.uniform(), config };
      const indices = await state.call("next", (own) => definition.next(own, choice));
      checkIndices(hook.name, indices, { ...options, rows: rows.length });
      return { indices: [...indices], epoch: Math.floor(batches++ / batchesPerEpoch) };
    },
    async update(batch) {
      await state.call("update", (own) => definition.update?.(own, batch));
    },
    state: () => ({ sampler: state.saved(), batches }),
    restore(saved) {
      const { data } = SamplerState.safeParse(saved);
      if (data === undefined) throw otherOrder("without a sampler, and now `data.sampler` names one");
      state.restore(data.sampler);
      batches = data.batches;
    },
  };
}

const otherOrder = (how: string): UserError =>
  new UserError(
    `The checkpoint was made ${how}. Use the earlier setting, or start over with \`trainer.resume_mode=disable\`.`,
  );

type Wanted = Pick<SamplerOptions, "batchSize" | "batchKey"> & { readonly rows: number };

/** A batch is a list of different rows that exist, as many as asked for. */
function checkIndices(name: string, indices: unknown, { batchSize, batchKey, rows }: Wanted): void {
  const wrong = (what: string) => new UserError(`${name}: \`next\` gave ${what}.`);
  if (!Array.isArray(indices)) throw wrong(`${JSON.stringify(indices) ?? "nothing"}, and not a list of row numbers`);
  const seen = new Set<unknown>();
  for (const index of indices) {
    if (!Number.isInteger(index) || index < 0 || index >= rows)
      throw wrong(`the row ${JSON.stringify(index) ?? "undefined"}, and the rows are 0 to ${rows - 1}`);
    if (seen.has(index)) throw wrong(`the row ${index} twice in one batch`);
    seen.add(index);
  }
  if (indices.length !== batchSize)
    throw wrong(`${counted(indices.length, "row")}, and a batch has ${batchSize} (\`${batchKey}\`)`);
}
