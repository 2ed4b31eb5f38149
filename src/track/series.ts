/**
 * The values of a metric over a run, in bounded memory, and their sparkline in one line of text.
 *
 * Whenever the memory is full, the resolution is halved, so a sparkline always shows the whole run.
 */

const LIMIT = 512;
const bars = "▁▂▃▄▅▆▇█";

/** One metric over a run. */
export class MetricSeries {
  #points: number[] = [];
  /** A point is the mean of this many values; `#unfinished` has those of the next point. */
  #perPoint = 1;
  #unfinished: number[] = [];
  #last = Number.NaN;

  add(value: number): void {
    this.#last = value;
    this.#unfinished.push(value);
    if (this.#unfinished.length < this.#perPoint) return;
    this.#points.push(mean(this.#unfinished));
    this.#unfinished = [];
    if (this.#points.length < LIMIT) return;
    this.#points = buckets(this.#points, LIMIT / 2);
    this.#perPoint *= 2;
  }

  get last(): number {
    return this.#last;
  }

  /** The whole run in at most `width` values. */
  points(width: number): number[] {
    return buckets(this.#unfinished.length === 0 ? this.#points : [...this.#points, mean(this.#unfinished)], width);
  }

  /** The whole run in at most `width` bars, from the lowest to the highest value; `!` is not a finite number. */
  sparkline(width: number): string {
    const points = this.points(width);
    const finite = points.filter(Number.isFinite);
    const low = Math.min(...finite);
    const span = Math.max(...finite) - low;
    const bar = (value: number) => {
      if (!Number.isFinite(value)) return "!";
      return span === 0 ? bars[3] : bars[Math.round(((value - low) / span) * (bars.length - 1))];
    };
    return points.map(bar).join("");
  }
}

/** At most `count` means of neighbouring values. */
function buckets(values: readonly number[], count: number): number[] {
  if (values.length <= count) return [...values];
  const edge = (i: number) => Math.floor((i * values.length) / count);
  return Array.from({ length: count }, (_, i) => mean(values.slice(edge(i), edge(i + 1))));
}

/** The mean; one NaN among the values makes it NaN, so that it is seen. */
const mean = (values: readonly number[]): number => values.reduce((total, value) => total + value, 0) / values.length;
