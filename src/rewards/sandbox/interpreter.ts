/**
 * The sandbox's end of one interpreter's process: start it, give it a program, end it.
 *
 * The deadline is enforced here: a process that has not answered by then is killed, whatever the program has done to the
 * interpreter's own clock. Its answer is only a claim about one program, and is checked as such.
 */
import { type ChildProcess, spawn } from "node:child_process";
import type { Duplex } from "node:stream";
import { messageOf, UserError } from "../../util/errors.ts";
import { ownGroup } from "../../workers/child-process.ts";
import type { Confined } from "./confinement.ts";
import { type Boot, header, type Interpreter, jsonFrame, type Outcome, type Request, readReply } from "./protocol.ts";

type InterpreterOptions = {
  readonly interpreter: Interpreter;
  readonly confined: Confined;
  readonly outputBytes: number;
  /** Of an interpreter that was started before; null if there is none. */
  readonly snapshot: Uint8Array | null;
};

/** An interpreter stops an overdue program by itself; this much later it is killed. */
const GRACE_MS = 1000;
/** Long, for a busy machine. */
const START_MS = 120_000;
const SNAPSHOT_BYTES = 512 * 2 ** 20;
/** A byte takes up to 6 bytes in JSON. */
const JSON_FACTOR = 6;

/** What `spawn` opens for "pipe" is a socket, though its type does not say so. */
type Pipe = Duplex & { ref(): unknown; unref(): unknown };
type Waiting = { resolve(bytes: Buffer): void; reject(error: Error): void };

export class InterpreterProcess {
  /** From which others start faster; null if this one was started from one. */
  snapshot: Uint8Array | null = null;
  /** For how many milliseconds it has run programs. */
  busyMs = 0;
  /** It can be given another program. */
  isUsable = true;
  readonly #options: InterpreterOptions;
  readonly #child: ChildProcess;
  readonly #pipe: Pipe;
  readonly #replyBytes: number;
  readonly #ended: Promise<void>;
  #chunks: Buffer[] = [];
  #arrived = 0;
  #maxBytes = SNAPSHOT_BYTES;
  #waiting: Waiting | null = null;
  #lastWords = "";

  constructor(options: InterpreterOptions) {
    const { confined, outputBytes } = options;
    this.#options = options;
    this.#replyBytes = outputBytes * JSON_FACTOR + 2 ** 20;
    this.#child = spawn(confined.command, confined.args, {
      ...ownGroup,
      env: {},
      stdio: ["ignore", "ignore", "pipe", "pipe"],
    });
    this.#pipe = this.#child.stdio[3] as Pipe;
    this.#pipe.on("data", (chunk: Buffer) => this.#receive(chunk));
    this.#pipe.on("error", () => undefined); // the end of the process reports it
    this.#child.stderr?.on("data", (chunk: Buffer) => {
      this.#lastWords = `${this.#lastWords}${chunk.toString("utf8")}`.slice(-2000);
    });
    this.#ended = new Promise((resolve) => {
      const end = (message: string) => {
        this.#fail(message);
        resolve();
      };
      this.#child.once("error", (error) => end(`could not be started: ${error.message}`));
      this.#child.once("close", (code, signal) => end(`ended with ${signal ?? `exit code ${code}`}`));
    });
  }

  /** Settles when the interpreter can be given programs. */
  async boot(): Promise<void> {
    const { interpreter, confined, outputBytes, snapshot } = this.#options;
    const late = setTimeout(() => this.#kill("was not ready in time"), START_MS);
    try {
      this.#pipe.write(jsonFrame({ interpreter, module: confined.module, outputBytes } satisfies Boot));
      this.#pipe.write(header(snapshot?.length ?? 0));
      if (snapshot !== null) this.#pipe.write(snapshot);
      await this.#next(); // it is ready
      const ownSnapshot = await this.#next();
      if (ownSnapshot.length > 0) this.snapshot = ownSnapshot;
      this.#maxBytes = this.#replyBytes;
      this.#hold(false);
    } catch (cause) {
      await this.#ended; // so that its last output has arrived
      const what = `The ${interpreter} interpreter of the code sandbox ${messageOf(cause)}.`;
      throw new UserError(`${what} ${advice(this.#lastWords)}`, { cause });
    } finally {
      clearTimeout(late);
    }
  }

  /** Run a program. The process runs one at a time. */
  async run(request: Request): Promise<Outcome> {
    const began = performance.now();
    let isLate = false;
    const late = setTimeout(() => {
      isLate = true;
      this.#kill("was killed at the deadline");
    }, request.timeoutMs + GRACE_MS);
    try {
      this.#hold(true);
      this.#pipe.write(jsonFrame(request));
      const reply = readReply(await this.#next());
      if (reply === null || reply.id !== request.id) {
        this.#kill("answered what is no answer");
        return ended("crash", "the interpreter's answer cannot be read", performance.now() - began);
      }
      const { id: _, isSpent, ...outcome } = reply;
      this.isUsable &&= !isSpent;
      return outcome;
    } catch (error) {
      const words = isLate ? "" : `the interpreter ${messageOf(error)}`;
      return ended(isLate ? "timeout" : "crash", words, performance.now() - began);
    } finally {
      clearTimeout(late);
      this.busyMs += performance.now() - began;
      this.#hold(false);
    }
  }

  /** End the process; settles when it is gone. */
  async end(): Promise<void> {
    this.#hold(true);
    this.#kill("was ended");
    await this.#ended;
  }

  /** Our program may exit while an interpreter waits for work, but not while it runs a program. */
  #hold(isHeld: boolean): void {
    for (const handle of [this.#pipe, this.#child, this.#child.stderr as Pipe | null]) {
      if (isHeld) handle?.ref();
      else handle?.unref();
    }
  }

  #kill(why: string): void {
    this.#fail(why);
    this.#child.kill("SIGKILL");
  }

  #fail(why: string): void {
    this.isUsable = false;
    this.#waiting?.reject(new Error(why));
    this.#waiting = null;
  }

  /** The next frame. */
  #next(): Promise<Buffer> {
    return new Promise((resolve, reject) => {
      if (!this.isUsable) return reject(new Error("has ended"));
      this.#waiting = { resolve, reject };
      this.#deliver();
    });
  }

  #receive(chunk: Buffer): void {
    this.#chunks.push(chunk);
    this.#arrived += chunk.length;
    this.#deliver();
  }

  #deliver(): void {
    if (this.#waiting === null || this.#arrived < 4) return;
    if ((this.#chunks[0]?.length ?? 0) < 4) this.#chunks = [Buffer.concat(this.#chunks)];
    const length = this.#chunks[0]?.readUInt32LE() ?? 0;
    if (length > this.#maxBytes) {
      this.#kill(`sent ${length} bytes`);
      return;
    }
    if (this.#arrived < 4 + length) return;
    const all = Buffer.concat(this.#chunks);
    const rest = all.subarray(4 + length);
    this.#chunks = rest.length === 0 ? [] : [rest];
    this.#arrived = rest.length;
    const { resolve } = this.#waiting;
    this.#waiting = null;
    resolve(all.subarray(4, 4 + length));
  }
}

function ended(status: "timeout" | "crash", stderr: string, runMs: number): Outcome {
  return { status, exitCode: null, isComplete: false, stdout: "", stderr, result: null, runMs };
}

function advice(lastWords: string): string {
  const words = lastWords.trim();
  return words === "" ? "See that there is memory for it." : `Its last words: ${words.slice(-600)}`;
}
