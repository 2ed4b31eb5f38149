/**
 * The live line of a long run: the step, what is going on in it, and the time left. Only a terminal shows it; what a
 * step measured is for the trackers to show.
 */
import type { OnMicroBatch } from "../engine/contract.ts";
import { status } from "../util/log.ts";
import { TimeLeft } from "../util/time-left.ts";

export class Progress {
  readonly #totalSteps: number;
  readonly #timeLeft: TimeLeft;
  #step = 0;
  #stepStart = 0;

  constructor(firstStep: number, totalSteps: number) {
    this.#totalSteps = totalSteps;
    this.#timeLeft = new TimeLeft(firstStep - 1, totalSteps);
  }

  begin(step: number): void {
    this.#step = step;
    this.#stepStart = performance.now();
  }

  /** A reporter for one phase of the step. */
  phase(name: string): OnMicroBatch {
    return (done, total) => this.say(total > 1 ? `${name} ${done + 1}/${total}` : name);
  }

  /** Name what is going on. */
  say(what: string): void {
    const parts = [`step ${this.#step}/${this.#totalSteps}`, what, this.#timeLeft.text()];
    status(parts.filter((part) => part !== "").join(" · "));
  }

  /** The optimizer step is done, validating and saving are not: returns its timings as metrics. */
  trained(tokens: number): Record<string, number> {
    const seconds = (performance.now() - this.#stepStart) / 1000;
    return { "timing_s/step": seconds, "perf/throughput": tokens / seconds };
  }

  /** The step is done but for saving. */
  end(): void {
    this.#timeLeft.ended(this.#step);
  }
}
