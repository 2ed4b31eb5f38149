/** Which rows of a batch are trained on. Advantages are computed for the whole batch before. */
import type { Random } from "../../util/random.ts";

/** A choice of rows as a value. */
export type RowSelection = {
  /** The stream of random numbers that it draws from. */
  readonly name: string;
  /** Row numbers in the order of training, with repeats if it draws some rows more than once; `totals` are row rewards. */
  select(totals: ArrayLike<number>, random: Random): readonly number[];
};

/** Every row, once. */
export const allRows: RowSelection = { name: "all", select: ({ length }) => Array.from({ length }, (_, row) => row) };
