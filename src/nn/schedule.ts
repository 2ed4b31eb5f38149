/**
 * The learning rate as a function of the step, with verl's schedules: linear warm-up, then constant, cosine or
 * warm-up-stable-decay. Steps count from 0: with a warm-up the first step has rate 0 (or `initRatio`).
 *
 * Departure: verl's cosine rises again when training continues past the end; here the last value is kept.
 */

export type Schedule = {
  readonly type: "constant" | "cosine" | "wsd";
  readonly lr: number;
  readonly warmupSteps: number;
  readonly totalSteps: number;
  /** The lowest rate, as a share of `lr`. */
  readonly minRatio?: number;
  /** Where the warm-up starts, as a share of `lr`. */
  readonly initRatio?: number;
  /** Half-waves of the cosine are twice this: 0.5 falls once. */
  readonly cycles?: number;
  /** The share of the steps after the warm-up that keep the full rate, for wsd. */
  readonly stableRatio?: number;
};

/** The learning rate of a step. */
export function learningRate(schedule: Schedule, step: number): number {
  const { lr, warmupSteps, initRatio = 0 } = schedule;
  if (step < warmupSteps) return lr * (initRatio + (1 - initRatio) * (step / warmupSteps));
  return lr * after[schedule.type](schedule, step);
}

/** The share of the full rate once the warm-up is over. */
const after: Record<Schedule["type"], (schedule: Schedule, step: number) => number> = {
  constant: () => 1,
  cosine: (schedule, step) => {
    const { warmupSteps, totalSteps, minRatio = 0 } = schedule;
    const progress = Math.min(1, (step - warmupSteps) / Math.max(1, totalSteps - warmupSteps));
    return Math.max(minRatio, minRatio + (1 - minRatio) * wave(schedule, progress));
  },
  wsd: (schedule, step) => {
    const { warmupSteps, totalSteps, minRatio = 0, stableRatio = 0.9 } = schedule;
    const rest = Math.max(0, totalSteps - warmupSteps);
    const stable = Math.floor(rest * stableRatio);
    const into = step - warmupSteps - stable;
    if (into < 0) return 1;
    if (step >= totalSteps) return minRatio;
    return minRatio + (1 - minRatio) * Math.max(0, wave(schedule, into / (rest - stable)));
  },
};

/** `(1 + cos(2π cycles x)) / 2`. */
function wave({ cycles = 0.5 }: Schedule, progress: number): number {
  return 0.5 * (1 + Math.cos(2 * Math.PI * cycles * progress));
}
