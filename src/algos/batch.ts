/**
 * What algorithms compute on: rows of numbers, one row per episode, one entry per response token.
 *
 * Rows may differ in length. A mask is 1 where the policy chose the token and 0 elsewhere (padding, tool output), and
 * has the length of its row. Everything here is plain data on the controller's side; losses, which an engine
 * differentiates, are traced functions instead (see `policy-loss.ts`).
 */
import { UserError } from "../util/errors.ts";

/** Which verl is followed where its releases differ. */
export type Version = "0.7" | "0.9";

/** One row per episode. */
export type Rows = readonly ArrayLike<number>[];
export type FloatRows = readonly Float64Array[];

/** Stop unless every row of `rows` has the length of its mask. */
export function checkRows(name: string, rows: Rows, mask: Rows): void {
  if (rows.length !== mask.length) {
    throw new UserError(`\`${name}\` has ${rows.length} rows where the response mask has ${mask.length}.`);
  }
  rows.forEach((row, i) => {
    if (row.length !== mask[i]!.length) {
      throw new UserError(
        `Row ${i} of \`${name}\` has ${row.length} entries where its response mask has ${mask[i]!.length}.`,
      );
    }
  });
}

/** Stop at the first entry that is not a number, or infinite, where the mask is 1. */
export function checkFinite(name: string, rows: Rows, mask: Rows): void {
  rows.forEach((row, i) => {
    for (let t = 0; t < row.length; t++) {
      if (mask[i]![t] && !Number.isFinite(row[t]!)) {
        throw new UserError(
          `\`${name}\` is ${row[t]} at row ${i}, token ${t}. Rewards, values and log-probs must be finite.`,
        );
      }
    }
  });
}

/** Row numbers by group name, in the order of first appearance. */
export function groupRows(groups: readonly string[]): Map<string, number[]> {
  return Map.groupBy(groups.keys(), (row) => groups[row]!);
}
