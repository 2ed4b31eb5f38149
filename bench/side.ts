/**
 * One side of a comparison: a process of its own that works on command and otherwise waits for its standard input.
 *
 * The protocol is lines. The first line in is the job as JSON; the answer is `{"ready": {name: version}}`. After that
 * every line in is a command, and every line out the JSON that answers it. The end of the input ends the process.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { createInterface } from "node:readline";
import * as z from "zod";

/** What runs the side: a program and its arguments. */
export type Command = { readonly file: string; readonly args: readonly string[]; readonly env?: NodeJS.ProcessEnv };

const readySchema = z.object({ ready: z.record(z.string(), z.string()) });

export class Side {
  readonly name: string;
  /** What the side runs on, by name. */
  versions: Readonly<Record<string, string>> = {};
  readonly #child: ChildProcess;
  readonly #lines: AsyncIterator<string>;
  readonly #closed: Promise<unknown>;
  #errors = "";

  private constructor(name: string, { file, args, env }: Command) {
    this.name = name;
    this.#child = spawn(file, args, { stdio: ["pipe", "pipe", "pipe"], env: { ...process.env, ...env } });
    this.#child.on("error", (error) => this.#note(error.message));
    this.#closed = new Promise((resolve) => this.#child.once("close", resolve));
    this.#child.stdin?.on("error", () => {}); // a dead process is noticed where its answer is awaited
    this.#child.stderr?.setEncoding("utf8").on("data", (text: string) => this.#note(text));
    this.#lines = createInterface({ input: this.#child.stdout! })[Symbol.asyncIterator](); // it exists because it is piped
  }

  /** Start a process and wait until it is ready for commands. */
  static async start(name: string, command: Command, job: unknown): Promise<Side> {
    const side = new Side(name, command);
    side.versions = (await side.ask(JSON.stringify(job), readySchema)).ready;
    return side;
  }

  /** Give a command and wait for the answer. */
  async ask<T>(command: string, answer: z.ZodType<T>): Promise<T> {
    this.#child.stdin?.write(`${command}\n`);
    const line = await this.#lines.next();
    if (!line.done) return answer.parse(JSON.parse(line.value));
    await this.#closed;
    const end = this.#child.signalCode ?? `code ${this.#child.exitCode}`;
    throw new Error(`${this.name} ended with ${end}:\n${this.#errors.trim()}`);
  }

  /** Let the process end. */
  async stop(): Promise<void> {
    this.#child.stdin?.end();
    await this.#closed;
  }

  /** Keep the end of its standard error, to explain why it ended. */
  #note(text: string): void {
    this.#errors = (this.#errors + text).slice(-4000);
  }
}
