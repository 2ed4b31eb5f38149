/**
 * The course of a metric over a run, in bounded memory, and its picture in one line of text.
 *
 * A long run is kept at half the resolution whenever the memory is full, so that the picture is always of the whole run.
 */

const LIMIT = 512;
const bars = "▁▂▃▄▅▆▇█";

export class Course {
  #points: number[] = [];
  /** How many values a point is the mean of, and those of the next point. */
  #perPoint = 1;
  #gathering: number[] = [];
  #last = Number.NaN;

  add(value: number): void {
    this.#last = value;
    this.#gathering.push(value);
    if (this.#gathering.length < this.#perPoint) return;
    this.#points.push(mean(this.#gathering));
    this.#gathering = [];
    if (this.#points.length < LIMIT) return;
    this.#points = buckets(this.#points, LIMIT / 2);
    this.#perPoint *= 2;
  }

  get last(): number {
    return this.#last;
  }

  /** The whole run in at most `width` values. */
  points(width: number): number[] {
    return buckets(this.#gathering.length === 0 ? this.#points : [...this.#points, mean(this.#gathering)], width);
  }

  /** Bars from the lowest to the highest value, the whole run in at most `width` of them; `!` is no number. */
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

/** Neighbours put together until there are at most `count`. */
function buckets(values: readonly number[], count: number): number[] {
  if (values.length <= count) return [...values];
  const edge = (i: number) => Math.floor((i * values.length) / count);
  return Array.from({ length: count }, (_, i) => mean(values.slice(edge(i), edge(i + 1))));
}

/** One value that is no number makes the mean none: it is to be seen. */
const mean = (values: readonly number[]): number => values.reduce((total, value) => total + value, 0) / values.length;
