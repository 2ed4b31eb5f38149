/**
 * The messages between the sandbox and an interpreter's process: frames over one pipe, each a length and its bytes.
 *
 * The pipe is the process's file descriptor 3, so that nothing an interpreter prints can be taken for a message. What
 * comes from an interpreter is not trusted: `readReply` takes only the fields below, with their types.
 */
import { Buffer } from "node:buffer";

/** What a program may be written in. */
export type Language = "python" | "javascript" | "typescript";
export const languages: readonly Language[] = ["python", "javascript", "typescript"];

/** The interpreters; TypeScript runs as JavaScript after its types are removed. */
export type Interpreter = "python" | "javascript";

/** The first message to a new process. */
export type Boot = {
  readonly interpreter: Interpreter;
  /** The module to load the interpreter from, as a URL. */
  readonly module: string;
  /** How many bytes a program may print. */
  readonly outputBytes: number;
};

/** A program as it is sent; its pieces run one after the other in one scope. */
export type Request = {
  /** Unguessable, and repeated in the reply. */
  readonly id: string;
  readonly language: Language;
  readonly setup: string;
  readonly code: string;
  readonly check: string;
  readonly call: Call | null;
  readonly stdin: string;
  readonly timeoutMs: number;
  readonly memoryMb: number;
};

/** A function of the program that is called after the program has run. */
export type Call = {
  /** A global function, or a method of a class `Solution`. */
  readonly name: string;
  /** One JSON text per argument. */
  readonly args: readonly string[];
};

/**
 * How a program ended: by itself with exit code 0, with an error or another code, out of time, out of memory, after
 * too much output, after a use of something that the sandbox forbids, or because its interpreter crashed.
 */
export type Status = "ok" | "error" | "timeout" | "memory" | "output" | "forbidden" | "crash";
const statuses: readonly string[] = ["ok", "error", "timeout", "memory", "output", "forbidden", "crash"];

/** The result of a program. */
export type Outcome = {
  readonly status: Status;
  /** Null if the program did not end by itself. */
  readonly exitCode: number | null;
  /** The end of the last piece was reached: no exit, no exception before it. */
  readonly isComplete: boolean;
  readonly stdout: string;
  readonly stderr: string;
  /** What the called function returned, as JSON. */
  readonly result: string | null;
  readonly runMs: number;
};

/** `isSpent`: the process ends now. */
export type Reply = Outcome & { readonly id: string; readonly isSpent: boolean };

/** The header of a frame with this many bytes. */
export function header(length: number): Uint8Array {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32LE(length);
  return bytes;
}

/** A value as JSON, after its length. */
export function jsonFrame(value: unknown): Uint8Array {
  const bytes = Buffer.from(JSON.stringify(value));
  return Buffer.concat([header(bytes.length), bytes]);
}

/** Parse the bytes of an interpreter's process as a reply; null if they are not one. */
export function readReply(bytes: Uint8Array): Reply | null {
  let value: unknown;
  try {
    value = JSON.parse(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("utf8"));
  } catch {
    return null;
  }
  if (typeof value !== "object" || value === null) return null;
  const claimed = value as Partial<Reply>; // checked below
  const { id, isSpent, status, exitCode, isComplete, stdout, stderr, result, runMs } = claimed;
  const isRight =
    typeof id === "string" &&
    typeof isSpent === "boolean" &&
    statuses.includes(String(status)) &&
    (exitCode === null || Number.isInteger(exitCode)) &&
    typeof isComplete === "boolean" &&
    typeof stdout === "string" &&
    typeof stderr === "string" &&
    (result === null || typeof result === "string") &&
    typeof runMs === "number";
  return isRight ? ({ id, isSpent, status, exitCode, isComplete, stdout, stderr, result, runMs } as Reply) : null;
}
