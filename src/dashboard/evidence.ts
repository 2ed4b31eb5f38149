/**
 * What the rules of warnings use: the metrics of a run as points, and a few statistics. Pure.
 */

/** The metrics of a run, and a count from its rollouts. */
export type Evidence = {
  readonly steps: ArrayLike<number>;
  /** Values by step, NaN where a step has none; null for a metric that no step has. */
  column(name: string): ArrayLike<number> | null;
  /** Metrics that were not finite at or after a step. */
  notFiniteSince(step: number): readonly string[];
  /** Of the recently logged groups with several responses, how many have only equal scores. */
  readonly groups?: { readonly equal: number; readonly total: number };
};

/** A value and its step. */
type Point = { readonly step: number; readonly value: number };

/** The metric that training maximizes. */
export const reward = "critic/score/mean";

/** The evidence with the values that several rules need. */
export class MetricHistory {
  readonly evidence: Evidence;
  readonly #points = new Map<string, readonly Point[]>();

  constructor(evidence: Evidence) {
    this.evidence = evidence;
  }

  /** The finite values of a metric with their steps. */
  points(name: string): readonly Point[] {
    const known = this.#points.get(name);
    if (known !== undefined) return known;
    const { steps } = this.evidence;
    const all = Array.from(this.evidence.column(name) ?? [], (value, i) => ({ step: steps[i]!, value }));
    const points = all.filter(({ value }) => Number.isFinite(value));
    this.#points.set(name, points);
    return points;
  }

  get lastStep(): number {
    return this.stepBack(1);
  }

  /** The step of the n-th row from the end. */
  stepBack(n: number): number {
    const { steps } = this.evidence;
    return steps[Math.max(0, steps.length - n)] ?? 0;
  }

  /** Whether the mean reward is close to the best that any answer ever got. */
  isSolved(): boolean {
    const best = highest(this.points("critic/score/max"));
    const worst = lowest(this.points("critic/score/min"));
    const recent = this.points(reward).slice(-10);
    return recent.length > 0 && best > worst && mean(recent) >= worst + 0.95 * (best - worst);
  }
}

export const mean = (points: readonly Point[]): number =>
  points.length === 0 ? 0 : points.reduce((sum, { value }) => sum + value, 0) / points.length;

const highest = (points: readonly Point[]): number =>
  points.reduce((most, { value }) => Math.max(most, value), Number.NEGATIVE_INFINITY);

export const lowest = (points: readonly Point[]): number =>
  points.reduce((least, { value }) => Math.min(least, value), Number.POSITIVE_INFINITY);

export function median(points: readonly Point[]): number {
  const sorted = points.map(({ value }) => value).sort((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)] ?? 0;
}

export function halves(points: readonly Point[]): [Point[], Point[]] {
  const middle = Math.floor(points.length / 2);
  return [points.slice(0, middle), points.slice(middle)];
}

/** Standard error of the difference of two means. */
export function errorOfDifference(a: readonly Point[], b: readonly Point[]): number {
  return Math.sqrt(variance(a) / Math.max(1, a.length) + variance(b) / Math.max(1, b.length));
}

function variance(points: readonly Point[]): number {
  const center = mean(points);
  return points.reduce((sum, { value }) => sum + (value - center) ** 2, 0) / Math.max(1, points.length - 1);
}

/** The highest mean of `width` points in a row, and where they end. */
export function bestMean(points: readonly Point[], width: number): { value: number; step: number; points: Point[] } {
  let sum = points.slice(0, width).reduce((total, { value }) => total + value, 0);
  let best = { sum, end: width };
  for (let end = width + 1; end <= points.length; end++) {
    sum += points[end - 1]!.value - points[end - 1 - width]!.value;
    if (sum > best.sum) best = { sum, end };
  }
  const own = points.slice(best.end - width, best.end);
  return { value: mean(own), step: own.at(-1)!.step, points: own };
}

export const firstBelow = (points: readonly Point[], bound: number): number =>
  points.find(({ value }) => value <= bound)?.step ?? points.at(-1)!.step;

export const firstAbove = (points: readonly Point[], bound: number): number =>
  points.find(({ value }) => value > bound)?.step ?? points.at(-1)!.step;
