/**
 * Columns of several runs on one axis of steps, as the charts need them: one array of steps, and for each series an
 * array of the same length, with null where there is no value. Pure.
 */

/** Ascending steps of all runs, and for each run the place of each of its rows among them. */
export type Axis = { readonly steps: readonly number[]; readonly places: readonly Int32Array[] };

export function joinSteps(runs: readonly ArrayLike<number>[]): Axis {
  const [first] = runs;
  if (runs.length === 1 && first !== undefined) {
    return { steps: Array.from(first), places: [Int32Array.from({ length: first.length }, (_, i) => i)] };
  }
  const steps = [...new Set(runs.flatMap((run) => Array.from(run)))].sort((a, b) => a - b);
  const placeOf = new Map(steps.map((step, i) => [step, i]));
  return { steps, places: runs.map((run) => Int32Array.from(run, (step) => placeOf.get(step)!)) };
}

/** A run's values on the axis. */
export function onAxis(values: ArrayLike<number>, places: Int32Array, length: number): (number | null)[] {
  const placed: (number | null)[] = new Array(length).fill(null);
  const rows = Math.min(values.length, places.length);
  for (let i = 0; i < rows; i++) {
    const value = values[i]!;
    if (!Number.isNaN(value)) placed[places[i]!] = value;
  }
  return placed;
}
