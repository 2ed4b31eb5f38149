/**
 * Where the time of a step goes: its phases in the order they run, from the timers with verl's names. Pure.
 *
 * A timer with a further `/` in its name measures a part of a phase and is left out. What no timer covers is `other`.
 */

export type Phase = { readonly name: string; readonly label: string; readonly color: number };

const known: readonly (readonly [section: string, label: string])[] = [
  ["gen", "Sample responses"],
  ["gen_max", "Greedy baseline"],
  ["reward", "Score"],
  ["old_log_prob", "Old log-probs"],
  ["ref", "Reference log-probs"],
  ["values", "Values"],
  ["adv", "Advantages"],
  ["update_critic", "Update critic"],
  ["update_actor", "Update actor"],
  ["update_weights", "Send weights"],
  ["testing", "Validate"],
  ["save_checkpoint", "Save"],
  ["dump_rollout_generations", "Write samples"],
];

const prefix = "timing_s/";
export const stepTimer = `${prefix}step`;

/** The phases that a run's metrics have, in order. */
export function phasesOf(names: readonly string[]): Phase[] {
  const sections = names
    .filter((name) => name.startsWith(prefix) && name !== stepTimer)
    .map((name) => name.slice(prefix.length))
    .filter((section) => !section.includes("/"));
  const place = (section: string) => {
    const at = known.findIndex(([name]) => name === section);
    return at < 0 ? known.length : at;
  };
  const ordered = sections.sort((a, b) => place(a) - place(b) || (a < b ? -1 : 1));
  return ordered.map((section, color) => ({
    name: prefix + section,
    color,
    label: known[place(section)]?.[1] ?? section,
  }));
}

/**
 * Mean seconds of each phase over some rows, then of what no phase covers. `columns` are those of the phases, then that
 * of the whole step; a phase that a step does not have takes 0.
 */
export function meanPhases(
  columns: readonly (ArrayLike<number> | null)[],
  [first, last]: readonly [number, number],
): number[] {
  const sums = new Array<number>(columns.length).fill(0);
  const rest = columns.length - 1;
  for (let row = first; row <= last; row++) {
    let left = columns[rest]?.[row] ?? 0;
    for (let phase = 0; phase < rest; phase++) {
      const seconds = columns[phase]?.[row] ?? 0;
      if (!(seconds > 0)) continue; // NaN: the step does not have it
      sums[phase]! += seconds;
      left -= seconds;
    }
    if (left > 0) sums[rest]! += left;
  }
  return sums.map((sum) => sum / (last - first + 1));
}

/** At most `count` groups of neighbouring rows, each as its first and last row. */
export function bucketRows(from: number, to: number, count: number): readonly (readonly [number, number])[] {
  const rows = to - from;
  const buckets = Math.min(rows, count);
  return Array.from({ length: buckets }, (_, i) => [
    from + Math.floor((i * rows) / buckets),
    from + Math.floor(((i + 1) * rows) / buckets) - 1,
  ]);
}
