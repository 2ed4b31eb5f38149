/**
 * metrics.jsonl: one `{"step": n, "data": {name: number}}` per line, appended.
 *
 * A run that was killed and resumed has the same file as one that was not, except for the timings (json-lines.ts cuts
 * it back). JSON has no NaN and no infinity: such a value is written as `null`, which a reader gets back as NaN.
 */
import { readFile } from "node:fs/promises";
import { z } from "zod";
import { codeOf } from "../util/errors.ts";
import { metricsPath } from "./names.ts";

const Line = z.object({
  step: z.int(),
  data: z.record(z.string(), z.number().nullable()),
});

/** The metrics of one step. */
export type Metrics = Readonly<Record<string, number>>;

/** The complete lines of a run's metrics, in the order they were logged. */
export async function readMetrics(dir: string): Promise<{ step: number; data: Metrics }[]> {
  return lines(await bytesOf(metricsPath(dir))).map(({ step, data }) => ({
    step,
    data: Object.fromEntries(Object.entries(data).map(([name, value]) => [name, value ?? Number.NaN])),
  }));
}

async function bytesOf(path: string): Promise<Buffer> {
  try {
    return await readFile(path);
  } catch (error) {
    if (codeOf(error) === "ENOENT") return Buffer.alloc(0);
    throw error;
  }
}

/** The lines before the first incomplete one. */
function lines(bytes: Buffer): z.infer<typeof Line>[] {
  const found: z.infer<typeof Line>[] = [];
  for (let start = 0; ; ) {
    const newline = bytes.indexOf(10, start);
    if (newline < 0) return found;
    const line = parseLine(bytes.toString("utf8", start, newline));
    if (line === null) return found;
    found.push(line);
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
