/**
 * The progress line of a long run: the step, its current phase, and the time left. Only a terminal shows it; trackers
 * show the metrics. If one phase takes long, a line is printed once a minute, in a terminal or not.
 */
import type { OnMicroBatch } from "../engine/contract.ts";
import { formatSeconds } from "../util/format.ts";
import { info, status } from "../util/log.ts";
import { TimeLeft } from "../util/time-left.ts";

/** How long a phase may take before a line says so. */
const HEARTBEAT_MS = 60_000;

export class Progress {
  readonly #totalSteps: number;
  readonly #timeLeft: TimeLeft;
  #step = 0;
  #stepStart = 0;
  #doing = "starting";
  #since = performance.now();
  readonly #heartbeat: NodeJS.Timeout;

  constructor(firstStep: number, totalSteps: number) {
    this.#totalSteps = totalSteps;
    this.#timeLeft = new TimeLeft(firstStep - 1, totalSteps);
    this.#heartbeat = setInterval(() => this.#beat(), HEARTBEAT_MS).unref();
  }

  [Symbol.dispose](): void {
    clearInterval(this.#heartbeat);
  }

  begin(step: number): void {
    this.#step = step;
    this.#stepStart = performance.now();
  }

  /** A reporter for one phase of the step. */
  phase(name: string): OnMicroBatch {
    return (done, total) => this.say(total > 1 ? `${name} ${done + 1}/${total}` : name);
  }

  /** Show the current phase. */
  say(what: string): void {
    if (what !== this.#doing) this.#since = performance.now();
    this.#doing = what;
    const parts = [`step ${this.#step}/${this.#totalSteps}`, what, this.#timeLeft.text()];
    status(parts.filter((part) => part !== "").join(" · "));
  }

  #beat(): void {
    const seconds = (performance.now() - this.#since) / 1000;
    if (seconds * 1000 < HEARTBEAT_MS) return;
    info(`Step ${this.#step}/${this.#totalSteps}: ${this.#doing}, for ${formatSeconds(seconds)} now.`);
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
