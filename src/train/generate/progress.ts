/**
 * The progress of a generation: in a terminal a live line with a bar, rows, tokens per second and time left; elsewhere a
 * line every ten seconds.
 *
 * Speed and time left are measured from the first token of this process: rows of an earlier process and the loading of
 * the model do not count.
 */
import { formatCount, formatSeconds } from "../../util/format.ts";
import { clearStatus, info, status } from "../../util/log.ts";

const drawEveryMs = 200;
const logEveryMs = 10_000;
const barWidth = 20;

export class GenerateProgress {
  readonly #total: number;
  readonly #before: number;
  #start: number | null = null;
  readonly #timer: NodeJS.Timeout;
  #done: number;
  #tokens = 0;
  /** Tokens of rows that are done. */
  #doneTokens = 0;
  #lastLine = performance.now();

  /** `done` of `total` rows were done by an earlier process. */
  constructor(done: number, total: number) {
    this.#total = total;
    this.#before = done;
    this.#done = done;
    this.#timer = setInterval(() => this.#draw(), drawEveryMs);
    this.#timer.unref();
  }

  get done(): number {
    return this.#done;
  }

  token(): void {
    this.#start ??= performance.now();
    this.#tokens++;
  }

  /** A row is done. `tokens` were sampled for it, of which `seen` were reported by `token` already. */
  row(tokens: number, seen: number): void {
    this.#start ??= performance.now();
    this.#done++;
    this.#tokens += Math.max(0, tokens - seen);
    this.#doneTokens += tokens;
    if (performance.now() - this.#lastLine < logEveryMs) return;
    this.#lastLine = performance.now();
    if (!process.stderr.isTTY) info(this.#line());
  }

  close(): void {
    clearInterval(this.#timer);
    clearStatus();
  }

  #speed(): string {
    return `${formatCount(this.#tokens / Math.max(1, this.#seconds()))} tokens/s`;
  }

  #seconds(): number {
    return this.#start === null ? 0 : (performance.now() - this.#start) / 1000;
  }

  #draw(): void {
    const filled = Math.floor((this.#done / this.#total) * barWidth);
    status(`${"█".repeat(filled)}${"░".repeat(barWidth - filled)} ${this.#line()}`);
  }

  #line(): string {
    if (this.#start === null) return `${this.#done}/${this.#total} rows · starting`;
    return `${this.#done}/${this.#total} rows · ${this.#speed()}${this.#timeLeft()}`;
  }

  /** Rows grow side by side, so what is left is counted in tokens: those of an average row, less those sampled already. */
  #timeLeft(): string {
    const fresh = this.#done - this.#before;
    if (fresh === 0 || this.#tokens === 0) return "";
    const expected = (this.#doneTokens / fresh) * (this.#total - this.#done) - (this.#tokens - this.#doneTokens);
    return ` · ${formatSeconds((Math.max(0, expected) / this.#tokens) * this.#seconds())} left`;
  }
}
