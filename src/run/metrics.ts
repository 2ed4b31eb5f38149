/**
 * metrics.jsonl: one `{"step": n, "data": {name: number}}` per line, appended.
 *
 * A run that was killed and resumed has the same file as one that was not, but for the timings: on resume at step N
 * everything after step N is cut off, a half-written last line with it. JSON has no NaN and no infinity: such a value
 * is written as `null`, which a reader gets back as NaN.
 */
import type { FileHandle } from "node:fs/promises";
import { open, readFile, truncate } from "node:fs/promises";
import { z } from "zod";
import { codeOf } from "../util/errors.ts";
import { explainWrite } from "../util/files.ts";
import { metricsPath } from "./names.ts";

const Line = z.object({
  step: z.int(),
  data: z.record(z.string(), z.number().nullable()),
});

/** The metrics of one step. */
export type Metrics = Readonly<Record<string, number>>;

/** What the clock and the machine decide: the only metrics in which two runs of one config may differ. */
export const isTiming = (name: string): boolean => name.startsWith("timing_") || name.startsWith("perf/");

/** The whole lines of a run's metrics, in the order they were logged. */
export async function readMetrics(dir: string): Promise<{ step: number; data: Metrics }[]> {
  return lines(await bytesOf(metricsPath(dir))).map(({ step, data }) => ({
    step,
    data: Object.fromEntries(Object.entries(data).map(([name, value]) => [name, value ?? Number.NaN])),
  }));
}

/** Append-only writer of the metrics file. */
export class MetricsFile {
  readonly #path: string;
  readonly #file: FileHandle;

  private constructor(path: string, file: FileHandle) {
    this.#path = path;
    this.#file = file;
  }

  /** Open for a run that goes on after `lastStep`; null starts the file anew. */
  static async open(dir: string, lastStep: number | null): Promise<MetricsFile> {
    const path = metricsPath(dir);
    try {
      const file = await open(path, "a");
      await truncate(path, lastStep === null ? 0 : keptBytes(await bytesOf(path), lastStep));
      return new MetricsFile(path, file);
    } catch (error) {
      throw explainWrite(path, error);
    }
  }

  async append(step: number, data: Metrics): Promise<void> {
    try {
      await this.#file.writeFile(`${JSON.stringify({ step, data })}\n`);
    } catch (error) {
      throw explainWrite(this.#path, error);
    }
  }

  async sync(): Promise<void> {
    await this.#file.sync();
  }

  async close(): Promise<void> {
    await this.#file.close();
  }
}

async function bytesOf(path: string): Promise<Buffer> {
  try {
    return await readFile(path);
  } catch (error) {
    if (codeOf(error) === "ENOENT") return Buffer.alloc(0);
    throw error;
  }
}

/** The lines up to the first that is not whole, each with the offset where it ends. */
function lines(bytes: Buffer): (z.infer<typeof Line> & { end: number })[] {
  const found: (z.infer<typeof Line> & { end: number })[] = [];
  for (let start = 0; ; ) {
    const newline = bytes.indexOf(10, start);
    if (newline < 0) return found;
    const line = parseLine(bytes.toString("utf8", start, newline));
    if (line === null) return found;
    found.push({ ...line, end: newline + 1 });
    start = newline + 1;
  }
}

function parseLine(text: string): z.infer<typeof Line> | null {
  try {
    return Line.safeParse(JSON.parse(text)).data ?? null;
  } catch {
    return null;
  }
}

/** How much of the file a run that resumes after `lastStep` keeps. */
function keptBytes(bytes: Buffer, lastStep: number): number {
  let kept = 0;
  for (const { step, end } of lines(bytes)) {
    if (step > lastStep) break;
    kept = end;
  }
  return kept;
}
