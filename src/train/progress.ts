/**
 * What a long run says of itself: a live line with the phase, speed and time left, and a line per step in a log.
 *
 * In a terminal the live line is redrawn and finished steps scroll by; elsewhere only finished steps are printed, at
 * most one every few seconds, so that a log stays readable.
 */
import type { OnMicroBatch } from "../engine/contract.ts";
import { formatSeconds } from "../util/format.ts";
import { info, status } from "../util/log.ts";

const LOG_EVERY_MS = 2000;

export class Progress {
  readonly #firstStep: number;
  readonly #totalSteps: number;
  #step = 0;
  #stepStart = 0;
  #runStart = performance.now();
  #lastLine = 0;
  #summary = "";

  constructor(firstStep: number, totalSteps: number) {
    this.#firstStep = firstStep;
    this.#totalSteps = totalSteps;
  }

  begin(step: number): void {
    this.#step = step;
    this.#stepStart = performance.now();
    if (step === this.#firstStep) this.#runStart = this.#stepStart;
  }

  /** A reporter for one phase of the step. */
  phase(name: string): OnMicroBatch {
    return (done, total) => this.say(total > 1 ? `${name} ${done + 1}/${total}` : name);
  }

  /** Name what is going on. */
  say(what: string): void {
    status(`step ${this.#step}/${this.#totalSteps} · ${what}${this.#summary}${this.#timeLeft()}`);
  }

  /** Close a step: prints its figures and returns its timings as metrics. */
  end(tokens: number, metrics: Readonly<Record<string, number>>): Record<string, number> {
    const seconds = (performance.now() - this.#stepStart) / 1000;
    const throughput = tokens / seconds;
    const figures = [`loss ${metrics["train/loss"]!.toFixed(4)}`, `norm ${metrics["train/grad_norm"]!.toFixed(3)}`];
    if (metrics["val/loss"] !== undefined) figures.push(`val loss ${metrics["val/loss"].toFixed(4)}`);
    this.#summary = ` · ${figures.join(" · ")} · ${Math.round(throughput)} tokens/s`;
    const isNotable = this.#step === this.#totalSteps || this.#step === this.#firstStep || "val/loss" in metrics;
    if (isNotable || performance.now() - this.#lastLine > LOG_EVERY_MS) {
      this.#lastLine = performance.now();
      info(`step ${this.#step}/${this.#totalSteps}${this.#summary}${this.#timeLeft()}`);
    }
    return { "timing_s/step": seconds, "perf/throughput": throughput };
  }

  #timeLeft(): string {
    const done = this.#step - this.#firstStep;
    if (done === 0) return "";
    const perStep = (performance.now() - this.#runStart) / done;
    const left = this.#totalSteps - this.#step;
    return left <= 0 ? "" : ` · ${formatSeconds((left * perStep) / 1000)} left`;
  }
}
