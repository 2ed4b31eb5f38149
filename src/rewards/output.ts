/**
 * What reward functions print, as lines of the program's log. A flood is cut, so that neither the terminal nor the main
 * thread drowns in it; so is what V8 prints about itself when it aborts.
 */
import { StringDecoder } from "node:string_decoder";
import { info } from "../util/log.ts";

const CHARACTERS_PER_SECOND = 16_384;
const LONGEST_LINE = 4096;
const LAST_WORDS = /^(<--- Last few GCs|FATAL ERROR: |# Fatal |----- Native stack trace)/;

/** Takes text as it comes and hands on whole lines. */
export class Output {
  readonly #decoder = new StringDecoder("utf8");
  #rest = "";
  #second = 0;
  #printed = 0;
  #isOver = false;

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
    this.#isOver ||= LAST_WORDS.test(line);
    if (!this.#isOver && line.trim() !== "") info(`reward: ${line.trimEnd()}`);
  }
}
