/**
 * The state of one run of a program, for both interpreters: its input, its output so far, its deadline.
 *
 * Only the host side of an interpreter uses it, never the program. A program that exceeds a limit is ended with a
 * `Stop`, which is thrown through the interpreter and which no program can catch.
 */
import { Buffer } from "node:buffer";
import type { Outcome, Request, Status } from "./protocol.ts";

/** Ends the program that is being run. */
export class Stop {
  readonly status: Status;
  readonly reason: string;
  readonly exitCode: number | null;
  constructor(status: Status, reason = "", exitCode: number | null = null) {
    this.status = status;
    this.reason = reason;
    this.exitCode = exitCode;
  }
}

/** An error message longer than this is cut. */
const STDERR_BYTES = 64 * 2 ** 10;

export class RunState {
  readonly request: Request;
  readonly memoryBytes: number;
  readonly #input: Buffer;
  readonly #outputBytes: number;
  readonly #started = performance.now();
  readonly #printed: [Buffer[], Buffer[]] = [[], []];
  #readBytes = 0;
  #stdoutBytes = 0;
  #stderrBytes = 0;

  constructor(request: Request, outputBytes: number) {
    this.request = request;
    this.memoryBytes = request.memoryMb * 2 ** 20;
    this.#input = Buffer.from(request.stdin);
    this.#outputBytes = outputBytes;
  }

  isOverdue(): boolean {
    return performance.now() - this.#started > this.request.timeoutMs;
  }

  /** The interpreter calls this regularly. */
  checkTime(): void {
    if (this.isOverdue()) throw new Stop("timeout");
  }

  /** The next bytes of the input, at most `most`; none at its end. */
  read(most: number): Buffer {
    const chunk = this.#input.subarray(this.#readBytes, this.#readBytes + most);
    this.#readBytes += chunk.length;
    return chunk;
  }

  /** Print to 1 (stdout) or 2 (stderr). */
  write(stream: 1 | 2, bytes: Uint8Array): void {
    this.checkTime();
    if (stream === 2) {
      this.#writeError(bytes);
      return;
    }
    const chunk = Buffer.from(bytes.subarray(0, this.#outputBytes - this.#stdoutBytes)); // a copy, because the memory changes
    this.#stdoutBytes += chunk.length;
    this.#printed[0].push(chunk);
    if (chunk.length < bytes.length) throw new Stop("output", `more than ${this.#outputBytes} bytes were printed`);
  }

  #writeError(bytes: Uint8Array): void {
    const chunk = Buffer.from(bytes.subarray(0, STDERR_BYTES - this.#stderrBytes));
    this.#stderrBytes += chunk.length;
    this.#printed[1].push(chunk);
  }

  /** The outcome of the run; a `Stop` says why the program did not finish. */
  outcome(end: Stop | Pick<Outcome, "isComplete" | "result">): Outcome {
    const [stdout, stderr] = this.#printed.map((chunks) => Buffer.concat(chunks).toString("utf8"));
    const runMs = performance.now() - this.#started;
    const printed = { stdout: stdout ?? "", stderr: stderr ?? "", runMs };
    if (!(end instanceof Stop)) return { status: "ok", exitCode: 0, ...end, ...printed };
    const { status, reason, exitCode } = end;
    const told = reason === "" ? printed.stderr : `${printed.stderr}${reason}\n`;
    return { status, exitCode, isComplete: false, result: null, ...printed, stderr: told };
  }
}
