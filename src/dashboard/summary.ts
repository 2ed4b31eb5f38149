/**
 * A run in a few numbers, without reading all of its metrics: some evenly spaced lines of the file, and the last one.
 *
 * Otherwise an overview of fifty runs of ten thousand steps would read gigabytes. The result is kept until the file
 * changes.
 */
import type { FileHandle } from "node:fs/promises";
import { basename, resolve } from "node:path";
import { bytesAt, openIfThere } from "../run/json-lines.ts";
import { metricsPath } from "../run/names.ts";
import type { Headline, RunSummary } from "./api.ts";
import { parseLine } from "./columns.ts";
import { thin } from "./page/series.ts";
import { statusOf } from "./run-status.ts";

const points = 48; // of a sparkline
const places = 24; // that are read in a large file
const wholeBytes = 1 << 20; // a file up to this size is read completely
const windowBytes = 1 << 15; // of a larger one, this much at each place: several lines

type Row = { readonly step: number; readonly data: Readonly<Record<string, unknown>> };
type Seen = { readonly size: number; readonly mtimeMs: number; readonly rows: readonly Row[] };

/** Summarizes one run folder, and again after it has changed. */
export class Summarizer {
  readonly #id: string;
  readonly #dir: string;
  #seen: Seen = { size: -1, mtimeMs: 0, rows: [] };

  constructor(id: string, dir: string) {
    this.#id = id;
    this.#dir = dir;
  }

  async summary(): Promise<RunSummary> {
    const { rows, mtimeMs } = await this.#look();
    const step = rows.at(-1)?.step ?? 0;
    const { status, total } = await statusOf(this.#dir, step);
    const name = this.#id === "." ? basename(resolve(this.#dir)) : this.#id;
    return {
      id: this.#id,
      name,
      status,
      step,
      total,
      updatedAt: Math.round(mtimeMs),
      stepSeconds: meanOf(valuesOf(rows.slice(-8), "timing_s/step")),
      headline: firstOf(rows, headlines),
      validation: firstOf(rows, validations),
    };
  }

  async #look(): Promise<Seen> {
    const file = await openIfThere(metricsPath(this.#dir));
    if (file === null) return { size: 0, mtimeMs: 0, rows: [] };
    try {
      const { size, mtimeMs } = await file.stat();
      if (size !== this.#seen.size || mtimeMs !== this.#seen.mtimeMs)
        this.#seen = { size, mtimeMs, rows: await sampleRows(file, size) };
      return this.#seen;
    } finally {
      await file.close();
    }
  }
}

/** Rows of the file in order: all of a small one, of a large one those at evenly spaced places and at its end. */
async function sampleRows(file: FileHandle, size: number): Promise<Row[]> {
  if (size <= wholeBytes) return rowsIn(await bytesAt(file, 0, size), true);
  const found = new Map<number, Row>();
  for (let i = 0; i < places; i++) {
    const start = Math.floor((i * (size - windowBytes)) / (places - 1));
    for (const row of rowsIn(await bytesAt(file, start, start + windowBytes), start === 0)) found.set(row.step, row);
  }
  return [...found.values()].sort((a, b) => a.step - b.step);
}

/** The complete lines in a piece of the file; an incomplete first one is left out. */
function rowsIn(bytes: Buffer, isBeginning: boolean): Row[] {
  const lines = bytes
    .toString("utf8")
    .split("\n")
    .slice(isBeginning ? 0 : 1, -1);
  return lines.map(parseLine).filter((line) => line !== null);
}

/** Labels and patterns of the headline metric; the first one that a run has is used. */
type Candidates = readonly (readonly [label: string, pattern: RegExp])[];

const headlines: Candidates = [
  ["Reward", /^critic\/score\/mean$/],
  ["Accuracy", /^train\/accuracy$/],
  ["Loss", /^train\/loss$/],
];

const validations: Candidates = [
  ["Validation", /^val-core\/.+\/acc\/mean@\d+$/],
  ["Validation", /^val-core\/.+\/mean@\d+$/],
  ["Validation", /^val\/accuracy$/],
  ["Validation loss", /^val\/loss$/],
];

function firstOf(rows: readonly Row[], candidates: Candidates): Headline | null {
  for (const [label, pattern] of candidates) {
    const name = rows.flatMap(({ data }) => Object.keys(data)).find((it) => pattern.test(it));
    if (name === undefined) continue;
    const values = valuesOf(rows, name);
    const value = values.at(-1);
    if (value === undefined) continue;
    return { label, name, value, series: thin(values, points).map((it) => Number(it.toPrecision(4))) };
  }
  return null;
}

const valuesOf = (rows: readonly Row[], name: string): number[] =>
  rows.map(({ data }) => data[name]).filter((value) => typeof value === "number");

const meanOf = (values: readonly number[]): number | null =>
  values.length === 0 ? null : values.reduce((sum, value) => sum + value, 0) / values.length;
