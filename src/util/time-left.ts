/** The time that a run still needs, estimated from its steps; the first step compiles, so it counts only while it is the only one. */
import { formatSeconds } from "./format.ts";

export class TimeLeft {
  readonly #before: number;
  readonly #total: number;
  #done: number;
  #at = performance.now();
  #firstMs = 0;
  #firstAt = 0;

  /** Of `total` steps, `done` were done before now. */
  constructor(done: number, total: number) {
    this.#before = done;
    this.#total = total;
    this.#done = done;
  }

  /** Call this when a step ends. */
  ended(step: number): void {
    const now = performance.now();
    if (this.#done === this.#before) {
      this.#firstMs = now - this.#at;
      this.#firstAt = now;
    }
    this.#done = step;
    this.#at = now;
  }

  /** `3m10s left`; nothing at the beginning and at the end. */
  text(): string {
    if (this.#done === this.#before || this.#done >= this.#total) return "";
    const later = this.#done - this.#before - 1;
    const perStep = later === 0 ? this.#firstMs : (this.#at - this.#firstAt) / later;
    const left = (this.#total - this.#done) * perStep - (performance.now() - this.#at);
    return `${formatSeconds(Math.max(0, left) / 1000)} left`;
  }
}
