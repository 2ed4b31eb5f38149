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
  /** The last step that has ended in this process, and when; the first one compiles, so its time is kept apart. */
  #ended: number;
  #endedAt = 0;
  #firstMs = 0;
  #firstAt = 0;
  #lastLine = 0;
  #speed = "";
  #summary = "";

  constructor(firstStep: number, totalSteps: number) {
    this.#firstStep = firstStep;
    this.#totalSteps = totalSteps;
    this.#ended = firstStep - 1;
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
    status(`step ${this.#step}/${this.#totalSteps} · ${what}${this.#summary}${this.#timeLeft()}`);
  }

  /** The optimizer step is done, validating and saving are not: returns its timings as metrics. */
  trained(tokens: number): Record<string, number> {
    const seconds = (performance.now() - this.#stepStart) / 1000;
    const throughput = tokens / seconds;
    this.#speed = `${Math.round(throughput)} tokens/s`;
    return { "timing_s/step": seconds, "perf/throughput": throughput };
  }

  /** Close a step: prints its figures. */
  end(metrics: Readonly<Record<string, number>>): void {
    this.#ended = this.#step;
    this.#endedAt = performance.now();
    if (this.#step === this.#firstStep) {
      this.#firstAt = this.#endedAt;
      this.#firstMs = this.#endedAt - this.#stepStart;
    }
    const figures = [`loss ${metrics["train/loss"]!.toFixed(4)}`, `norm ${metrics["train/grad_norm"]!.toFixed(3)}`];
    if (metrics["val/loss"] !== undefined) figures.push(`val loss ${metrics["val/loss"].toFixed(4)}`);
    this.#summary = ` · ${figures.join(" · ")} · ${this.#speed}`;
    const isNotable = this.#step === this.#totalSteps || this.#step === this.#firstStep || "val/loss" in metrics;
    if (isNotable || performance.now() - this.#lastLine > LOG_EVERY_MS) {
      this.#lastLine = performance.now();
      info(`step ${this.#step}/${this.#totalSteps}${this.#summary}${this.#timeLeft()}`);
    }
  }

  /** By the steps that have ended; the first of them counts only while it is alone. */
  #timeLeft(): string {
    const later = this.#ended - this.#firstStep;
    if (later < 0 || this.#ended >= this.#totalSteps) return "";
    const perStep = later === 0 ? this.#firstMs : (this.#endedAt - this.#firstAt) / later;
    const left = (this.#totalSteps - this.#ended) * perStep - (performance.now() - this.#endedAt);
    return ` · ${formatSeconds(Math.max(0, left) / 1000)} left`;
  }
}
