/**
 * Files of JSON lines that begin with their step, `{"step":7,…}`: one run appends to them while others read.
 *
 * A run that was killed and resumed has the same file as one that was not: resuming at step N cuts off everything after
 * step N, and a half-written last line too. Readers see complete lines only. A follower that finds the file cut back or
 * replaced starts again.
 */
import { type FileHandle, open, rm, truncate } from "node:fs/promises";
import { codeOf } from "../util/errors.ts";
import { explainWrite } from "../util/files.ts";

const chunkBytes = 1 << 20;
const newline = 10;

/** Append-only writer; the first line creates the file. */
export class JsonLinesFile {
  readonly #path: string;
  #file: FileHandle | null = null;
  #lines: number;

  private constructor(path: string, lines: number) {
    this.#path = path;
    this.#lines = lines;
  }

  /** How many lines the file has. */
  get lines(): number {
    return this.#lines;
  }

  /** For a run that resumes after `lastStep`; null starts with an empty file. */
  static async open(path: string, lastStep: number | null): Promise<JsonLinesFile> {
    let lines = 0;
    try {
      if (lastStep === null) await rm(path, { force: true });
      else {
        const kept = await keptOf(path, lastStep);
        await truncate(path, kept.bytes);
        lines = kept.lines;
      }
    } catch (error) {
      if (codeOf(error) !== "ENOENT") throw explainWrite(path, error);
    }
    return new JsonLinesFile(path, lines);
  }

  /** Append a line of a step; a number that is not finite is written as null. */
  async append(step: number, rest: Readonly<Record<string, unknown>>): Promise<void> {
    try {
      this.#file ??= await open(this.#path, "a");
      await this.#file.writeFile(`${JSON.stringify({ step, ...rest })}\n`);
      this.#lines++;
    } catch (error) {
      throw explainWrite(this.#path, error);
    }
  }

  async sync(): Promise<void> {
    await this.#file?.sync();
  }

  async close(): Promise<void> {
    await this.#file?.close();
  }
}

/** How much of the file a run that resumes after `lastStep` keeps. */
async function keptOf(path: string, lastStep: number): Promise<{ readonly bytes: number; readonly lines: number }> {
  const file = await open(path, "r");
  let [bytes, lines] = [0, 0];
  let isPast = false;
  try {
    await eachLine(file, [0, (await file.stat()).size], (line, start) => {
      const step = stepOfLine(line);
      isPast ||= step === null || step > lastStep;
      if (isPast) return false;
      bytes = start + line.length + 1;
      lines++;
      return true;
    });
  } finally {
    await file.close();
  }
  return { bytes, lines };
}

/** The step that a line begins with; null for a line that this program did not write. */
export function stepOfLine(line: Buffer): number | null {
  const match = /^\{"step":(\d+),/.exec(line.toString("latin1", 0, 32));
  return match === null || line.at(-1) !== closingBrace ? null : Number(match[1]);
}

const closingBrace = 125;

/** Reads a file that grows: each line once, as soon as it is complete. */
export class LineFollower {
  readonly #path: string;
  #end = 0;
  /** The last bytes before `#end`: if they differ later, the file was replaced. */
  #mark: Buffer = Buffer.alloc(0);
  #running: Promise<void> | null = null;
  readonly #onReset: () => void;
  readonly #onLine: (line: Buffer, start: number) => void;

  /** `onLine` gets a line without its line end, and its offset; `onReset` means that all earlier lines are void. */
  constructor(path: string, { onReset, onLine }: { onReset(): void; onLine(line: Buffer, start: number): void }) {
    this.#path = path;
    this.#onReset = onReset;
    this.#onLine = onLine;
  }

  /** Read what was appended since the last time; a missing file counts as empty. */
  async refresh(): Promise<void> {
    this.#running ??= this.#read().finally(() => {
      this.#running = null;
    });
    await this.#running;
  }

  async #read(): Promise<void> {
    const file = await openIfThere(this.#path);
    try {
      const size = file === null ? 0 : (await file.stat()).size;
      if (!(await this.#isSame(file, size))) {
        this.#end = 0;
        this.#mark = Buffer.alloc(0);
        this.#onReset();
      }
      if (file === null) return;
      await eachLine(file, [this.#end, size], (line, start) => {
        this.#onLine(line, start);
        this.#end = start + line.length + 1;
        return true;
      });
      this.#mark = await bytesAt(file, Math.max(0, this.#end - 1024), this.#end);
    } finally {
      await file?.close();
    }
  }

  async #isSame(file: FileHandle | null, size: number): Promise<boolean> {
    if (size < this.#end) return false;
    if (file === null || this.#end === 0) return true;
    return this.#mark.equals(await bytesAt(file, this.#end - this.#mark.length, this.#end));
  }
}

/** The bytes of a file from `start` to `end`, fewer if it is shorter. */
export async function bytesAt(file: FileHandle, start: number, end: number): Promise<Buffer> {
  const bytes = Buffer.allocUnsafe(end - start);
  let done = 0;
  while (done < bytes.length) {
    const { bytesRead } = await file.read(bytes, done, bytes.length - done, start + done);
    if (bytesRead === 0) break;
    done += bytesRead;
  }
  return bytes.subarray(0, done);
}

/** Open for reading; null if there is no such file. */
export async function openIfThere(path: string): Promise<FileHandle | null> {
  try {
    return await open(path, "r");
  } catch (error) {
    if (codeOf(error) === "ENOENT") return null;
    throw error;
  }
}

/** Call `onLine` with each line between two offsets, without its line end, until a call returns false. */
async function eachLine(
  file: FileHandle,
  [from, to]: readonly [number, number],
  visit: (line: Buffer, start: number) => boolean,
): Promise<void> {
  let pieces: Buffer[] = []; // the start of a line whose end was not read yet
  let lineStart = from;
  for (let at = from; at < to; ) {
    const chunk = await bytesAt(file, at, Math.min(to, at + chunkBytes));
    if (chunk.length === 0) return;
    let begin = 0;
    for (let end = chunk.indexOf(newline); end >= 0; end = chunk.indexOf(newline, begin)) {
      const piece = chunk.subarray(begin, end);
      const line = pieces.length === 0 ? piece : Buffer.concat([...pieces, piece]);
      pieces = [];
      if (!visit(line, lineStart)) return;
      begin = end + 1;
      lineStart = at + begin;
    }
    if (begin < chunk.length) pieces.push(chunk.subarray(begin));
    at += chunk.length;
  }
}
