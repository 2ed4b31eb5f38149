/**
 * What a worker process prints, as lines of the program's log. More than 16 KB in a second is cut, so that the terminal
 * and the main thread stay usable. What V8 prints about itself when it aborts is left out.
 */
import { StringDecoder } from "node:string_decoder";
import { info } from "../util/log.ts";

const CHARACTERS_PER_SECOND = 16_384;
const LONGEST_LINE = 4096;
const ABORT_REPORT = /^(<--- Last few GCs|FATAL ERROR: |# Fatal |----- Native stack trace)/;

/** Takes bytes as they come and logs whole lines. */
export class PrintedLines {
  readonly #prefix: string;
  readonly #decoder = new StringDecoder("utf8");
  #rest = "";
  #second = 0;
  #printed = 0;
  #isAborting = false;

  constructor(prefix: string) {
    this.#prefix = prefix;
  }

  write(bytes: Buffer): void {
    const second = Math.floor(performance.now() / 1000);
    if (second !== this.#second) {
      this.#second = second;
      this.#printed = 0;
    }
    if (this.#printed > CHARACTERS_PER_SECOND) return;
    this.#printed += bytes.length;
    const lines = (this.#rest + this.#decoder.write(bytes)).split("\n");
    this.#rest = (lines.pop() ?? "").slice(0, LONGEST_LINE);
    for (const line of lines) this.#line(line.slice(0, LONGEST_LINE));
    if (this.#printed > CHARACTERS_PER_SECOND) this.#line("(the rest of what it printed in this second is left out)");
  }

  end(): void {
    if (this.#rest !== "") this.#line(this.#rest);
    this.#rest = "";
  }

  #line(line: string): void {
    this.#isAborting ||= ABORT_REPORT.test(line);
    if (!this.#isAborting && line.trim() !== "") info(`${this.#prefix}: ${line.trimEnd()}`);
  }
}
