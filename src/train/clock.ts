/** Stopwatches of a step, by verl's names of its sections. */

export class Clock {
  readonly #seconds: Record<string, number> = {};
  readonly #start = performance.now();

  /** Do the work and add its time to a section. */
  async time<T>(section: string, work: () => Promise<T>): Promise<T> {
    const start = performance.now();
    try {
      return await work();
    } finally {
      this.#seconds[section] = (this.#seconds[section] ?? 0) + (performance.now() - start) / 1000;
    }
  }

  /** Count a part of the time of one section for another: sections do not overlap. */
  move(seconds: number, { from, to }: { readonly from: string; readonly to: string }): void {
    this.#seconds[from] = (this.#seconds[from] ?? 0) - seconds;
    this.#seconds[to] = (this.#seconds[to] ?? 0) + seconds;
  }

  /** Seconds of every section, and `step`: all since the clock was made. */
  seconds(): Record<string, number> & { readonly step: number } {
    return { ...this.#seconds, step: (performance.now() - this.#start) / 1000 };
  }
}
